"""The current state of a running job's ranks, from the flight records that they write on request."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectives.failure import REPORTS_VARIABLE, launched_rank
from collectives.record.reading import Record, RecordedCall, RecordError, read
from collectives.states import ranges_text
from launch.recording import LaunchedJob

#: Window, in seconds, over which steps are counted.
_WINDOW = 10.0
_STEP = "step "


@dataclass(frozen=True)
class RankState:
    """The current state of a rank, since `seconds`; `waits_for` are the ranks missing in the collective that it is in.

    `steps` is in steps per second; `late` is the average delay, in seconds, after the first rank at collectives; None
    if unknown. `memory` is in bytes, None for a rank on another machine.
    """

    rank: int
    doing: str
    place: str
    seconds: float
    waits_for: tuple[int, ...]
    steps: float | None
    late: float | None
    memory: int | None

    @property
    def text(self) -> str:
        """The state as text: `in all_reduce ..., waits for 2, 3`."""
        waiting = f", waits for {ranges_text(self.waits_for)}" if self.waits_for else ""
        return f"{self.doing}{waiting}"


def look(job: LaunchedJob, seconds: float) -> list[RankState]:
    """Return the states of the ranks of `job` that respond within `seconds`, in order."""
    written = job.records_on_request(seconds)
    records: dict[int, Record] = {}
    for name in written:
        with contextlib.suppress(OSError, RecordError):  # it was being replaced
            assert job.records is not None
            record = read(job.records / name)
            records[record.rank] = record
    return states(records, memory_of(job))


def states(records: Mapping[int, Record], memory: Mapping[int, int]) -> list[RankState]:
    """Return the states of the ranks that wrote `records`; `memory` maps ranks to bytes."""
    reached = {rank: _reached(record.calls) for rank, record in records.items()}
    late = _lateness(records)
    return [_state(record, reached, late.get(rank), memory.get(rank)) for rank, record in sorted(records.items())]


def _state(
    record: Record, reached: Mapping[int, Mapping[str, int]], late: float | None, memory: int | None
) -> RankState:
    now = record.written or time.time()
    call = record.calls[-1] if record.calls else None
    running = [activity for activity in record.activities if activity.ended is None]
    if call is not None and call.state != "completed":
        members = record.groups.get(call.group, ())
        missing = tuple(r for r in members if r in reached and reached[r].get(call.group, 0) < call.number)
        description, place, since = f"in {call.text}", call.place, call.started
        return RankState(
            record.rank, description, place, _since(now, since), missing, _steps(record, now), late, memory
        )
    last = max([_end(call), *(activity.began for activity in running)])
    doing = f"computes, {running[-1].text}" if running else "computes, between steps"
    return RankState(record.rank, doing, "", _since(now, last or None), (), _steps(record, now), late, memory)


def _end(call: RecordedCall | None) -> float:
    return 0.0 if call is None or call.completed is None else call.completed


def _since(now: float, then: float | None) -> float:
    return 0.0 if then is None else max(0.0, now - then)


def _reached(calls: Sequence[RecordedCall]) -> dict[str, int]:
    """Return the sequence number of the last collective called in each group, including pending ones."""
    found: dict[str, int] = {}
    for call in calls:
        if not call.is_transfer:
            found[call.group] = max(found.get(call.group, 0), call.number)
    return found


def _steps(record: Record, now: float) -> float | None:
    """Return the steps per second of recent steps; None if there are too few."""
    ends = [activity.ended for activity in record.activities if activity.text.startswith(_STEP)]
    recent = [end for end in ends if end is not None and end > now - _WINDOW]
    return (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else None


def _lateness(records: Mapping[int, Record]) -> dict[int, float]:
    """Return by rank the average delay in seconds after the first rank of the group at collectives."""
    arrivals: dict[tuple[str, int], dict[int, float]] = {}
    for rank, record in records.items():
        for call in record.calls:
            if not call.is_transfer and call.completed is not None and call.started is not None:
                arrivals.setdefault((call.group, call.number), {})[rank] = call.started
    late: dict[int, list[float]] = {}
    for present in arrivals.values():
        if len(present) > 1:
            first = min(present.values())
            for rank, came in present.items():
                late.setdefault(rank, []).append(came - first)
    return {rank: sum(each) / len(each) for rank, each in late.items()}


def memory_of(job: LaunchedJob) -> dict[int, int]:
    """Return the resident bytes of the ranks of `job` on this machine; empty where the system does not list them."""
    found: dict[int, int] = {}
    page = os.sysconf("SC_PAGE_SIZE") if "SC_PAGE_SIZE" in os.sysconf_names else 4096
    marked = f"{REPORTS_VARIABLE}={job.reports}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # another user's, or gone
            entries = (folder / "environ").read_bytes().split(b"\0")
            if marked not in entries:
                continue
            rank = launched_rank(dict(entry.decode("utf-8", "replace").partition("=")[::2] for entry in entries))
            size = int((folder / "statm").read_text().split()[1]) * page
            if rank is not None:
                found[rank] = max(found.get(rank, 0), size)
    return found
