"""Training is what it is on JAX's own devices: the view of one process, simulated and on ranks, and the global view."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("flax")

import spmd.jax
from tests import jax_global_trainers, jax_trainers
from tests.effort import some_slow
from tests.jax_meshes import abstract_mesh

COUNT = 8
FEWER = 4
Results = dict[str, list[np.ndarray[Any, Any]]]
ROOT = Path(__file__).parents[2]


def cases(module: ModuleType) -> list[Any]:
    return some_slow([*module.FEW, *module.REST], len(module.FEW))


def run(module: ModuleType, count: int, file: Path, names: list[str], *words: str) -> None:
    """Runs a script of trainers with JAX alone, or on as many ranks."""
    of_mpi = ("OMPI_", "PMIX_", "PRTE_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(of_mpi)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    launch = ["-m", "launch", "launch", "-n", str(count), "--", sys.executable] if words == ("ranks",) else []
    command = [sys.executable, *launch, str(module.__file__), str(count), str(file), ",".join(names), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class TrainedByJax(Results):
    """What JAX gives of each step; the steps of an ordinary run are trained together, and so is the rest."""

    def __init__(self, module: ModuleType, count: int, folder: Path) -> None:
        self._module, self._count, self._folder = module, count, folder

    def __missing__(self, name: str) -> list[np.ndarray[Any, Any]]:
        names = next(names for names in (self._module.FEW, self._module.REST) if name in names)
        file = self._folder / "results"
        run(self._module, self._count, file, names)
        self.update(pickle.loads(file.read_bytes()))
        return self[name]


@pytest.fixture(scope="module")
def jaxs(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What JAX gives, with a leading axis of all processes."""
    return TrainedByJax(jax_trainers, COUNT, tmp_path_factory.mktemp("jax"))


@pytest.fixture(scope="module")
def trainers() -> dict[str, jax_trainers.Trainer]:
    return jax_trainers.trainers(COUNT, [*jax_trainers.FEW, *jax_trainers.REST])


def agree(mine: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]], narrow: bool = False) -> None:
    """Integers, and so all that random keys give, to the bit; sums as far as their order leaves open.

    `narrow`: what they are computed of is rounded to 16 bits on the way.
    """
    assert [(leaf.dtype, leaf.shape) for leaf in mine] == [(leaf.dtype, leaf.shape) for leaf in other]
    for left, right in zip(mine, other, strict=True):
        if left.dtype.kind in "biu":
            np.testing.assert_array_equal(left, right)
        else:
            tolerance = 3e-2 if left.dtype.itemsize == 2 else 5e-3 if narrow else 2e-4
            left, right = left.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", cases(jax_trainers))
def test_simulated(name: str, jaxs: Results, trainers: dict[str, jax_trainers.Trainer]) -> None:
    state, step, shape = trainers[name]
    simulated = spmd.jax.simulate(step, axes={jax_trainers.AXIS: COUNT})
    batches_in = jax_trainers.batches(shape, COUNT)
    agree(jax_trainers.trained(simulated, jax_trainers.stacked(state, COUNT), batches_in), jaxs[name])


@pytest.mark.slow
def test_on_ranks(jaxs: Results, tmp_path: Path) -> None:
    run(jax_trainers, COUNT, tmp_path / "results", jax_trainers.ON_RANKS, "ranks")
    for rank in range(COUNT):
        mine: Results = pickle.loads((tmp_path / f"results-{rank}").read_bytes())
        assert list(mine) == jax_trainers.ON_RANKS
        for name, leaves in mine.items():
            agree(leaves, [leaf[rank] for leaf in jaxs[name]])


@pytest.fixture(scope="module")
def jaxs_of_the_global_view(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return TrainedByJax(jax_global_trainers, FEWER, tmp_path_factory.mktemp("global"))


def on_ranks() -> list[Any]:
    """Return the names of what ranks train together: those of an ordinary run, and all that is left."""
    left = [name for name in jax_global_trainers.FEW if name not in jax_global_trainers.ON_RANKS]
    return some_slow([jax_global_trainers.ON_RANKS, left, jax_global_trainers.REST], 1)


@pytest.mark.parametrize("names", on_ranks(), ids=",".join)
def test_the_global_view_on_ranks(names: list[str], jaxs_of_the_global_view: Results, tmp_path: Path) -> None:
    run(jax_global_trainers, FEWER, tmp_path / "results", names, "ranks")
    for rank in range(FEWER):
        mine: Results = pickle.loads((tmp_path / f"results-{rank}").read_bytes())
        assert list(mine) == names
        for name, leaves in mine.items():
            agree(leaves, jaxs_of_the_global_view[name], narrow=name == "accumulated")


@pytest.fixture(scope="module")
def global_trainers() -> dict[str, jax_global_trainers.Trainer]:
    return jax_global_trainers.trainers(FEWER, abstract_mesh)


@pytest.mark.parametrize("name", cases(jax_global_trainers))
def test_the_global_view_simulated(
    name: str, jaxs_of_the_global_view: Results, global_trainers: dict[str, jax_global_trainers.Trainer]
) -> None:
    state, step, batches_in = global_trainers[name]
    whole = jax_global_trainers.made_whole(spmd.jax.simulate(step))
    mine = jax_trainers.trained(whole, state, batches_in)
    agree(mine, jaxs_of_the_global_view[name], narrow=name == "accumulated")
