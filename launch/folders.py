"""The temporary folders of a job, which are removed even if its launcher is killed.

A launcher holds a lock on a file in each of its folders; the system releases it when the launcher exits. Creating a
folder first removes the same user's folders whose lock is free: their launchers were killed.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spmd.runtime.notes import FOLDER_PREFIX

_LOCK = ".launcher"


@contextlib.contextmanager
def job_folder(parent: Path) -> Iterator[Path]:
    """Create a private folder in `parent`, removed at the end; also remove those of killed launchers."""
    remove_abandoned(parent)
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir=parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        unfinished = folder / f"{_LOCK}.part"
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: there the folder is not recovered
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                unfinished.rename(folder / _LOCK)
            yield folder
        finally:
            os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders in `parent` whose launchers exited without removing them."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            status = folder.lstat()
            if status.st_uid == os.geteuid() and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Return whether a launcher held a lock there and no longer does."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
