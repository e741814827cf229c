"""Training is what it is on JAX's own devices: the view of one process, simulated and on ranks, and the global view."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("flax")

import jax

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


class OnDevices(Results):
    """What JAX gives of each step on devices of its own, in a process that has as many; steps of a group are trained
    together."""

    def __init__(self, module: ModuleType, groups: Sequence[list[str]], count: int, folder: Path) -> None:
        self._module, self._groups, self._count, self._folder = module, groups, count, folder

    def __missing__(self, name: str) -> list[np.ndarray[Any, Any]]:
        names = next(names for names in self._groups if name in names)
        file = self._folder / "results"
        run(self._module, self._count, file, names)
        self.update(pickle.loads(file.read_bytes()))
        return self[name]


class Vmapped(Results):
    """What `jax.vmap` gives of each step of an ordinary run, in this process, where most of it is traced already; and
    `rest` of the others, whose random keys have other bits there."""

    def __init__(self, trainers: dict[str, jax_trainers.Trainer], rest: OnDevices) -> None:
        self._trainers, self._rest = trainers, rest

    def __missing__(self, name: str) -> list[np.ndarray[Any, Any]]:
        if name in jax_trainers.REST:
            return self._rest[name]
        state, step, shape = self._trainers[name]
        mapped = jax.jit(jax.vmap(step, axis_name=jax_trainers.AXIS))
        stacked = jax_trainers.stacked(state, COUNT)
        self[name] = jax_trainers.trained(mapped, stacked, jax_trainers.batches(shape, COUNT))
        return self[name]


@pytest.fixture(scope="module")
def trainers() -> dict[str, jax_trainers.Trainer]:
    return jax_trainers.trainers(COUNT, [*jax_trainers.FEW, *jax_trainers.REST])


@pytest.fixture(scope="module")
def jaxs(trainers: dict[str, jax_trainers.Trainer], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What JAX gives, with a leading axis of all processes."""
    return Vmapped(trainers, OnDevices(jax_trainers, [jax_trainers.REST], COUNT, tmp_path_factory.mktemp("jax")))


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
    groups = jax_global_trainers.FEW, jax_global_trainers.REST
    return OnDevices(jax_global_trainers, groups, FEWER, tmp_path_factory.mktemp("global"))


@pytest.mark.slow
@pytest.mark.parametrize("names", [jax_global_trainers.FEW, jax_global_trainers.REST], ids=",".join)
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
