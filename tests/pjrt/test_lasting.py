"""A day's work of calls, compilations and buffers leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "lasting_programs.py"


def kilobytes_after(calls: int, compilations: int) -> int:
    environment = {**os.environ, "JAX_PLATFORMS": "spmd"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(SCRIPT), str(calls), str(compilations)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


def test_no_handle_program_or_buffer_is_left_but_the_client() -> None:
    kilobytes_after(2000, 30)


@pytest.mark.slow
def test_memory_is_flat() -> None:
    """What is kept of programs that were compiled before, such as the meanings of their attributes, has a bound."""
    assert kilobytes_after(1_000_000, 10_000) < 64_000
