"""Every reduction of every element type gives the definition's bits, between threads and over MPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectives.threads import run
from tests.collectives.every_reduction import DTYPES, faults

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_between_threads(size: int) -> None:
    assert run(size, lambda communicator: list(faults(communicator))) == [[]] * size


def test_over_mpi_in_groups_of_two_three_and_five() -> None:
    command = [sys.executable, "-m", "launch", "launch", "-n", "5", "--"]
    command += [sys.executable, "-m", "tests.collectives.every_reduction"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=400
    )
    assert (done.returncode, done.stdout) == (0, f"{len(DTYPES)} element types agree\n"), done.stdout + done.stderr
