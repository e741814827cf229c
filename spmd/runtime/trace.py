"""A trace of all processes for Perfetto: one track per process, with the waits at collectives.

A process waits at a collective from its arrival until the last process of its group arrives, which the traces of all
processes show: the events of one collective have the same op and group, and the same number on each process.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypedDict

from collectives.grid import Groups, ProcessGrid
from spmd.analysis.process_groups import process_groups
from spmd.dialects import OPS
from spmd.dialects.core import Trait
from spmd.ir import Module
from spmd.runtime.trace_reading import WAIT
from spmd.support.files import write_file


class TraceArguments(TypedDict, total=False):
    """Details of an event: the op's source location and bytes.

    `processes` is the number of processes that an event represents, if there are too many for tracks; `step` the number
    of a program's call; `name` that of metadata.
    """

    name: str
    place: str
    bytes: int
    processes: int
    step: int


class TraceRecord(TypedDict, total=False):
    """An event of the Trace Event Format (`ph` "X": duration; "M": metadata); `ts` and `dur` are in microseconds."""

    name: str
    cat: str
    ph: str
    ts: float
    dur: float
    pid: int
    tid: int
    args: TraceArguments


def _is_met(name: str) -> bool:
    """Return whether the op is a collective that no process leaves before the last has arrived.

    Not a collective_permute: there each process waits only for its source.
    """
    return name in OPS and Trait.COLLECTIVE in OPS[name].traits and name != "stablehlo.collective_permute"


def with_waits(
    events: Iterable[TraceRecord], groups: Mapping[str, Groups], grid: ProcessGrid | None = None
) -> list[TraceRecord]:
    """Return `events` of all processes with names of their tracks and the waits inside collectives.

    `events` share a clock, which is shifted so that none is negative. `groups` has the groups of each collective by
    source location.
    """
    events = list(events)
    first = min((event["ts"] for event in events), default=0.0)
    if first < 0:
        events = [{**event, "ts": event["ts"] - first} for event in events]
    names: list[TraceRecord] = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": rank,
            "args": {"name": f"rank {rank}" + ("" if grid is None else f" {grid.process_id(rank)}")},
        }
        for rank in sorted({event["pid"] for event in events})
    ]
    return [*names, *events, *_waits(events, groups)]


def write_trace(path: str | Path, events: Iterable[TraceRecord]) -> None:
    """Write trace events to a file that Perfetto (ui.perfetto.dev) and Chrome open."""
    write_file(path, json.dumps({"traceEvents": list(events), "displayTimeUnit": "ns"}).encode())


def groups_of(module: Module, grid: ProcessGrid) -> dict[str, Groups]:
    """Return the groups of each collective by source location."""
    return {str(op.location): process_groups(op, grid, module) for op in module.walk() if _is_met(op.name)}


def _waits(events: list[TraceRecord], groups: Mapping[str, Groups]) -> list[TraceRecord]:
    counts: dict[tuple[int, str, str], int] = defaultdict(int)
    meetings: dict[tuple[object, ...], list[TraceRecord]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        name, place, rank = event["name"], event["args"]["place"], event["pid"]
        group = groups[place].find(rank) if place in groups else None
        if group is not None and _is_met(name):
            meetings[name, place, group, counts[rank, name, place]].append(event)
            counts[rank, name, place] += 1
    waits = []
    for present in meetings.values():
        last = present[-1]
        waits += [_wait(event, last) for event in present if event["ts"] < last["ts"]]
    return waits


def _wait(event: TraceRecord, last: TraceRecord) -> TraceRecord:
    return {
        **event,
        "name": f"wait for rank {last['pid']}",
        "cat": WAIT,
        "dur": min(last["ts"] - event["ts"], event["dur"]),
        "args": {"place": event["args"]["place"]},
    }
