"""The files in which processes leave what they have recorded (`collectives.recorder`): where, and who wants them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

RECORDS_VARIABLE = "COLLECTIVE_RECORDS"
#: What the files are called before the rank: what PyTorch's analyzer takes for its ``--prefix``.
PREFIX = "rank_"
#: What a launcher leaves in its folder of reports to have all ranks write.
REQUEST = "record"
_FOLDERS = 20  # of jobs, that are kept
_JOB_VARIABLES = ("PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID")


def folder() -> Path | None:
    """Where records go: what the variable COLLECTIVE_RECORDS says, or among the temporary files; None where nowhere."""
    named = os.environ.get(RECORDS_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    job = next((os.environ[name] for name in _JOB_VARIABLES if name in os.environ), str(os.getppid()))
    return folder_of(job)


def folder_of(job: str) -> Path:
    """Where the records of a job go of which the environment says nothing."""
    return _own() / re.sub(r"[^\w.-]", "-", job)


def folder_of_launcher() -> Path:
    """Where those of the job go that this process launches."""
    return folder_of(f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def _own() -> Path:
    return Path(tempfile.gettempdir()) / f"spmd-records-{os.getuid()}"


def advice(written: Path | None) -> str:
    """The line that tells of the folder that was written to, if one was."""
    return "" if written is None else f"what each rank did last: spmd diagnose {written}"


def make(folder: Path) -> None:
    """Makes the folder of a job; those of the oldest jobs go. OSError where it lies in one of somebody else."""
    if folder.parent != _own():
        folder.mkdir(parents=True, exist_ok=True)
        return
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    status = folder.parent.lstat()
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{folder.parent} is somebody else's")
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        jobs = sorted(folder.parent.iterdir(), key=lambda path: path.lstat().st_mtime)
        for path in jobs[:-_FOLDERS]:
            shutil.rmtree(path, ignore_errors=True)


def replace(path: Path, content: bytes) -> None:
    """Writes a file all at once, for those who look at any moment."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)
