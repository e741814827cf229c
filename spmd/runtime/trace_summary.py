"""Where time went in a profile, as text: units, waiting by rank, imbalance, and what overlapped with communication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    units = [event for event in events if event.category not in (_WAIT, _PROGRAM)]
    if not units:
        return "Nothing ran while this was recorded."
    return "\n".join([*_by_unit(units), *_by_rank(units, waits), *_overlap(units)])


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


def _by_unit(units: Sequence[_Event]) -> Iterator[str]:
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in units:
        sums[event.name, event.place][0] += event.own
        sums[event.name, event.place][1] += 1
    total = sum(seconds for seconds, _ in sums.values()) or 1.0
    yield f"Units, of {total:.4g} s on all ranks:"
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    for (name, place), (seconds, count) in ordered[:_UNITS]:
        yield f"  {seconds:10.6f} s {seconds / total:6.1%} {int(count):8d} x  {name}  {place}"
    if len(ordered) > _UNITS:
        rest = sum(seconds for _, (seconds, _) in ordered[_UNITS:])
        yield f"  {rest:10.6f} s {rest / total:6.1%}            {len(ordered) - _UNITS} more"


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
