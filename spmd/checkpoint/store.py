"""The folder of checkpoints: names, the writer's lock, removal of leftovers, pruning."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from spmd.checkpoint import manifest as manifests
from spmd.checkpoint.manifest import DATA_FOLDER, Manifest
from spmd.checkpoint.safetensors import PartFile, naming
from spmd.errors import CheckpointError, DamagedCheckpointError

_MANIFEST = re.compile(r"step-(\d{12,})\.json")
_UNFINISHED = re.compile(r"\.step-\d{12,}-[0-9a-f]{16}\.json")
_LOCK = ".lock"
_LOCK_SECONDS = 60.0

#: Checkpoints verified by this process: sizes and times of their files when they were verified.
_whole: dict[Path, tuple[tuple[int, int], ...]] = {}


def manifest_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:012d}.json"


def steps(folder: str | os.PathLike[str]) -> list[int]:
    """Return the steps of the checkpoints in `folder`, newest first, including damaged ones; none without a folder."""
    if not Path(folder).is_dir():
        return []
    numbers = [int(match[1]) for path in Path(folder).iterdir() if (match := _MANIFEST.fullmatch(path.name))]
    return sorted(numbers, reverse=True)


def remove(folder: str | os.PathLike[str], step: int) -> None:
    """Remove one checkpoint, if it exists. To be called by one process."""
    path = manifest_path(Path(folder).absolute(), step)
    path.unlink(missing_ok=True)  # first: files without a manifest are leftovers
    _whole.pop(path, None)
    for data in path.parent.glob(f"{path.stem}-*"):
        shutil.rmtree(data, ignore_errors=True)


class Lock:
    """The lock of the process that writes into a folder; released when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Acquire the lock; CheckpointError after a minute."""
        self._descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        #: Whether the lock is exclusive; False on file systems without locks.
        self.is_sure = True
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    self.is_sure = False
                    return
                if time.monotonic() > deadline:
                    os.close(self._descriptor)
                    raise CheckpointError(f"{folder}: another process has been writing there for a minute") from error
            time.sleep(0.01)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def begin(folder: Path, step: int) -> tuple[Lock, Path]:
    """Return the lock of `folder`, created if absent, and a new folder in it for the files of a checkpoint.

    Leftovers of writers that died are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder)
    try:
        if lock.is_sure:
            remove_leftovers(folder)
        data = folder / f"step-{step:012d}-{secrets.token_hex(8)}"
        data.mkdir()
    except BaseException:
        lock.release()
        raise
    return lock, data


def commit(folder: Path, manifest: Manifest) -> Path:
    """Commit a manifest whose files are on disk by renaming it to its name, replacing one of the same step."""
    final = manifest_path(folder, manifest.step)
    unfinished = folder / f".{manifest.folder}.json"
    flush_folder(folder / manifest.folder)
    try:
        with naming(unfinished), unfinished.open("xb") as stream:
            stream.write(manifests.encode(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(final)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    flush_folder(folder)
    _whole[final] = _stamp(final, manifest)
    return final


def remove_leftovers(folder: Path) -> None:
    """Remove unfinished and unreferenced files. Requires the lock.

    Files of a manifest that cannot be read are kept, so that they can be recovered.
    """
    spoken: dict[str, str | None] = {}
    for path in folder.iterdir():
        if match := DATA_FOLDER.fullmatch(path.name):
            step = match[1]
            if step not in spoken:
                spoken[step] = _data_of(folder / f"{step}.json")
            if spoken[step] is not None and spoken[step] != path.name:
                shutil.rmtree(path, ignore_errors=True)
        elif _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _data_of(manifest: Path) -> str | None:
    """Return the folder that a manifest refers to: "" if there is no manifest, None if it is damaged."""
    if not manifest.exists():
        return ""
    try:
        return manifests.read(manifest).folder
    except DamagedCheckpointError:
        return None


def prune(folder: Path, keep: int, written: int) -> None:
    """Remove all but the newest `keep` undamaged checkpoints, which include step `written`.

    Damaged ones do not count: those older than all kept ones are removed, others stay.
    """
    kept = 1
    for step in steps(folder):
        if step == written:
            continue
        if kept >= keep:
            remove(folder, step)
        elif is_whole(folder, step):
            kept += 1


def is_whole(folder: Path, step: int) -> bool:
    """Return whether every byte is as written; files verified by this process and unmodified are not read again."""
    path = manifest_path(folder, step)
    try:
        manifest = manifests.read(path)
        stamp = _stamp(path, manifest)
        if _whole.get(path) != stamp:
            verify(folder, manifest, range(len(manifest.parts)))
            _whole[path] = stamp
    except (CheckpointError, OSError):
        return False
    return True


def verify(folder: Path, manifest: Manifest, parts: range) -> None:
    """Verify the files numbered `parts`; DamagedCheckpointError names the first that is damaged."""
    for index in parts:
        with PartFile(folder / manifest.folder, manifest.parts[index], manifest.names) as file:
            file.verify()


def _stamp(path: Path, manifest: Manifest) -> tuple[tuple[int, int], ...]:
    files = [path, *(path.parent / manifest.folder / part.file for part in manifest.parts)]
    statuses = [file.stat() for file in files]
    return tuple((status.st_size, status.st_mtime_ns) for status in statuses)


def flush_folder(folder: Path) -> None:
    """Flush the entries of `folder` to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
