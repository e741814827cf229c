"""Notes in launchers' folders of reports, by which commands of the same user find running jobs."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectives.processes import start_of

#: Prefix of the folders of reports among the temporary files.
FOLDER_PREFIX = "spmd-launch-"
_LARGEST = 1 << 16
#: Errors of reading a file that is gone, or that is not a note.
FOREIGN = (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError)


def notes_of_running_jobs(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (folder, content) of each file `name` written by a launcher of this user that is still running.

    The temporary folder is shared by all users: only folders that this user alone can write to are read. The content
    has `process`, the launcher, and its other fields.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(*FOREIGN):  # removed meanwhile, or damaged
            if _is_private(folder):
                content = read_note(folder / name)
                process = content["process"]
                if type(process) is int and process > 0 and content["started"] == start_of(process):
                    os.kill(process, 0)
                    yield folder, content


def read_note(path: Path) -> dict[str, Any]:
    """Return the content of a note; one of `FOREIGN` if it is no regular file, or not a dictionary."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is not a regular file")
        content = json.loads(file.read(_LARGEST))
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a dictionary")
    return content


def _is_private(folder: Path) -> bool:
    """Return whether `folder` is this user's, not a link, and not writable by others."""
    status = folder.lstat()
    return status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022
