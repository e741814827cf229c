"""Analysis of a profile: rows that add up to its length, ranks, the straggler, and overlap.

A row is a unit, or time outside of units: waiting for other ranks in collectives, time between the units of a program,
and between programs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from collectives.record.diagnosis import straggler
from collectives.states import ranges_text
from spmd.runtime.trace_reading import LEFT_OUT, PROGRAM, WAIT, TraceEvent, communicates, read_trace

_UNITS = 15
_RANKS = 16
#: Kinds of rows, in the order in which ranks list them.
_KINDS = ("computing", "communicating", "waiting for others", "between units", "outside of programs", "steps left out")
_COMPUTING, _COMMUNICATING, _WAITING, _BETWEEN, _OUTSIDE, _LEFT_OUT = _KINDS
#: Minimum share of the ranks' time that waiting must take for a straggler to be reported.
_NOTABLE = 0.01


@dataclass(frozen=True)
class _Event:
    rank: int
    name: str
    category: str
    place: str
    began: float
    seconds: float
    own: float
    step: int | None

    @property
    def end(self) -> float:
        return self.began + self.seconds

    @property
    def communicates(self) -> bool:
        return communicates(self.name)


@dataclass
class Row:
    """The time of a unit or kind, in seconds by rank, and its number of calls on all ranks. `kind` is
    one of `_KINDS`.
    """

    name: str
    place: str
    kind: str
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    calls: int = 0

    def add(self, rank: int, seconds: float) -> None:
        self.seconds[rank] += seconds
        self.calls += 1

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def to_json(self, ranks: Sequence[int]) -> dict[str, object]:
        own = {rank: self.seconds[rank] for rank in ranks}
        found = {"name": self.name, "place": self.place, "kind": self.kind, "calls": self.calls}
        spread = {"least": min(own.values()), "median": median(own.values()), "most": max(own.values())}
        return found | spread | {"who": max(own, key=lambda rank: own[rank]), "seconds": list(own.values())}


@dataclass(frozen=True)
class Straggler:
    """The rank that causes most of the waiting: `caused` seconds of other ranks, a `share` of the total.

    It spends `longer` seconds more in `row` than the median of the others; `row` is None if there is no such row.
    """

    rank: int
    caused: float
    share: float
    row: Row | None
    longer: float

    def __str__(self) -> str:
        text = f"Rank {self.rank} is the straggler: {self.share:.0%} of the waiting ({self.caused:.4g} s) is for it"
        if self.row is None:
            return f"{text}."
        where = f"in {self.row.name} {self.row.place}".rstrip() if self.row.kind in _KINDS[:2] else self.row.name
        return f"{text}, since it spends {self.longer:.4g} s more than the median of the others {where}."

    def to_json(self) -> dict[str, object]:
        row = None if self.row is None else {"name": self.row.name, "place": self.row.place}
        return {"rank": self.rank, "caused": self.caused, "share": self.share, "row": row, "longer": self.longer}


@dataclass(frozen=True)
class Summary:
    """The analysis of a profile: its length in seconds, ranks, step numbers, and rows, longest first.

    `under_way` are the seconds of nonblocking collectives, of which `hidden` overlap other work.
    """

    seconds: float
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    rows: tuple[Row, ...]
    straggler: Straggler | None
    under_way: float
    hidden: float

    def __str__(self) -> str:
        if not self.rows:
            return "Nothing ran while this was recorded."
        return "\n".join([*self._rows(), *self._by_rank(), *self._overlap()])

    def to_json(self) -> dict[str, object]:
        return {
            "seconds": self.seconds,
            "ranks": list(self.ranks),
            "steps": list(self.steps),
            "rows": [row.to_json(self.ranks) for row in self.rows],
            "straggler": None if self.straggler is None else self.straggler.to_json(),
            "started_ahead": {"seconds": self.under_way, "hidden": self.hidden},
        }

    def by_kind(self, rank: int) -> dict[str, float]:
        """Return the seconds of `rank` by kind of row, which add up to the length of the profile."""
        found = dict.fromkeys(_KINDS, 0.0)
        for row in self.rows:
            found[row.kind] += row.seconds[rank]
        return found

    def _rows(self) -> Iterator[str]:
        of_steps = f" in step{'s' * (len(self.steps) > 1)} {ranges_text(self.steps)}" if self.steps else ""
        several = f", on the mean of {len(self.ranks)} ranks (least, median, most and whose)"
        yield f"Where {self.seconds:.4g} s went{of_steps}{several if len(self.ranks) > 1 else ''}:"
        for row in self.rows[:_UNITS]:
            yield self._line(row)
        if rest := self.rows[_UNITS:]:
            yield f"{self._share(sum(row.total for row in rest))}            {len(rest)} more"
        if 0 in self.steps:
            yield "Step 0 is among them, whose code and memory are cold: --profile-steps 1:2 leaves it out."

    def _share(self, total: float) -> str:
        mean = total / len(self.ranks)
        return f"  {mean:10.6f} s {mean / (self.seconds or 1.0):6.1%}"

    def _line(self, row: Row) -> str:
        text = f"{self._share(row.total)} {row.calls:8d} x  {row.name}  {row.place}".rstrip()
        if len(self.ranks) == 1:
            return text
        own = [row.seconds[rank] for rank in self.ranks]
        slowest = self.ranks[own.index(max(own))]
        return f"{text}  ({min(own):.6f}, {median(own):.6f}, {max(own):.6f} s: rank {slowest})"

    def _by_rank(self) -> Iterator[str]:
        if len(self.ranks) == 1:
            return
        kinds = [kind for kind in _KINDS if kind != _LEFT_OUT or any(row.kind == kind for row in self.rows)]
        yield f"Ranks: {', '.join(kinds)}:"
        for rank in self.ranks[:_RANKS]:
            spent = self.by_kind(rank)
            yield f"  rank {rank}: {', '.join(f'{spent[kind]:.6f} s' for kind in kinds)}"
        if len(self.ranks) > _RANKS:
            yield f"  ... {len(self.ranks)} in all"
        yield str(
            self.straggler or "No rank is a straggler: none causes most of the waiting, or there is little of it."
        )

    def _overlap(self) -> Iterator[str]:
        if self.under_way:
            yield (
                f"Overlap: collectives that were started ahead were under way for {self.under_way:.4g} s, "
                f"{self.hidden / self.under_way:.0%} of it hidden by other work."
            )


def summary(path: Path) -> Summary:
    """Return the summary of the trace in a file; UsageError if it is none."""
    tracks = _tracks(read_trace(path).events)
    by_kind: dict[str, list[_Event]] = {PROGRAM: [], WAIT: [], LEFT_OUT: [], "": []}
    for track in tracks.values():
        for event in _with_own_times(track):
            by_kind[event.category if event.category in by_kind else ""].append(event)
    units, programs, waits = by_kind[""], by_kind[PROGRAM], by_kind[WAIT]
    everything = (*units, *programs, *waits)
    if not units:
        return Summary(0.0, (), (), (), None, 0.0, 0.0)
    ranks = tuple(sorted({event.rank for event in everything}))
    begin, end = min(event.began for event in everything), max(event.end for event in everything)
    rows = _rows(units, programs, waits)
    left_out = Row(_LEFT_OUT, "", _LEFT_OUT)
    for event in by_kind[LEFT_OUT]:
        if event.rank in ranks and (seconds := min(event.end, end) - max(event.began, begin)) > 0:
            left_out.add(event.rank, seconds)
    outside = Row(_OUTSIDE if programs else _BETWEEN, "", _OUTSIDE if programs else _BETWEEN)
    for rank in ranks:
        outside.add(rank, max(0.0, end - begin - sum(row.seconds[rank] for row in (*rows, left_out))))
    rows = sorted((row for row in (*rows, left_out, outside) if row.total), key=lambda row: -row.total)
    steps = tuple(sorted({event.step for event in programs if event.step is not None}))
    return Summary(
        end - begin, ranks, steps, tuple(rows), _straggler(ranks, rows, waits, end - begin), *_overlap(units)
    )


def _tracks(read: Sequence[TraceEvent]) -> dict[tuple[int, str], list[_Event]]:
    """Return events by rank; waits, which overlap others, and unrecorded calls separately."""
    tracks: dict[tuple[int, str], list[_Event]] = defaultdict(list)
    for each in read:
        times = each.began / 1e6, each.took / 1e6
        event = _Event(each.rank, each.name, each.category, each.place, *times, times[1], each.step)
        tracks[event.rank, event.category if event.category in (WAIT, LEFT_OUT) else ""].append(event)
    return tracks


def _with_own_times(track: list[_Event]) -> Iterator[_Event]:
    """Yield the events of a track, each with its time outside of nested events."""
    open_events: list[tuple[_Event, list[float]]] = []

    def close(before: float) -> Iterator[_Event]:
        while open_events and open_events[-1][0].end <= before:
            event, inner = open_events.pop()
            own = max(0.0, event.seconds - sum(inner))
            yield replace(event, own=own)

    for event in sorted(track, key=lambda event: (event.began, -event.seconds)):
        # Times in microseconds may be rounded by a nanosecond.
        yield from close(event.began + 1e-9)
        if open_events:
            open_events[-1][1].append(event.seconds)
        open_events.append((event, []))
    yield from close(float("inf"))


def _rows(units: Sequence[_Event], programs: Sequence[_Event], waits: Sequence[_Event]) -> list[Row]:
    """Return a row per unit, without the waiting in it, one for waiting, and one for time between units."""
    rows: dict[tuple[str, str], Row] = {}
    waited = _waited(units, waits)
    for event in units:
        kind = _COMMUNICATING if event.communicates else _COMPUTING
        row = rows.setdefault((event.name, event.place), Row(event.name, event.place, kind))
        row.add(event.rank, max(0.0, event.own - waited.pop(id(event), 0.0)))
    others = Row(_WAITING, "", _WAITING), Row(_BETWEEN, "", _BETWEEN)
    for row, events in zip(others, (waits, programs), strict=True):
        for event in events:
            row.add(event.rank, event.own)
    return [*rows.values(), *others]


def _waited(units: Sequence[_Event], waits: Sequence[_Event]) -> dict[int, float]:
    """Return the seconds of waiting within each unit, by its identity."""
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


def _straggler(ranks: Sequence[int], rows: Sequence[Row], waits: Sequence[_Event], seconds: float) -> Straggler | None:
    """Return the straggler, and the row in which it exceeds the median of the others most; None without one."""
    caused: dict[int, float] = defaultdict(float)
    for event in waits:
        culprit = event.name.rpartition(" ")[2]
        if culprit.isdecimal():
            caused[int(culprit)] += event.seconds
    rank, total = straggler(caused), sum(caused.values())
    if rank is None or total < _NOTABLE * seconds * len(ranks):
        return None
    others = [other for other in ranks if other != rank]
    longer = {
        number: row.seconds[rank] - median(row.seconds[other] for other in others)
        for number, row in enumerate(rows)
        if others and row.kind != _WAITING
    }
    most = max(longer, key=lambda number: longer[number], default=None)
    row = None if most is None or longer[most] <= 0 else rows[most]
    return Straggler(rank, caused[rank], caused[rank] / total, row, 0.0 if row is None else longer[most or 0])


def _overlap(units: Sequence[_Event]) -> tuple[float, float]:
    """Return the seconds of nonblocking collectives, and those that overlap other work."""
    starts: dict[int, list[_Event]] = defaultdict(list)
    under_way = hidden = 0.0
    for event in sorted(units, key=lambda event: event.began):
        if event.name == "stablehlo.async_start":
            starts[event.rank].append(event)
        elif event.name == "stablehlo.async_done" and starts[event.rank]:
            start = starts[event.rank].pop(0)
            under_way += event.end - start.began
            hidden += max(0.0, event.began - start.end)
    return under_way, hidden
