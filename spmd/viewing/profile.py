"""Measured steps, from the traces that `spmd run --profile` and `spmd predict --trace` write."""

from __future__ import annotations

from os import PathLike

from spmd.runtime.trace_reading import TraceEvent, read_trace
from spmd.viewing.tables import Json, Texts, short

#: Events, and tracks, that a page holds.
_MOST_EVENTS, _MOST_TRACKS = 20_000, 64


def read_profile(path: str | PathLike[str], texts: Texts) -> dict[str, Json]:
    """The tracks of the trace at `path`: [name, place, begin, duration, kind] of each event, in nanoseconds.

    Time begins with the first event. Of a long trace the longest events are kept; `left` says how many are not.
    UsageError for a file that holds no trace.
    """
    trace = read_trace(path)
    rows = [_row(event, texts) for event in trace.events if event.category not in _PREDICTED]
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
    return {"tracks": tracks, "left": len(rows) - sum(len(track["events"]) for track in tracks)}


#: Categories of a trace's events that nobody measured (spmd.predict.trace).
_PREDICTED = ("compute", "communication")


def _row(event: TraceEvent, texts: Texts) -> tuple[int, list[Json]]:
    begin, duration = round(event.began * 1e3), round(event.took * 1e3)
    kind = "wait" if event.category == "wait" else "measured"
    return event.rank, [texts.of(event.name), texts.of(event.place), begin, duration, kind]
