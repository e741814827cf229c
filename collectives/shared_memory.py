"""Shared memory between processes of one machine that leaves no file behind when they are killed.

On Linux unnamed files in memory (O_TMPFILE of open(2)), which others open by the descriptor's path in /proc. Elsewhere
POSIX shared memory objects, unlinked once all have opened them.
"""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from typing import Any

from collectives.system import IS_LINUX

#: The file system in memory.
FOLDER = "/dev/shm"


def create(length: int) -> tuple[int, str]:
    """Return a descriptor of `length` new bytes, and the name to open them by; OSError without enough memory."""
    if IS_LINUX:
        # Without a name nothing is left behind when a process is killed.
        descriptor = os.open(FOLDER, os.O_RDWR | os.O_TMPFILE, 0o600)
        os.posix_fallocate(descriptor, 0, length)
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"
    name = f"/spmd.{os.urandom(8).hex()}"
    descriptor = int(_objects().shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    os.ftruncate(descriptor, length)
    return descriptor, name


def attach(name: str) -> int:
    """Return a descriptor of the bytes that `create` named. OSError if they do not exist, as on another machine."""
    if IS_LINUX:
        return os.open(name, os.O_RDWR)
    return int(_objects().shm_open(name, os.O_RDWR, 0o600))


def forget(name: str) -> None:
    """Unlink the bytes that `create` named, after all processes have attached."""
    if not IS_LINUX:
        with contextlib.suppress(OSError, ImportError):
            _objects().shm_unlink(name)


def _objects() -> Any:
    """Return the POSIX functions that multiprocessing uses; ImportError if Python is built without them."""
    return import_module("_posixshmem")
