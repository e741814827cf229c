"""Calls of programs that take long return at once; values, errors and memory come in the order of the calls."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str, launch: Sequence[str] = (), **settings: str) -> str:
    """What a script prints, with spmd as JAX's client."""
    environment = {**os.environ, "JAX_PLATFORMS": "spmd", **settings}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    command = [sys.executable, *launch, str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_calls_return_before_their_programs_have_run() -> None:
    assert run("asynchronous_programs.py") == "done 3.0\n"


TWO_RANKS = ("-m", "launch", "launch", "-n", "2", "--", sys.executable)


@pytest.mark.parametrize("devices", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_other_collectives_come_after_those_of_calls_before(devices: int) -> None:
    found = run("queued_on_ranks.py", "threads", launch=TWO_RANKS, SPMD_NUM_DEVICES=str(devices))
    assert found.count("in order") == 2


@pytest.mark.slow
def test_calls_run_their_programs_where_mpi_serves_one_thread() -> None:
    found = run("queued_on_ranks.py", "one thread", launch=TWO_RANKS, MPI4PY_RC_THREAD_LEVEL="serialized")
    assert found.count("in order") == 2
