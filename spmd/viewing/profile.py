"""Reads measured steps from traces of `spmd run --profile` and `spmd predict --trace`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from spmd.runtime.trace_reading import LEFT_OUT, PROGRAM, WAIT, TraceEvent, communicates, read_trace
from spmd.viewing.tables import Json, Texts, short

#: The largest number of events and of tracks on a page.
_MOST_EVENTS, _MOST_TRACKS = 20_000, 64


def read_profile(path: str | PathLike[str], texts: Texts) -> dict[str, Json]:
    """Return the tracks of the trace at `path`: [name, place, begin, duration, kind] of each event, in nanoseconds.

    Of several steps of one program the last one is used, which is warm; `what` names the step. Times start at the first
    event. Of a long trace the longest events are kept; `left` is the number of others. Raises UsageError for a file
    that is no trace.
    """
    trace = read_trace(path)
    events, step = _of_last_step(trace.events)
    rows = [_row(event, texts) for event in events]
    begin = min((row[2] for _, row in rows), default=0)
    for _, row in rows:
        row[2] -= begin
    kept = sorted(rows, key=lambda entry: -entry[1][3])[:_MOST_EVENTS]
    numbers = sorted({number for number, _ in kept})[:_MOST_TRACKS]
    tracks = []
    for number in numbers:
        own = sorted((row for of, row in kept if of == number), key=lambda row: row[2])
        end = max(row[2] + row[3] for row in own)
        tracks.append({"name": short(trace.names.get(number, f"process {number}")), "events": own, "end": end})
    left = len(rows) - sum(len(track["events"]) for track in tracks)
    return {"tracks": tracks, "left": left, "what": _STEP[min(step, 1)].format(step)}


#: Categories of predicted events (spmd.predict.trace), and of events that are no units.
_PREDICTED, _WHOLE = ("compute", "communication"), (PROGRAM, LEFT_OUT)
#: Descriptions of an unnumbered step, the first one, and a later one.
_STEP = {-1: "measured", 0: "measured: step 0, with cold code and memory", 1: "measured: step {}"}


def _of_last_step(events: Sequence[TraceEvent]) -> tuple[list[TraceEvent], int]:
    """Return the measured events of the last step of a program, and its number; all, and -1, if that is unknown."""
    units = [event for event in events if event.category not in (*_PREDICTED, *_WHOLE)]
    programs = [event for event in events if event.category == PROGRAM and event.step is not None]
    if len({event.name for event in programs}) != 1:
        return units, -1
    last = max(event.step for event in programs if event.step is not None)
    times = {event.rank: (event.began, event.began + event.took) for event in programs if event.step == last}
    none = (0.0, -1.0)
    return [
        unit for unit in units if times.get(unit.rank, none)[0] <= unit.began <= times.get(unit.rank, none)[1]
    ], last


def _row(event: TraceEvent, texts: Texts) -> tuple[int, list[Json]]:
    begin, duration = round(event.began * 1e3), round(event.took * 1e3)
    kind = "wait" if event.category == WAIT else "collective" if communicates(event.name) else "measured"
    return event.rank, [texts.of(event.name), texts.of(event.place), begin, duration, kind]
