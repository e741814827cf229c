"""Where time went in a profile, as text: rows that add up to its length, ranks, and what overlapped with communication.

A row is a unit, or what no unit takes: waiting for others inside of collectives, what lies between the units of a
program, and between programs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spmd.dialects import OPS
from spmd.dialects.core import Trait
from spmd.runtime.trace_reading import TraceEvent, read_trace

_UNITS = 15
_RANKS = 16
_PROGRAM, _WAIT = "program", "wait"


@dataclass(frozen=True)
class _Event:
    rank: int
    name: str
    category: str
    place: str
    began: float
    seconds: float
    own: float

    @property
    def end(self) -> float:
        return self.began + self.seconds

    @property
    def communicates(self) -> bool:
        traits = OPS[self.name].traits if self.name in OPS else ()
        return Trait.COLLECTIVE in traits or self.name in _TRANSFERS


_TRANSFERS = frozenset(("stablehlo.send", "stablehlo.recv", "stablehlo.async_start", "stablehlo.async_done"))


def summary(path: Path) -> str:
    """What the trace in a file says. UsageError where it is none of ours."""
    events = [event for track in _tracks(read_trace(path).events).values() for event in _with_own_times(track)]
    waits = [event for event in events if event.category == _WAIT]
    programs = [event for event in events if event.category == _PROGRAM]
    units = [event for event in events if event.category not in (_WAIT, _PROGRAM)]
    if not units:
        return "Nothing ran while this was recorded."
    return "\n".join([*_rows(units, programs, waits), *_by_rank(units, waits), *_overlap(units)])


def _tracks(read: Sequence[TraceEvent]) -> dict[tuple[int, bool], list[_Event]]:
    """Events by rank; waits, which lie over others, apart."""
    tracks: dict[tuple[int, bool], list[_Event]] = defaultdict(list)
    for each in read:
        times = each.began / 1e6, each.took / 1e6
        event = _Event(each.rank, each.name, each.category, each.place, *times, times[1])
        tracks[event.rank, event.category == _WAIT].append(event)
    return tracks


def _with_own_times(track: list[_Event]) -> Iterator[_Event]:
    """The events of a track, each with the time that those within it do not take."""
    open_events: list[tuple[_Event, list[float]]] = []

    def close(before: float) -> Iterator[_Event]:
        while open_events and open_events[-1][0].end <= before:
            event, inner = open_events.pop()
            own = max(0.0, event.seconds - sum(inner))
            yield _Event(event.rank, event.name, event.category, event.place, event.began, event.seconds, own)

    for event in sorted(track, key=lambda event: (event.began, -event.seconds)):
        # A nanosecond is what writing the times as microseconds may cost.
        yield from close(event.began + 1e-9)
        if open_events:
            open_events[-1][1].append(event.seconds)
        open_events.append((event, []))
    yield from close(float("inf"))


@dataclass
class _Row:
    """What one thing took, in seconds by rank, and how often it was done on all of them."""

    name: str
    place: str = ""
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    calls: int = 0

    def add(self, rank: int, seconds: float) -> None:
        self.seconds[rank] += seconds
        self.calls += 1


def _rows(units: Sequence[_Event], programs: Sequence[_Event], waits: Sequence[_Event]) -> Iterator[str]:
    """All time of all ranks, on the mean of them, the longest first."""
    everything = (*units, *programs, *waits)
    ranks = sorted({event.rank for event in everything})
    wall = max(event.end for event in everything) - min(event.began for event in everything)
    rows: dict[tuple[str, str], _Row] = {}
    outside = _Row("outside of programs" if programs else "between units")
    waited = _waited(units, waits)
    for event in units:
        row = rows.setdefault((event.name, event.place), _Row(event.name, event.place))
        row.add(event.rank, max(0.0, event.own - waited.pop(id(event), 0.0)))
    others = [_Row("waiting for others"), _Row("between units"), outside]
    for row, events in zip(others, (waits, programs), strict=False):
        for event in events:
            row.add(event.rank, event.own)
    known = [*rows.values(), *others[:2]]
    for rank in ranks:
        outside.add(rank, max(0.0, wall - sum(row.seconds[rank] for row in known)))
    told = sorted((row for row in (*known, outside) if any(row.seconds.values())), key=lambda row: -_total(row))
    of_ranks = f", on the mean of {len(ranks)} ranks" if len(ranks) > 1 else ""
    yield f"Where {wall:.4g} s went{of_ranks}:"
    for row in told[:_UNITS]:
        yield _line(row, ranks, wall)
    if len(told) > _UNITS:
        rest = sum(map(_total, told[_UNITS:])) / len(ranks)
        yield f"  {rest:10.6f} s {rest / (wall or 1.0):6.1%}            {len(told) - _UNITS} more"


def _waited(units: Sequence[_Event], waits: Sequence[_Event]) -> dict[int, float]:
    """By the identity of a unit: the seconds of the waits within it."""
    tracks: dict[int, list[_Event]] = defaultdict(list)
    for event in units:
        if event.communicates:
            tracks[event.rank].append(event)
    for track in tracks.values():
        track.sort(key=lambda event: event.began)
    begins = {rank: [event.began for event in track] for rank, track in tracks.items()}
    waited: dict[int, float] = defaultdict(float)
    for wait in waits:
        at = bisect_right(begins.get(wait.rank, []), wait.began + 1e-9) - 1
        if at >= 0:
            waited[id(tracks[wait.rank][at])] += wait.own
    return waited


def _total(row: _Row) -> float:
    return sum(row.seconds.values())


def _line(row: _Row, ranks: Sequence[int], wall: float) -> str:
    mean = _total(row) / len(ranks)
    text = f"  {mean:10.6f} s {mean / (wall or 1.0):6.1%} {row.calls:8d} x  {row.name}  {row.place}".rstrip()
    if len(ranks) == 1:
        return text
    most = max(ranks, key=lambda rank: row.seconds[rank])
    least = min(row.seconds[rank] for rank in ranks)
    return f"{text}  ({least:.6f} to {row.seconds[most]:.6f} s, most on rank {most})"


def _by_rank(units: Sequence[_Event], waits: Sequence[_Event]) -> Iterator[str]:
    ranks = sorted({event.rank for event in (*units, *waits)})
    spent = {rank: [0.0, 0.0, 0.0] for rank in ranks}
    for event in units:
        spent[event.rank][1 if event.communicates else 0] += event.own
    for event in waits:
        spent[event.rank][2] += event.seconds
    if len(ranks) == 1:
        return
    yield "Ranks: computing, communicating, of that waiting for another to come:"
    for rank in ranks[:_RANKS]:
        computing, communicating, waiting = spent[rank]
        share = f" ({waiting / (computing + communicating):.1%})" if computing + communicating else ""
        yield f"  rank {rank}: {computing:.6f} s, {communicating:.6f} s, {waiting:.6f} s{share}"
    if len(ranks) > _RANKS:
        yield f"  ... {len(ranks)} in all"
    busy = [spent[rank][0] for rank in ranks]
    mean = sum(busy) / len(busy)
    if mean:
        most = max(ranks, key=lambda rank: spent[rank][0])
        yield f"Imbalance: rank {most} computes {max(busy) / mean:.2f} times as long as the mean of all."
    causes: dict[str, float] = defaultdict(float)
    for event in waits:
        causes[event.name.removeprefix("wait for ")] += event.seconds
    total = sum(causes.values())
    if total:
        cause = max(causes, key=lambda name: causes[name])
        yield f"Of {total:.4g} s of waiting, {causes[cause] / total:.0%} is for {cause}."


def _overlap(units: Sequence[_Event]) -> Iterator[str]:
    """What was computed between the starts of collectives and the waits for their ends."""
    starts: dict[int, list[_Event]] = defaultdict(list)
    under_way = hidden = 0.0
    for event in sorted(units, key=lambda event: event.began):
        if event.name == "stablehlo.async_start":
            starts[event.rank].append(event)
        elif event.name == "stablehlo.async_done" and starts[event.rank]:
            start = starts[event.rank].pop(0)
            under_way += event.end - start.began
            hidden += max(0.0, event.began - start.end)
    if under_way:
        yield (
            f"Overlap: collectives that were started ahead were under way for {under_way:.4g} s, "
            f"{hidden / under_way:.0%} of it beside other work."
        )
