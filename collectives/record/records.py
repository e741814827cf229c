"""Location of the recordings of processes (`collectives.record.recorder`)."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

RECORDS_VARIABLE = "COLLECTIVE_RECORDS"
#: Prefix of the file names, before the rank: the ``--prefix`` of PyTorch's analyzer.
PREFIX = "rank_"
#: Name of the file in the folder of reports by which a launcher requests recordings of all ranks.
REQUEST = "record"
_FOLDERS = 20  # number of jobs whose recordings are kept
_JOB_VARIABLES = ("PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID")


def folder() -> Path | None:
    """Return the folder of recordings: COLLECTIVE_RECORDS, or a temporary folder; None if the variable is empty."""
    named = os.environ.get(RECORDS_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    job = next((os.environ[name] for name in _JOB_VARIABLES if name in os.environ), str(os.getppid()))
    return folder_of(job)


def folder_of(job: str) -> Path:
    """Return the temporary folder for the recordings of a job."""
    return _own() / re.sub(r"[^\w.-]", "-", job)


def folder_of_launcher() -> Path:
    """Return the folder for the job that this process launches."""
    return folder_of(f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def _own() -> Path:
    return Path(tempfile.gettempdir()) / f"spmd-records-{os.getuid()}"


def advice(written: Path | None) -> str:
    """Return the line that names the folder written to; "" for None."""
    return "" if written is None else f"what each rank did last: spmd diagnose {written}"


def make(folder: Path) -> None:
    """Make the folder of a job and remove those of the oldest jobs; PermissionError if another user owns the parent."""
    if folder.parent != _own():
        folder.mkdir(parents=True, exist_ok=True)
        return
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    status = folder.parent.lstat()
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{folder.parent} belongs to another user")
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        jobs = sorted(folder.parent.iterdir(), key=lambda path: path.lstat().st_mtime)
        for path in jobs[:-_FOLDERS]:
            shutil.rmtree(path, ignore_errors=True)


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically with respect to concurrent readers."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)
