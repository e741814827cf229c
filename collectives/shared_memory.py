"""Memory that processes of one machine share, without a name that stays: whenever they are killed, nothing is left.

Linux has files in memory that never had a name (O_TMPFILE of open(2)), which others open by a descriptor's place in
/proc. Elsewhere it is a shared memory object of POSIX, whose name goes once all have opened it.
"""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from typing import Any

from collectives.system import IS_LINUX

#: Where files are memory.
FOLDER = "/dev/shm"


def create(length: int) -> tuple[int, str]:
    """A descriptor of `length` new bytes, and what others open them by. OSError where there is no room for them."""
    if IS_LINUX:
        # It never has a name, so that nothing stays of it whenever a process is killed.
        descriptor = os.open(FOLDER, os.O_RDWR | os.O_TMPFILE, 0o600)
        os.posix_fallocate(descriptor, 0, length)
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"
    name = f"/spmd.{os.urandom(8).hex()}"
    descriptor = int(_objects().shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    os.ftruncate(descriptor, length)
    return descriptor, name


def attach(name: str) -> int:
    """A descriptor of the bytes that `create` told of. OSError where they are not to be had, as on another machine."""
    if IS_LINUX:
        return os.open(name, os.O_RDWR)
    return int(_objects().shm_open(name, os.O_RDWR, 0o600))


def forget(name: str) -> None:
    """Once all have opened them: nobody opens them any more."""
    if not IS_LINUX:
        with contextlib.suppress(OSError, ImportError):
            _objects().shm_unlink(name)


def _objects() -> Any:
    """The functions of POSIX, which multiprocessing stands on; ImportError where Python is built without them."""
    return import_module("_posixshmem")
