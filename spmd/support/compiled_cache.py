"""What compiling made, kept on disk between runs by what it was made from: object files, and whole programs.

The folder is `$SPMD_CACHE_DIR`, or `spmd` in the user's cache folder; an empty `$SPMD_CACHE_DIR` keeps nothing. What
lies in it is run as code, so it must belong to the user, and nobody else may write there; otherwise it is left alone.
An entry appears whole or not at all, carries a checksum, and is ignored when damaged. What was not used for longest
goes first when the entries grow beyond a bound. No failure here fails a program.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_MAGIC = b"spmd entry 1\n"
_DIGEST = hashlib.sha256().digest_size
_SUFFIX = ".entry"
#: What is being written, and stays where the writer is killed; after so many seconds nobody is writing it any more.
_UNFINISHED = ".tmp"
_STALE = 600
#: Bytes that all entries may take together, and of which so many are left when they took more.
LIMIT = 512 << 20
_LEFT = LIMIT // 2
#: Entries written by this process between two looks at the folder's size.
_PUTS = 256


@dataclass(frozen=True)
class Usage:
    """How many entries a cache has, and the bytes of its files."""

    entries: int
    size: int


class Cache:
    """The entries in a folder: bytes by keys, which are names of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._puts = 0

    def get(self, key: str) -> bytes | None:
        """The entry of `key`, if there is a sound one."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = _decoded(data)
        with contextlib.suppress(OSError):
            os.utime(path)  # read now: it goes last
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keeps an entry, if that can be done."""
        with contextlib.suppress(OSError):
            descriptor, name = tempfile.mkstemp(dir=self.folder, suffix=_UNFINISHED)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(content).digest() + content)
                os.replace(name, self._path(key))
            except BaseException:
                os.unlink(name)
                raise
            if self._puts % _PUTS == 0:
                self._shrink()
            self._puts += 1

    def usage(self) -> Usage:
        """What the folder holds; nothing where there is none."""
        sizes = [entry.st_size for _, entry in self._entries()]
        return Usage(len(sizes), sum(sizes) + sum(entry.st_size for _, entry in self._unfinished()))

    def clear(self) -> None:
        """Removes every entry."""
        for path, _ in (*self._entries(), *self._unfinished()):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / (key + _SUFFIX)

    def is_private(self) -> bool:
        """Whether the folder, made if need be, is the user's alone to write."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
        except OSError:
            return False
        return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        return self._files("*" + _SUFFIX)

    def _unfinished(self) -> list[tuple[Path, os.stat_result]]:
        """What is being written, or was when its writer was killed; earlier versions named such files otherwise."""
        return [*self._files("*" + _UNFINISHED), *self._files("tmp????????")]

    def _files(self, pattern: str) -> list[tuple[Path, os.stat_result]]:
        files = []
        for path in self.folder.glob(pattern) if self.folder.is_dir() else ():
            with contextlib.suppress(OSError):  # somebody else may remove it meanwhile
                files.append((path, path.stat()))
        return files

    def _shrink(self) -> None:
        for path, status in self._unfinished():
            if time.time() - status.st_mtime > _STALE:
                path.unlink(missing_ok=True)
        entries = self._entries()
        total = sum(entry.st_size for _, entry in entries)
        if total <= LIMIT:
            return
        for path, entry in sorted(entries, key=lambda each: each[1].st_mtime):
            path.unlink(missing_ok=True)
            total -= entry.st_size
            if total <= _LEFT:
                break


@cache
def _cache_in(folder: Path) -> Cache:
    return Cache(folder)


def user_cache() -> Cache | None:
    """The user's cache; None where none is wanted, or its folder is not the user's alone."""
    told = os.environ.get("SPMD_CACHE_DIR")
    if told == "":
        return None
    folder = Path(told) if told else _default_folder()
    if folder is None:
        return None
    kept_cache = _cache_in(folder)
    return kept_cache if kept_cache.is_private() else None


def _default_folder() -> Path | None:
    """`spmd` in the user's cache folder; None for a user without a home: neither $HOME nor a passwd entry."""
    told = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(told) / "spmd" if told else Path.home() / ".cache" / "spmd"
    except RuntimeError:
        return None


def _decoded(data: bytes) -> bytes | None:
    start = len(_MAGIC) + _DIGEST
    content = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(content).digest() != data[len(_MAGIC) : start]:
        return None
    return content
