"""MPI's own launcher, without `spmd launch`."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from launch import mpirun
from spmd.support import machine
from tests.clocks import WATCHDOG_SECONDS

ROOT = Path(__file__).parents[1]


def own_session(folder: Path) -> dict[str, str]:
    """Return the variable that puts the files of Open MPI's launcher into `folder`.

    Elsewhere they are named by its process id alone, and a launcher cannot start where another test's was killed that
    had the same one (`launch.job`).
    """
    return {mpirun.SESSION_VARIABLE: str(folder)}


def run(
    program: str, ranks: int, folder: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a Python program on ranks that share the machine; its file and the launcher's lie in `folder`."""
    launcher = mpirun.find()
    if launcher is None or launcher.kind == "srun":
        pytest.skip("ranks are started with mpirun here")
    script = folder / "program.py"
    script.write_text(program)
    root = ["--allow-run-as-root"] * machine.is_root()
    options = [*root, "--oversubscribe", "--bind-to", "none"] if launcher.kind == "openmpi" else []
    return subprocess.run(
        [launcher.path, *options, "-n", str(ranks), sys.executable, str(script)],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), **own_session(folder)},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
