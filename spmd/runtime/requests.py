"""Requests from other processes that ranks join a running elastic job.

The launcher of an elastic job writes a note to its folder of reports, by which the job is found. A requester writes one
file per rank there, ``join-<id>.json``; rank 0 replaces it by ``joined-<id>`` or ``refused-<id>`` with a message. If
rank 0 fails before that, its successor finds the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collectives.processes import start_of

#: The folders of jobs' reports are called so, among the temporary files.
FOLDER_PREFIX = "spmd-launch-"
_NOTE = "elastic.json"
_SERVED = ".served"
_SILENT_SECONDS = 10.0
#: What comes of reading a file that is gone, or holds something else.
_FOREIGN = (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError)


@dataclass(frozen=True)
class RunningJob:
    """An elastic job of this machine: the `process` that launched it, how many ranks it may have (`most`), and the
    `host` that it is confined to, if any."""

    process: int
    most: int
    host: str
    folder: Path

    def leave_note(self) -> None:
        """Writes the note by which `running_jobs` finds the job."""
        note = {"process": self.process, "most": self.most, "host": self.host, "started": start_of(self.process)}
        _write(self.folder / _NOTE, json.dumps(note))

    @property
    def is_deserted(self) -> bool:
        """Whether a rank has polled for requests and none does any more: its successor may be on another host."""
        with contextlib.suppress(OSError):
            return time.time() - (self.folder / _SERVED).stat().st_mtime > _SILENT_SECONDS
        return False


@dataclass(frozen=True)
class JoinRequest:
    """A request that one rank join, on a given host or any."""

    file: Path
    host: str

    def answer(self, sentence: str, *, joined: bool) -> None:
        """Replaces the request by its outcome and the message `sentence`."""
        with contextlib.suppress(OSError):  # who launched the job may be gone, and the folder with it
            _write(self.file.with_name(f"{'joined' if joined else 'refused'}-{self.name}"), sentence)
            self.file.unlink()

    @property
    def name(self) -> str:
        return self.file.stem.removeprefix("join-")

    @property
    def answered(self) -> tuple[bool, str] | None:
        """Whether the rank has joined, and the message; None while the request is open."""
        for kind in ("joined", "refused"):
            with contextlib.suppress(OSError):
                return kind == "joined", self.file.with_name(f"{kind}-{self.name}").read_text()
        return None


def running_jobs() -> list[RunningJob]:
    """This user's elastic jobs that run on this machine."""
    return list(_running_jobs())


def ask(job: RunningJob, host: str = "") -> JoinRequest:
    """Writes a request that one more rank join `job`, on `host` if given."""
    request = JoinRequest(job.folder / f"join-{uuid.uuid4().hex}.json", host)
    _write(request.file, json.dumps({"host": host}))
    return request


def attend(folder: Path) -> None:
    """Marks that a rank polls `folder` for requests."""
    with contextlib.suppress(OSError):  # the folder is of another host, or gone with who launched the job
        (folder / _SERVED).touch()


def open_requests(folder: Path) -> list[JoinRequest]:
    """The requests in `folder` that have not been answered."""
    requests = []
    for file in sorted(folder.glob("join-*.json")):
        with contextlib.suppress(*_FOREIGN):  # answered meanwhile, or not one of ours
            host = json.loads(file.read_text())["host"]
            if isinstance(host, str):
                requests.append(JoinRequest(file, host))
    return requests


def _running_jobs() -> Iterator[RunningJob]:
    for note in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/{_NOTE}"):
        with contextlib.suppress(*_FOREIGN):  # gone meanwhile, or damaged
            if _is_private(note.parent):
                job = _job_of(note)
                os.kill(job.process, 0)
                yield job


def _job_of(note: Path) -> RunningJob:
    """The job that left a note; ValueError, or what comes of other content, where its launcher has ended."""
    content = json.loads(note.read_text())
    process, most, host = content["process"], content["most"], content["host"]
    if not (type(process) is type(most) is int and process > 0 and most >= 0 and isinstance(host, str)):
        raise ValueError("a damaged note")
    if content["started"] != start_of(process):
        raise ValueError("the launcher has ended, and another process has its id")
    return RunningJob(process, most, host, note.parent)


def _is_private(folder: Path) -> bool:
    """Whether `folder` is this user's, no link, and nobody else can write there."""
    status = folder.lstat()
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode) and not status.st_mode & 0o022


def _write(file: Path, text: str) -> None:
    """Writes `file` atomically, since other processes may read it at any time."""
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text(text)
    unfinished.rename(file)
