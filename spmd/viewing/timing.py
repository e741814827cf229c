"""The predicted step: its units, when each kind of process runs them, and what the step's length hangs on."""

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

#: Ranks that are compared with each other, kinds of them that are shown, and moments of all kinds together.
_MOST_RANKS, _MOST_KINDS, _MOST_MOMENTS = 64, 8, 24_000
_NANOSECONDS = 1e9
#: How many times as long as the predicted step a measured one is drawn beside it.
_MUCH_LONGER = 4


@dataclass(frozen=True)
class Kind:
    """Processes whose steps are alike: the first of them, and those of the ranks looked at that are like it."""

    rank: int
    ranks: tuple[int, ...]


def units(prediction: Prediction, machine: Machine, texts: Texts, origins: Origins) -> list[Json]:
    """What a process does, in order: [title, place, seconds of all turns, turns, ops, what it is, shares of the ops].

    It is "compute", "collective", or "start" and "wait" of an asynchronous one. The shares are an estimate where there
    are several ops, and 1 in all.
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
    told = [parts[number] / known for number in numbers]
    return [title, place, seconds, event.turns, numbers, _what(event), told]


def span(timeline: dict[str, Json] | None, measured: dict[str, Json] | None) -> int:
    """Return the nanoseconds that are drawn first: all, unless what was measured is much longer than what is
    predicted."""
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
    """Return the tracks of each kind of process: for each moment [unit, waits from, begins, ends], in nanoseconds."""
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
    """Return all ranks, or some from the first to the last."""
    if size <= _MOST_RANKS:
        return list(range(size))
    return sorted({int(rank) for rank in np.linspace(0, size - 1, _MOST_RANKS).round()})


def _kinds(line: Timeline, ranks: list[int]) -> list[Kind]:
    rows: dict[bytes, list[int]] = {}
    begins = np.array([moment.begins[ranks] for moment in line.moments]).reshape(-1, len(ranks))
    ends = np.array([moment.ends[ranks] for moment in line.moments]).reshape(-1, len(ranks))
    for column, rank in enumerate(ranks):
        key = begins[:, column].tobytes() + ends[:, column].tobytes()
        rows.setdefault(key, []).append(rank)
    return [Kind(found[0], tuple(found)) for found in rows.values()]


def _moments(line: Timeline, rank: int) -> list[list[int]]:
    found = []
    for number, moment in enumerate(line.moments):
        times = moment.arrives[rank], moment.begins[rank], moment.ends[rank]
        arrives, begins, ends = (round(float(time) * _NANOSECONDS) for time in times)
        if ends > begins or begins > arrives:
            found.append([number, arrives, begins, ends])
    return found
