"""The course of a write: parts, then the manifest, synchronously or in a background thread."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spmd.checkpoint import manifest as manifests
from spmd.checkpoint import safetensors, store
from spmd.checkpoint.blocks import Box
from spmd.checkpoint.manifest import ArrayEntry, Manifest, Scalars
from spmd.checkpoint.processes import CheckpointRanks
from spmd.checkpoint.safetensors import FilePart
from spmd.errors import CheckpointError, OutputError
from spmd.support.arrays import Array, Tree

_POLL_SECONDS = 0.005
#: Maximum bytes of the reason of a failure that other processes receive.
_REASON_BYTES = 2048


class Pending:
    """A checkpoint that is being written in the background (`save(..., wait=False)`)."""

    def __init__(self, path: Path, write: Callable[[], object], abandoned: threading.Event) -> None:
        self.path = path
        self._abandoned = abandoned
        self._error: BaseException | None = None
        # Not a daemon: the interpreter waits at exit for the checkpoint.
        self._thread = threading.Thread(target=self._run, args=(write,), name=f"checkpoint {path.name}")
        self._thread.start()

    def _run(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BaseException as error:
            self._error = error

    def __repr__(self) -> str:
        return f"<checkpoint {self.path}, {'done' if self.done else 'being written'}>"

    @property
    def done(self) -> bool:
        """Whether it is committed or has failed."""
        return not self._thread.is_alive()

    def wait(self) -> Path:
        """Return the manifest's path once the checkpoint is committed, or raise the error that it failed with."""
        self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self.path

    def failure(self) -> BaseException | None:
        """Wait for the end, and return the error, which `wait` or `tell` still reports."""
        self._thread.join()
        return self._error

    def abandon(self) -> None:
        """Cancel the write, unless it is about to be committed, because a process that takes part is lost."""
        self._abandoned.set()
        self._thread.join()

    def tell(self) -> None:
        """Print an error that `wait` has not raised."""
        if self._error is not None and not self._abandoned.is_set():
            print(f"{self.path}: the checkpoint was not written: {self._error}", file=sys.stderr)


#: Writes in progress by folder; later operations on the folder wait for them.
_pending: dict[Path, Pending] = {}


def settle(folder: Path) -> None:
    """Wait for this process's write into `folder`, and raise its error."""
    pending = _pending.pop(folder, None)
    if pending is not None:
        pending.wait()


def failures() -> list[BaseException]:
    """Wait for all writes of this process, and return their errors."""
    errors = [pending.failure() for pending in list(_pending.values())]
    return [error for error in errors if error is not None]


def abandon() -> None:
    """Cancel this process's writes, because other participants are lost. Not collective."""
    while _pending:
        _, pending = _pending.popitem()
        pending.abandon()


@atexit.register
def _tell_failures() -> None:
    for pending in _pending.values():
        pending.tell()


@dataclass
class Writing:
    """A checkpoint in progress, as seen by one process. Process 0 holds the lock."""

    processes: CheckpointRanks
    folder: Path
    step: int
    keep: int | None
    structure: Tree
    leaves: tuple[ArrayEntry, ...]
    scalars: tuple[Scalars, ...]
    blocks: Sequence[tuple[int, Box, Array]]
    data: Path
    lock: store.Lock | None
    abandoned: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def begin(
        cls,
        processes: CheckpointRanks,
        folder: Path,
        step: int,
        keep: int | None,
        structure: object,
        leaves: tuple[ArrayEntry, ...],
        scalars: tuple[Scalars, ...],
        blocks: Sequence[tuple[int, Box, Array]],
    ) -> Writing:
        """Acquire the lock, remove leftovers, and create the folder that all write into, on process 0. Collective."""
        taken: list[store.Lock] = []

        def take() -> tuple[store.Lock, Path]:
            with _writing(folder):
                lock, data = store.begin(folder, step)
            taken.append(lock)
            return lock, data

        try:
            lock, mine = processes.on_first(take) or (None, None)
            data = processes.all_gather(mine)[0]
        except BaseException:
            for lock in taken:
                lock.release()
            raise
        assert data is not None
        return cls(processes, folder, step, keep, structure, leaves, scalars, blocks, data, lock)

    def together(self) -> Path:
        """Write and commit before returning. Collective."""
        try:
            part = self.processes.agree(lambda: self._write_part(aside=True))
            parts = self.processes.all_gather(part)
            self.processes.on_first(lambda: self._commit(parts))
        except BaseException:
            self._give_up()
            raise
        finally:
            self._unlock()
        return store.manifest_path(self.folder, self.step)

    def apart(self) -> Pending:
        """Write in a background thread. Ranks synchronize by files, so that these threads send no messages."""
        try:
            self.processes.agree(self._join)
        except BaseException:
            self._give_up()
            self._unlock()
            raise
        write = self._write_as_first if self.processes.rank == 0 else self._write_as_other
        pending = Pending(store.manifest_path(self.folder, self.step), write, self.abandoned)
        _pending[self.folder] = pending
        return pending

    def _write_part(self, *, aside: bool = False) -> FilePart | None:
        if not self.blocks:
            return None
        rank, size = self.processes.rank, self.processes.size
        names = _file_names([self.leaves[leaf].name for leaf, _, _ in self.blocks])
        blocks = [(leaf, name, box, array) for (leaf, box, array), name in zip(self.blocks, names, strict=True)]
        with _writing(self.data):
            return safetensors.write(self.data / f"part-{rank:05d}-of-{size:05d}.safetensors", blocks, aside=aside)

    def _commit(self, parts: Sequence[FilePart | None]) -> None:
        written = tuple(part for part in parts if part is not None)
        manifest = Manifest(int(self.step), self.data.name, self.structure, self.leaves, written, self.scalars)
        with _writing(self.folder):
            store.commit(self.folder, manifest)
        assert self.lock is not None
        if self.lock.is_sure:
            store.remove_leftovers(self.folder)  # also the files of a replaced checkpoint of the step
        if self.keep is not None:
            store.prune(self.folder, self.keep, self.step)

    def _give_up(self) -> None:
        if self.processes.rank == 0 and not self._is_committed():
            shutil.rmtree(self.data, ignore_errors=True)

    def _is_committed(self) -> bool:
        try:
            return manifests.read(store.manifest_path(self.folder, self.step)).folder == self.data.name
        except CheckpointError:
            return False

    def _unlock(self) -> None:
        if self.lock is not None:
            self.lock.release()

    # --- background writes ---
    #
    # Each process has a file `writing-<rank>` in the folder, created before the threads start and removed when it
    # leaves: on failure, or after the commit. A receipt describes what it has written. A process that fails writes the
    # reason to its file `writing-<rank>`, which has space reserved for it, and renames it to `failed-<rank>-<errno>`:
    # both work on a full disk. All others leave with that reason, and the last one removes the folder, so that none
    # blocks.

    def _receipt(self, rank: int) -> Path:
        return self.data / f"receipt-{rank:05d}.json"

    def _mark(self, rank: int) -> Path:
        return self.data / f"writing-{rank:05d}"

    def _join(self) -> None:
        """Create this process's marker file, with space for a reason if the disk has any."""
        mark = self._mark(self.processes.rank)
        with _writing(self.data):
            mark.touch()
        with contextlib.suppress(OSError):
            mark.write_bytes(bytes(_REASON_BYTES))

    def _write_as_first(self) -> None:
        try:
            parts = [self._write_part()]
            for rank in range(1, self.processes.size):
                self._wait_for(rank)
                part = json.loads(self._receipt(rank).read_bytes())
                parts.append(None if part is None else manifests.decode_part(part))
                self._receipt(rank).unlink()
            self._commit(parts)
        except BaseException as error:
            self._tell(error)
            raise
        finally:
            self._leave()
            self._unlock()

    def _wait_for(self, rank: int) -> None:
        """Wait for the receipt of process `rank`; CheckpointError if it will not come."""
        while True:
            # Both are checked before the receipt, which is written before either changes.
            writes, failure = self._mark(rank).exists(), self.processes.failure_of(rank)
            if self._receipt(rank).exists():
                return
            self._raise_failure()
            if not self.data.exists():
                raise CheckpointError(f"{self.data}: removed while the checkpoint was being written")
            if failure is not None:
                raise self._lost(rank) from failure
            if not writes:
                raise CheckpointError(f"process {rank} could not write its part, nor say why: {self.data}")
            self._pause()

    def _write_as_other(self) -> None:
        try:
            part = self._write_part()
            self._hand_in(None if part is None else manifests.encode_part(part))
            while not self._is_committed():
                writes, failure = self._mark(0).exists(), self.processes.failure_of(0)
                self._raise_failure()
                if (failure is not None or not writes) and not self._is_committed():
                    if failure is not None:
                        raise self._lost(0) from failure
                    raise self._failed_elsewhere(" on another process") from self.processes.failure_of_any()
                self._pause()
        except BaseException as error:
            self._tell(error)
            raise
        finally:
            self._leave()

    def _pause(self) -> None:
        if self.abandoned.wait(_POLL_SECONDS):
            raise CheckpointError(f"{self.folder}: the checkpoint of step {self.step} lost a process that wrote it")

    def _raise_failure(self) -> None:
        """Raise the error of another process, if one has failed."""
        for path in self.data.glob("failed-*"):
            _, rank, errno = path.name.split("-")
            reason = path.read_bytes().rstrip(b"\0").decode(errors="replace") or os.strerror(int(errno))
            raise self._failed_elsewhere(f": process {int(rank)}: {reason}")

    def _tell(self, error: BaseException) -> None:
        """Report this process's error to the others, unless another has failed first."""
        if isinstance(error, _FailedElsewhere) or self._is_committed():
            return
        rank, errno = self.processes.rank, (isinstance(error, OSError) and error.errno) or 0
        mark = self._mark(rank)
        with contextlib.suppress(OSError), mark.open("r+b") as stream:
            stream.write(str(error).encode()[:_REASON_BYTES])
        with contextlib.suppress(OSError):
            mark.rename(self.data / f"failed-{rank:05d}-{errno}")

    def _leave(self) -> None:
        """Remove this process's marker; the last process to leave removes the folder of a failed checkpoint."""
        with contextlib.suppress(OSError):
            self._mark(self.processes.rank).unlink()
        if self._is_committed():
            return
        ranks = range(self.processes.size)
        if not any(self._mark(rank).exists() and self.processes.failure_of(rank) is None for rank in ranks):
            shutil.rmtree(self.data, ignore_errors=True)

    def _failed_elsewhere(self, why: str) -> CheckpointError:
        return _FailedElsewhere(f"{self.folder}: the checkpoint of step {self.step} failed{why}")

    def _lost(self, rank: int) -> CheckpointError:
        return CheckpointError(f"process {rank} was lost while it wrote its part of step {self.step}")

    def _hand_in(self, receipt: object) -> None:
        path = self._receipt(self.processes.rank)
        unfinished = path.with_suffix(".part")
        with _writing(path):
            unfinished.write_text(json.dumps(receipt))
            os.rename(unfinished, path)


class _FailedElsewhere(CheckpointError):
    """The error of another process."""


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Convert an OSError of a file in `folder` to an OutputError that names the file."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(str(error.filename or folder), error) from error


def _file_names(names: Sequence[str]) -> list[str]:
    """Return names for the arrays of a file: their own, or numbers for empty, unprintable and repeated ones."""
    times = Counter(names)
    plain = [name if name.isprintable() and times[name] == 1 else "" for name in names]
    return [name or f"#{index}" for index, name in enumerate(plain)]
