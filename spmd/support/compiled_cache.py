"""An on-disk cache of compiled object files and programs, keyed by what they were compiled from.

The folder is `$SPMD_CACHE_DIR`, or `spmd` in the user's cache folder; an empty `$SPMD_CACHE_DIR` disables the
cache. Its entries are run as code, so only the user may own it and write to it; otherwise it is not used. An entry is
written atomically, carries a checksum, and is ignored when damaged. The least recently used entries are removed when
the total exceeds a bound. No failure here fails a program.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import stat
import tempfile
import time
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_MAGIC = b"spmd entry 1\n"
_DIGEST = hashlib.sha256().digest_size
_SUFFIX = ".entry"
#: Temporary files, which a killed writer leaves behind; they are stale after this many seconds.
_UNFINISHED, _UNFINISHED_BEFORE = ".tmp", "tmp????????"
_STALE = 600
#: The most bytes of all entries, and the bytes that remain after eviction.
LIMIT = 512 << 20
_LEFT = LIMIT // 2
#: One entry in so many, by its key, is followed by a check of the folder's size: many processes write few entries each.
_BETWEEN_CHECKS = 256


@dataclass(frozen=True)
class Usage:
    """The number of entries of a cache, and the bytes of its files."""

    entries: int
    size: int


class Cache:
    """The entries in a folder: bytes by key, which is the file's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> bytes | None:
        """The entry of `key`; None if there is none or it is damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = _decoded(data)
        with contextlib.suppress(OSError):
            os.utime(path)  # marks it as the most recently used
        return content

    def put(self, key: str, content: bytes) -> None:
        """Stores an entry; failures are ignored."""
        with contextlib.suppress(OSError):
            descriptor, name = tempfile.mkstemp(dir=self.folder, suffix=_UNFINISHED)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(content).digest() + content)
                os.replace(name, self._path(key))
            except BaseException:
                os.unlink(name)
                raise
            if zlib.crc32(key.encode()) % _BETWEEN_CHECKS == 0:
                self._shrink()

    def usage(self) -> Usage:
        """The number and size of the folder's entries; zero where there is no folder."""
        files = self._files()
        sizes = [status.st_size for _, status in files]
        return Usage(sum(path.endswith(_SUFFIX) for path, _ in files), sum(sizes))

    def clear(self) -> None:
        """Removes every entry."""
        for path, _ in self._files():
            _remove(path)

    def _path(self, key: str) -> Path:
        return self.folder / (key + _SUFFIX)

    def is_private(self) -> bool:
        """Whether only the user can write to the folder, which is created if missing."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
        except OSError:
            return False
        return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _files(self) -> list[tuple[str, os.stat_result]]:
        """The path of each entry and of each temporary file, by the names of this version and of earlier ones."""
        files = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.folder) as found:
            for file in found:
                if file.name.endswith((_SUFFIX, _UNFINISHED)) or fnmatch.fnmatchcase(file.name, _UNFINISHED_BEFORE):
                    with contextlib.suppress(OSError):  # another process may have removed it
                        files.append((file.path, file.stat()))
        return files

    def _shrink(self) -> None:
        files = self._files()
        entries = sorted((status.st_mtime, status.st_size, path) for path, status in files if path.endswith(_SUFFIX))
        stale = time.time() - _STALE
        for path, status in files:
            if not path.endswith(_SUFFIX) and status.st_mtime < stale:
                _remove(path)
        total = sum(size for _, size, _ in entries)
        if total <= LIMIT:
            return
        for _, size, path in entries:
            _remove(path)
            total -= size
            if total <= _LEFT:
                break


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@cache
def _cache_in(folder: Path) -> Cache:
    return Cache(folder)


def user_cache() -> Cache | None:
    """The user's cache; None where it is disabled, or others can write to its folder."""
    setting = os.environ.get("SPMD_CACHE_DIR")
    if setting == "":
        return None
    folder = Path(setting) if setting else _default_folder()
    if folder is None:
        return None
    kept_cache = _cache_in(folder)
    return kept_cache if kept_cache.is_private() else None


def _default_folder() -> Path | None:
    """`spmd` in the user's cache folder; None for a user without a home: neither $HOME nor a passwd entry."""
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(caches) / "spmd" if caches else Path.home() / ".cache" / "spmd"
    except RuntimeError:
        return None


def _decoded(data: bytes) -> bytes | None:
    start = len(_MAGIC) + _DIGEST
    content = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(content).digest() != data[len(_MAGIC) : start]:
        return None
    return content
