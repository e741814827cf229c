"""Predicted and measured steps as traces for Perfetto (ui.perfetto.dev), one track per process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd.predict.timeline import Moment, Timeline
from spmd.runtime.trace import TraceRecord

#: The largest number of processes with a track.
MOST_TRACKS = 64
#: Added to a process's number for its measured track.
_MEASURED = 1_000_000


def predicted_events(predicted: Timeline) -> Iterator[TraceRecord]:
    """Yield the trace events of a predicted step: computation, communication and waits of each process."""
    size = min(MOST_TRACKS, len(predicted.computing))
    for rank in range(size):
        yield {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}, predicted"}}
        for moment in predicted.moments:
            yield from _of_moment(moment, rank)


def _of_moment(moment: Moment, rank: int) -> Iterator[TraceRecord]:
    event = moment.event
    arrives, begins, ends = (float(part[rank]) for part in (moment.arrives, moment.begins, moment.ends))
    kind = "compute" if event.collective is None else "communication"
    track = 1 if event.starts else 0
    if begins > arrives and not event.starts:
        yield _entry(f"wait: {event.title}", "wait", rank, 0, arrives, begins - arrives, event.place)
    if ends > begins:
        yield _entry(event.title, kind, rank, track, begins, ends - begins, event.place)


def measured_events(rank: int, measured: Sequence[tuple[str, str, float, float]]) -> Iterator[TraceRecord]:
    """Yield the trace events of measured units: (title, place, start, seconds) each."""
    number = _MEASURED + rank
    yield {"name": "process_name", "ph": "M", "pid": number, "args": {"name": f"rank {rank}, measured"}}
    for title, place, start, seconds in measured:
        yield _entry(title, "measured", number, 0, start, seconds, place)


def _entry(name: str, kind: str, process: int, track: int, start: float, seconds: float, place: str) -> TraceRecord:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": start * 1e6,
        "dur": seconds * 1e6,
        "pid": process,
        "tid": track,
        "args": {"place": place},
    }
