"""The flight recorder: a process's last communications and notes, written when something goes wrong.

Communications come from `collectives.record.activity`; programs add notes on other work. One file per process is
written when a wait takes too long, at a failure, at SIGUSR1, and on the launcher's request: as a pickle of plain
containers, ``rank_<rank>``, and the same as JSON, ``<rank>.json``.

The format is that of PyTorch's flight recorder, which its analyzer (``torchfrtrace``) reads: ``version``,
``pg_config``, ``pg_status`` and ``entries``. Additional fields are an entry's ``op``, the collective as text, and the
file's ``rank``, ``world_size``, ``host``, ``reason``, ``goes_on`` (the job was running normally) and ``notes``. Source:
PyTorch documentation, "Flight Recorder for Debugging Stuck Jobs", contents of a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from zlib import crc32

from collectives.arrays import DType
from collectives.failure import REPORTS_VARIABLE
from collectives.record import records
from collectives.record.activity import CAPACITY, Activity, Waiting
from collectives.states import ranges_text

VERSION = "2.10"
_WORLD = "0", "default_pg"
#: PyTorch's names of collectives that differ.
_NAMES = {"collective_broadcast": "broadcast", "collective_reduce": "reduce", "collective_permute": "all_to_all"}
#: PyTorch's names of element types; others keep NumPy's.
DTYPES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}

#: Maximum number of pairs in the name of a permutation's group.
_MOST_PAIRS = 16

Entry = dict[str, Any]
_Group = tuple[str, str]


class Note:
    """Something that a program does: a step, a compilation, a checkpoint; times as in Event."""

    __slots__ = ("began", "ended", "kind", "what")

    def __init__(self) -> None:
        self.kind = self.what = ""
        self.began, self.ended = 0.0, -1.0

    def end(self) -> None:
        self.ended = time.monotonic()


class Recorder:
    """The recorder of this process; there is one, ``RECORDER``."""

    def __init__(self) -> None:
        self._notes = [Note() for _ in range(CAPACITY)]
        self._next = cycle(self._notes).__next__
        self._activity: Activity | None = None
        self._rank, self._size = 0, 1
        self._timeout = 0.0
        self._lock = threading.Lock()
        self._signal: _Signal | None = None
        self._answered = ""

    def attach(self, activity: Activity, rank: int, size: int, timeout: float) -> bool:
        """Record the communications in ``activity`` of the process ``rank`` of ``size``.

        Returns False if it is attached to a larger group already. A thread must then poll `request`.
        """
        if size == 1 or (self._activity is not None and self._size > size):
            return False
        self._activity, self._rank, self._size, self._timeout = activity, rank, size, timeout
        if self._signal is None:
            self._signal = _Signal.install()
        return True

    def detach(self, activity: Activity) -> None:
        """Stop recording ``activity``."""
        if self._activity is activity:
            self._activity = None

    def begin(self, kind: str, what: str) -> Note:
        """Record that something begins; call ``end()`` of the note when it ends."""
        note = self._next()
        note.kind, note.what, note.began = kind, what, time.monotonic()
        return note

    @contextlib.contextmanager
    def note(self, kind: str, what: str) -> Iterator[None]:
        """Return a context that records a note."""
        note = self.begin(kind, what)
        yield
        note.end()

    def request(self) -> str:
        """Return the reason why a recording is requested, once per request; otherwise ""."""
        if self._signal is not None and self._signal.has_come():
            return "SIGUSR1"
        with contextlib.suppress(OSError):
            wanted = (Path(os.environ.get(REPORTS_VARIABLE, os.devnull)) / records.REQUEST).read_text()
            return self._new(wanted)
        return ""

    def _new(self, wanted: str) -> str:
        is_new, self._answered = wanted != self._answered, wanted
        return wanted if is_new else ""

    def write(self, reason: str, *, goes_on: bool = False) -> Path | None:
        """Write the recording and return its folder; ``goes_on`` if the job is running normally.

        None if recording is disabled or the file cannot be written.
        """
        with self._lock, contextlib.suppress(OSError):
            folder = records.folder()
            if folder is None or self._activity is None:
                return None
            content = self.content(reason) | {"goes_on": goes_on}
            records.make(folder)
            records.replace(folder / f"{records.PREFIX}{self._rank}", pickle.dumps(content, protocol=2))
            records.replace(folder / f"{self._rank}.json", json.dumps(content).encode())
            return folder
        return None

    def content(self, reason: str) -> dict[str, Any]:
        """Return the recording in the format of PyTorch's flight recorder."""
        activity = self._activity
        offset = _epoch_offset()
        groups = {_WORLD: list(range(self._size))}
        entries = [] if activity is None else list(self._entries(activity, groups, offset))
        return {
            "version": VERSION,
            "pg_config": {
                name: {"name": name, "desc": desc, "ranks": str(ranks)} for (name, desc), ranks in groups.items()
            },
            "pg_status": {name: _status(entries, name) for name, _ in groups},
            "entries": entries,
            "rank": self._rank,
            "world_size": self._size,
            "host": os.uname().nodename,
            "reason": reason,
            "recorded_ns": time.monotonic_ns() + offset,
            "notes": [
                {"kind": note.kind, "what": note.what, **_times(note.began, note.ended, offset)}
                for note in sorted(self._notes, key=lambda note: note.began)
                if note.kind
            ],
        }

    def _entries(self, activity: Activity, groups: dict[_Group, list[int]], offset: int) -> Iterator[Entry]:
        events = activity.events()
        first = max(0, activity.total - len(events))
        begun = activity.begun()
        for number, (waiting, sequence, began, ended) in enumerate(events):
            members, state = self._members(waiting), "completed" if ended >= began else "started"
            group = self._group(waiting, members)
            if not waiting.group and (waiting.call is None or waiting.call.channel is None):
                if state == "completed":
                    continue  # a check, or a rendezvous that is no collective of a group
                pairs = () if waiting.call is None else waiting.call.pairs
                sequence, state = begun.get(pairs or members, 0) + 1, "scheduled"
            groups.setdefault(group, list(members))
            yield self._entry(waiting, sequence, group) | {
                "record_id": first + number,
                "state": state,
                "retired": state == "completed",
                **_times(began, ended, offset),
            }

    def _members(self, waiting: Waiting) -> tuple[int, ...]:
        if waiting.call is not None:
            return waiting.call.members
        return waiting.group or tuple(sorted({*waiting.ranks, self._rank}))

    def _group(self, waiting: Waiting, members: tuple[int, ...]) -> _Group:
        """Return the name of a group.

        Transfers and permutations get one each, so that sequence numbers are unique within it.
        """
        call = waiting.call
        if call is not None and call.pairs:
            rest = f", of {len(call.pairs)} {crc32(repr(call.pairs).encode()):08x}" * (len(call.pairs) > _MOST_PAIRS)
            listed = ", ".join(f"{source}->{target}" for source, target in call.pairs[:_MOST_PAIRS])
            return f"permutation {listed}{rest}", "undefined"
        if call is not None and call.channel is not None:
            return f"{members[0]}->{members[1]} by channel {call.channel}", "undefined"
        if members == tuple(range(self._size)):
            return _WORLD
        in_order = list(members) == sorted(members)
        return f"ranks {ranges_text(members) if in_order else ', '.join(map(str, members))}", "undefined"

    def _entry(self, waiting: Waiting, sequence: int, group: _Group) -> Entry:
        call = waiting.call
        is_transfer = call is not None and call.channel is not None
        number = call.number if is_transfer and call is not None else sequence
        name, sizes = "barrier", [list[int](), list[int]()]
        if call is not None:
            sizes, name = [list(call.shape), list(call.result)], _NAMES.get(call.name, call.name)
            if is_transfer:
                source, target = (sorted(call.members).index(member) for member in call.members)
                name += f" {source}->{target}" if name == "send" else f" {target}<-{source}"
        dtypes = [] if call is None else [_dtype_name(call.dtype)]
        return {
            "pg_id": 0 if group == _WORLD else 1,
            "process_group": group,
            "collective_seq_id": number,
            "p2p_seq_id": number if is_transfer else 0,
            "op_id": number,
            "profiling_name": f"gloo:{name}",
            "op": waiting.text if call is None else call.text,
            "input_sizes": [sizes[0]],
            "input_dtypes": dtypes,
            "output_sizes": [sizes[1]],
            "output_dtypes": dtypes,
            "timeout_ms": round(self._timeout * 1000),
            "is_p2p": is_transfer,
            "frames": [] if call is None else [_frame(call.where, call.name)],
        }


RECORDER = Recorder()


def _epoch_offset() -> int:
    """Return what to add to `time.monotonic_ns` for nanoseconds since the epoch.

    Of three readings, the one with the shortest interruption is taken, since times are compared between ranks.
    """
    readings = []
    for _ in range(3):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, now - before))
    return min(readings)[1]


def _dtype_name(dtype: DType) -> str:
    return DTYPES.get(dtype.name, dtype.name)


def _times(began: float, ended: float, offset: int) -> dict[str, int | float | None]:
    started = round(began * 1e9) + offset
    is_done = ended >= began
    return {
        "time_created_ns": started,
        "time_discovered_started_ns": started,
        "time_discovered_completed_ns": round(ended * 1e9) + offset if is_done else None,
        "duration_ms": (ended - began) * 1e3 if is_done else None,
    }


def _frame(where: str, name: str) -> dict[str, str | int]:
    """Return a stack frame from ``file:line[:column]``; any other text is used as the file."""
    found = re.fullmatch(r"(.+?):(\d+)(?::\d+)?", where)
    filename, line = (found[1], int(found[2])) if found else (where, 0)
    return {"name": name, "filename": filename, "line": line}


def _status(entries: list[Entry], group: str) -> dict[str, int]:
    """Return the last collective of a group that was called, started and completed."""
    own = [entry for entry in entries if entry["process_group"][0] == group]

    def last(*states: str) -> int:
        return max((entry["collective_seq_id"] for entry in own if entry["state"] in states), default=-1)

    return {
        "last_enqueued_collective": last("scheduled", "started", "completed"),
        "last_started_collective": last("started", "completed"),
        "last_completed_collective": last("completed"),
    }


class _Signal:
    """Detection of SIGUSR1 by a thread while the main thread is inside MPI, where no Python handler runs."""

    def __init__(self) -> None:
        self._handled = self._read = self._passed_on = 0
        self._reading, self._writing = os.pipe()
        for end in (self._reading, self._writing):
            os.set_blocking(end, False)

    @classmethod
    def install(cls) -> _Signal | None:
        """Install the handler, unless the program has one; None if it cannot be installed."""
        number = getattr(signal, "SIGUSR1", None)
        if (
            number is None
            or threading.current_thread() is not threading.main_thread()
            or signal.getsignal(number) is not signal.SIG_DFL
        ):
            return None
        handler = cls()
        signal.signal(number, handler._note)
        before = signal.set_wakeup_fd(handler._writing, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
        return handler

    def _note(self, number: int, frame: object) -> None:
        self._handled += 1

    def has_come(self) -> bool:
        """Return whether the signal has arrived since the last call, by the handler or by the wakeup descriptor."""
        with contextlib.suppress(BlockingIOError):
            self._read += os.read(self._reading, 4096).count(signal.SIGUSR1)
        before, self._passed_on = self._passed_on, max(self._handled, self._read)
        return self._passed_on > before
