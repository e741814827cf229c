"""Measured steps, from the traces that `spmd run --profile` and `spmd predict --trace` write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path

from spmd.errors import UsageError
from spmd.viewing.tables import Json, Texts, short

#: Events, and tracks, that a page holds.
_MOST_EVENTS, _MOST_TRACKS = 20_000, 64


def read_profile(path: str | PathLike[str], texts: Texts) -> dict[str, Json]:
    """The tracks of the trace at `path`: [name, place, begin, duration, kind] of each event, in nanoseconds.

    Time begins with the first event. Of a long trace the longest events are kept; `left` says how many are not.
    UsageError for a file that holds no trace.
    """
    name = fspath(path)
    try:
        events = json.loads(Path(path).read_bytes())["traceEvents"]
        timed = [event for event in events if event.get("ph") == "X" and event.get("cat") not in _PREDICTED]
        named = {event["pid"]: str(event["args"]["name"]) for event in events if event.get("name") == "process_name"}
        rows = [_row(event, texts) for event in timed]
    except OSError as error:
        raise UsageError(f"{name}: error: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{name}: error: is no trace, as `spmd run --profile` writes it: {error!r}") from None
    begin = min((row[2] for _, row in rows), default=0)
    for _, row in rows:
        row[2] -= begin
    kept = sorted(rows, key=lambda entry: -entry[1][3])[:_MOST_EVENTS]
    numbers = sorted({number for number, _ in kept})[:_MOST_TRACKS]
    tracks = []
    for number in numbers:
        own = sorted((row for of, row in kept if of == number), key=lambda row: row[2])
        end = max(row[2] + row[3] for row in own)
        tracks.append({"name": short(named.get(number, f"process {number}")), "events": own, "end": end})
    return {"tracks": tracks, "left": len(rows) - sum(len(track["events"]) for track in tracks)}


#: Categories of a trace's events that nobody measured (spmd.predict.trace).
_PREDICTED = ("compute", "communication")


def _row(event: Mapping[str, Json], texts: Texts) -> tuple[int, list[Json]]:
    place = texts.of(str(event.get("args", {}).get("place", "")))
    begin, duration = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
    kind = "wait" if event.get("cat") == "wait" else "measured"
    return int(event["pid"]), [texts.of(str(event["name"])), place, begin, duration, kind]
