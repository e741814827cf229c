"""Training in the view of one process is what it is on JAX's own devices: simulated, and on as many ranks."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("flax")

import spmd.jax
from tests import jax_trainers

COUNT = 8
Results = dict[str, list[np.ndarray[Any, Any]]]
ROOT = Path(__file__).parents[2]


def run(file: Path, *words: str, before: tuple[str, ...] = ()) -> None:
    of_mpi = ("OMPI_", "PMIX_", "PRTE_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(of_mpi)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    command = [sys.executable, *before, str(ROOT / "tests/jax_trainers.py"), str(COUNT), str(file), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def jaxs(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What JAX gives, with a leading axis of all processes."""
    file = tmp_path_factory.mktemp("jax") / "results"
    run(file)
    found: Results = pickle.loads(file.read_bytes())
    return found


@pytest.fixture(scope="module")
def trainers() -> dict[str, jax_trainers.Trainer]:
    return jax_trainers.trainers(COUNT)


def agree(mine: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> None:
    """Integers, and so all that random keys give, to the bit; sums as far as their order leaves open."""
    assert [(leaf.dtype, leaf.shape) for leaf in mine] == [(leaf.dtype, leaf.shape) for leaf in other]
    for left, right in zip(mine, other, strict=True):
        if left.dtype.kind in "biu":
            np.testing.assert_array_equal(left, right)
        else:
            tolerance = 3e-2 if left.dtype.itemsize == 2 else 2e-4
            left, right = left.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", jax_trainers.NAMES)
def test_simulated(name: str, jaxs: Results, trainers: dict[str, jax_trainers.Trainer]) -> None:
    state, step, shape = trainers[name]
    simulated = spmd.jax.simulate(step, axes={jax_trainers.AXIS: COUNT})
    given = jax_trainers.batches(shape, COUNT)
    agree(jax_trainers.trained(simulated, jax_trainers.stacked(state, COUNT), given), jaxs[name])


def test_on_ranks(jaxs: Results, tmp_path: Path) -> None:
    launch = ("-m", "launch", "launch", "-n", str(COUNT), "--", sys.executable)
    run(tmp_path / "results", "ranks", before=launch)
    for rank in range(COUNT):
        mine: Results = pickle.loads((tmp_path / f"results-{rank}").read_bytes())
        assert list(mine) == jax_trainers.ON_RANKS
        for name, leaves in mine.items():
            agree(leaves, [leaf[rank] for leaf in jaxs[name]])
