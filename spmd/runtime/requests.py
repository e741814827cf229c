"""What is asked of a running job from outside: that a rank more may join.

The launcher of an elastic job leaves a note in the folder of its reports, by which the job is found. Who asks leaves a
file a rank there, ``join-<id>.json``; rank 0 answers each by putting ``joined-<id>`` or ``refused-<id>``, with a
sentence, in its place. Where rank 0 is lost before it has answered, the next one finds the file.
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
        """Lets the job be found."""
        note = {"process": self.process, "most": self.most, "host": self.host, "started": start_of(self.process)}
        _write(self.folder / _NOTE, json.dumps(note))

    @property
    def is_deserted(self) -> bool:
        """Whether a rank has looked for requests, and none does any more: its successor may be on another host."""
        with contextlib.suppress(OSError):
            return time.time() - (self.folder / _SERVED).stat().st_mtime > _SILENT_SECONDS
        return False


@dataclass(frozen=True)
class JoinRequest:
    """That a rank joins, on a host where one is named."""

    file: Path
    host: str

    def answer(self, sentence: str, *, joined: bool) -> None:
        """Says what has come of it."""
        with contextlib.suppress(OSError):  # who launched the job may be gone, and the folder with it
            _write(self.file.with_name(f"{'joined' if joined else 'refused'}-{self.name}"), sentence)
            self.file.unlink()

    @property
    def name(self) -> str:
        return self.file.stem.removeprefix("join-")

    @property
    def answered(self) -> tuple[bool, str] | None:
        """Whether it has joined, and the sentence; None before there is one."""
        for kind in ("joined", "refused"):
            with contextlib.suppress(OSError):
                return kind == "joined", self.file.with_name(f"{kind}-{self.name}").read_text()
        return None


def running_jobs() -> list[RunningJob]:
    """This user's elastic jobs that run on this machine."""
    return list(_running_jobs())


def ask(job: RunningJob, host: str = "") -> JoinRequest:
    """Asks for a rank more."""
    request = JoinRequest(job.folder / f"join-{uuid.uuid4().hex}.json", host)
    _write(request.file, json.dumps({"host": host}))
    return request


def attend(folder: Path) -> None:
    """Leaves a sign that somebody looks for requests."""
    with contextlib.suppress(OSError):  # the folder is of another host, or gone with who launched the job
        (folder / _SERVED).touch()


def open_requests(folder: Path) -> list[JoinRequest]:
    """Those that nobody has answered."""
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
    """All at once, for those who look at any moment."""
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text(text)
    unfinished.rename(file)
