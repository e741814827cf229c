"""The predicted step: its units, when each kind of process executes them, and the critical path."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from spmd.predict.events import PricedEvent
from spmd.predict.machine import Machine
from spmd.predict.prediction import Prediction
from spmd.predict.shares import shares
from spmd.predict.timeline import Moment, Timeline
from spmd.viewing.program import Origins
from spmd.viewing.tables import Json, Texts

#: The largest number of ranks compared, of kinds shown, and of moments of all kinds.
_MOST_RANKS, _MOST_KINDS, _MOST_MOMENTS = 64, 8, 24_000
_NANOSECONDS = 1e9
#: A measured step longer than this multiple of the predicted one is not shown in full at first.
_MUCH_LONGER = 4


@dataclass(frozen=True)
class ProcessKind:
    """Processes with the same timeline: the first rank, and all compared ranks of the kind."""

    rank: int
    ranks: tuple[int, ...]


def units(prediction: Prediction, machine: Machine, texts: Texts, origins: Origins) -> list[Json]:
    """Return a process's units in order: [title, place, total seconds, turns, ops, kind, fraction of each op].

    The kind is "compute", "collective", or "start" and "wait" for an asynchronous one. Fractions add up to 1 and are
    estimates if there are several ops.
    """
    return [_unit(moment, machine, texts, origins) for moment in prediction.timeline.moments]


def _unit(moment: Moment, machine: Machine, texts: Texts, origins: Origins) -> list[Json]:
    event = moment.event
    ops = event.ops if event.collective is None else (event.collective.op,)
    parts: dict[int, float] = defaultdict(float)
    for op, part in zip(ops, shares(ops, machine), strict=True):
        if (number := origins(op)) >= 0:
            parts[number] += part
    seconds = float(np.max(moment.ends - moment.begins))
    title, place = texts.of(event.title), texts.of(event.place)
    numbers = sorted(parts)
    known = sum(parts.values()) or 1.0
    fractions = [parts[number] / known for number in numbers]
    return [title, place, seconds, event.turns, numbers, _what(event), fractions]


def span(timeline: dict[str, Json] | None, measured: dict[str, Json] | None) -> int:
    """Return the nanoseconds shown at first: all, unless the measured step is much longer than the predicted one."""
    predicted = 0 if timeline is None else round(timeline["seconds"] * _NANOSECONDS)
    longest = max((track["end"] for track in measured["tracks"]), default=0) if measured is not None else 0
    return predicted if 0 < predicted * _MUCH_LONGER < longest else max(1, predicted, longest)


def _what(event: PricedEvent) -> str:
    if event.finishes is not None:
        return "wait"
    if event.collective is None:
        return "compute"
    return "start" if event.starts else "collective"


def timeline(prediction: Prediction) -> dict[str, Json]:
    """Return the tracks of each kind of process: for each moment [unit, arrives, begins, ends], in nanoseconds."""
    line = prediction.timeline
    size = len(line.computing)
    ranks = _looked_at(size)
    kinds = _kinds(line, ranks)
    most = max(1, min(_MOST_KINDS, _MOST_MOMENTS // max(1, len(line.moments))))
    numbers = {moment.event: number for number, moment in enumerate(line.moments)}
    return {
        "seconds": line.seconds,
        "looked": len(ranks),
        "kinds": len(kinds),
        "tracks": [
            {"rank": kind.rank, "ranks": list(kind.ranks), "moments": _moments(line, kind.rank)}
            for kind in kinds[:most]
        ],
        "critical": [[numbers[event], seconds] for event, seconds in line.critical_path() if seconds > 0],
    }


def _looked_at(size: int) -> list[int]:
    """Return all ranks, or a sample from the first to the last."""
    if size <= _MOST_RANKS:
        return list(range(size))
    return sorted({int(rank) for rank in np.linspace(0, size - 1, _MOST_RANKS).round()})


def _kinds(line: Timeline, ranks: list[int]) -> list[ProcessKind]:
    rows: dict[bytes, list[int]] = {}
    begins = np.array([moment.begins[ranks] for moment in line.moments]).reshape(-1, len(ranks))
    ends = np.array([moment.ends[ranks] for moment in line.moments]).reshape(-1, len(ranks))
    for column, rank in enumerate(ranks):
        key = begins[:, column].tobytes() + ends[:, column].tobytes()
        rows.setdefault(key, []).append(rank)
    return [ProcessKind(found[0], tuple(found)) for found in rows.values()]


def _moments(line: Timeline, rank: int) -> list[list[int]]:
    found = []
    for number, moment in enumerate(line.moments):
        times = moment.arrives[rank], moment.begins[rank], moment.ends[rank]
        arrives, begins, ends = (round(float(time) * _NANOSECONDS) for time in times)
        if ends > begins or begins > arrives:
            found.append([number, arrives, begins, ends])
    return found
