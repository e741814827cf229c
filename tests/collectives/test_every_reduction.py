"""Every reduction of every element type gives the definition's bits, between threads and over MPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectives.threads import run
from tests.collectives.every_reduction import DTYPES, WHOLE, faults
from tests.effort import some_slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_between_threads(size: int) -> None:
    assert run(size, lambda communicator: list(faults(communicator))) == [[]] * size


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_between_threads_at_every_size(size: int) -> None:
    assert run(size, lambda communicator: list(faults(communicator, WHOLE))) == [[]] * size


@pytest.mark.parametrize("ranks_and_words", some_slow(["3", "5 whole"], 1))
def test_over_mpi_in_groups_of_two_and_of_all(ranks_and_words: str) -> None:
    """Five ranks have a group of three, too."""
    ranks, *words = ranks_and_words.split()
    command = [sys.executable, "-m", "launch", "launch", "-n", ranks, "--"]
    command += [sys.executable, "-m", "tests.collectives.every_reduction", *words]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=400
    )
    assert (done.returncode, done.stdout) == (0, f"{len(DTYPES)} element types agree\n"), done.stdout + done.stderr
