"""Requests from other processes that ranks join a running elastic job.

The launcher of an elastic job writes a note to its folder of reports, by which the job is found. A requester writes one
file per rank there, ``join-<id>.json``; rank 0 replaces it by ``joined-<id>`` or ``refused-<id>`` with a message. If
rank 0 fails before that, its successor finds the file.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collectives.processes import start_of
from spmd.runtime.notes import FOREIGN, notes_of_running_jobs, read_note

_NOTE = "elastic.json"
_SERVED = ".served"
_SILENT_SECONDS = 10.0


@dataclass(frozen=True)
class RunningJob:
    """An elastic job of this machine.

    `process` is its launcher, `most` the maximum number of ranks, and `host` the only host that ranks may join on, if
    any.
    """

    process: int
    most: int
    host: str
    folder: Path

    def leave_note(self) -> None:
        """Write the note by which `running_jobs` finds the job."""
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
        """Replace the request by its outcome and the message `sentence`."""
        with contextlib.suppress(OSError):  # the launcher may have exited, and its folder been removed
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
    """Return this user's elastic jobs that run on this machine."""
    return list(_running_jobs())


def ask(job: RunningJob, host: str = "") -> JoinRequest:
    """Write a request that one more rank join `job`, on `host` if given."""
    request = JoinRequest(job.folder / f"join-{uuid.uuid4().hex}.json", host)
    _write(request.file, json.dumps({"host": host}))
    return request


def attend(folder: Path) -> None:
    """Mark that a rank polls `folder` for requests."""
    with contextlib.suppress(OSError):  # the folder is on another host, or was removed with the launcher
        (folder / _SERVED).touch()


def open_requests(folder: Path) -> list[JoinRequest]:
    """Return the requests in `folder` that have not been answered."""
    requests = []
    for file in sorted(folder.glob("join-*.json")):
        with contextlib.suppress(*FOREIGN):  # answered meanwhile, or not one of ours
            host = read_note(file)["host"]
            if isinstance(host, str):
                requests.append(JoinRequest(file, host))
    return requests


def _running_jobs() -> Iterator[RunningJob]:
    for folder, content in notes_of_running_jobs(_NOTE):
        most, host = content.get("most"), content.get("host")
        if type(most) is int and most >= 0 and isinstance(host, str):  # else a damaged note
            yield RunningJob(content["process"], most, host, folder)


def _write(file: Path, text: str) -> None:
    """Write `file` atomically, since other processes may read it at any time."""
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text(text)
    unfinished.rename(file)
