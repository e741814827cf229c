"""A function of spmd.jax.jit is a step of a job that outlives its ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

from launch import elastic, mpirun

pytest.importorskip("jax")
_launcher = mpirun.find()
pytestmark = pytest.mark.skipif(
    _launcher is None or elastic.refusal(_launcher) is not None, reason="this MPI cannot go on without lost ranks"
)
WORKER = Path(__file__).with_name("jax_worker.py")
LAUNCH = [sys.executable, "-m", "launch", "launch", "--elastic", "-n", "3", "--", sys.executable, str(WORKER)]


def test_a_step_of_jax_goes_on_with_fewer_ranks() -> None:
    done = subprocess.run(LAUNCH, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ranks, off by 0.041")
    assert "lost rank 1" in done.stderr
    assert "2 ranks go on with step 11" in done.stderr
