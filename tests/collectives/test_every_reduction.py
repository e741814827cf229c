"""Every reduction of every element type gives the definition's bits, between threads and over MPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectives.threads import run
from tests.collectives.every_reduction import DENSE_SIZES, DTYPES, faults
from tests.effort import some_slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_between_threads(size: int) -> None:
    assert run(size, lambda communicator: list(faults(communicator))) == [[]] * size


@pytest.mark.slow
def test_between_two_threads_at_every_size() -> None:
    assert run(2, lambda communicator: list(faults(communicator, DENSE_SIZES))) == [[]] * 2


@pytest.mark.parametrize("words", some_slow([[], ["dense"]], 1), ids=str)
def test_over_mpi_in_groups_of_two_three_and_five(words: list[str]) -> None:
    command = [sys.executable, "-m", "launch", "launch", "-n", "5", "--"]
    command += [sys.executable, "-m", "tests.collectives.every_reduction", *words]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=400
    )
    assert (done.returncode, done.stdout) == (0, f"{len(DTYPES)} element types agree\n"), done.stdout + done.stderr
