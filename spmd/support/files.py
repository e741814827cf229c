"""Atomic writing of files: a reader finds the old content or the new one, never a part of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from typing import IO

from spmd.errors import OutputError


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file whose content becomes that of `path` when the block ends without an exception.

    It is written beside `path` and renamed; an existing file keeps its mode, and its content when writing fails. A path
    that is not a regular file (a pipe, a device) is written to directly, as is a file in a folder without write access.
    Raises OutputError, an OSError that names `path`.
    """
    target = os.path.realpath(path)
    try:
        descriptor, unfinished = _open(target)
    except OSError as error:
        raise OutputError(fspath(path), error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if unfinished:
            os.replace(unfinished, target)
    except BaseException as error:
        if unfinished:
            with suppress(OSError):
                os.unlink(unfinished)
        if isinstance(error, OSError) and error.filename in (None, unfinished):
            raise OutputError(fspath(path), error) from None
        raise


def write_file(path: str | PathLike[str], data: bytes) -> None:
    """Makes `data` the content of the file at `path`, whole. Raises OutputError, an OSError that names `path`."""
    with writing(path) as file:
        file.write(data)


def _open(target: str) -> tuple[int, str]:
    """A descriptor to write to, and the name of the file that is to replace `target`: None if it is `target` itself."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None:
        existing = os.open(target, os.O_WRONLY | os.O_CLOEXEC)  # fails without write permission
        if not stat.S_ISREG(mode):
            return existing, ""
        os.close(existing)
    folder, name = os.path.split(target)
    unfinished = os.path.join(folder, f".{name[:200]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except PermissionError:
        if mode is None:
            raise
        return os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), ""
    if mode is not None:
        os.fchmod(descriptor, stat.S_IMODE(mode))
    return descriptor, unfinished
