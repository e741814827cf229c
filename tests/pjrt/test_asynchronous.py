"""Calls of programs that take long return at once; values, errors and memory come in the order of the calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]


def test_calls_return_before_their_programs_have_run() -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "spmd"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    script = Path(__file__).parent / "asynchronous_programs.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stdout) == (0, "done 3.0\n"), done.stderr[-3000:]
