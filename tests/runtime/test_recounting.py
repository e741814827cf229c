"""What a profile says, counted again in another way: what each moment of each rank goes to, one after another."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import spmd
from spmd.dialects import OPS
from spmd.dialects.core import Trait
from spmd.runtime import watch
from spmd.runtime.parallel import prepared_run
from spmd.runtime.trace_summary import Summary, summary
from tests.backends.collective_programs import PROGRAMS

NAMES = list(PROGRAMS)[::2]
#: A row by its name and place.
Rows = dict[tuple[str, str], float]


def ticking() -> Any:
    """A clock that every reading moves on, by 1/4 to 7/4 of a microsecond."""
    readings = count()

    def perf_counter() -> float:
        reading = next(readings)
        return (reading + reading * 7919 % 13 / 16) * 1e-6

    return SimpleNamespace(perf_counter=perf_counter)


def recounted(events: list[dict[str, Any]]) -> dict[int, Rows]:
    """The seconds of each row by rank: of all moments between two events, each of which goes to what is innermost."""
    events = [event for event in events if event["ph"] == "X"]
    kept = [event for event in events if event["cat"] != "left out"]
    first, last = min(event["ts"] for event in kept), max(event["ts"] + event["dur"] for event in kept)
    found: dict[int, Rows] = {}
    for rank in {event["pid"] for event in kept}:
        own = [event for event in events if event["pid"] == rank]
        edges = sorted({first, last, *(edge for event in own for edge in (event["ts"], event["ts"] + event["dur"]))})
        rows: Rows = defaultdict(float)
        for begin, end in pairwise(edges):
            if first <= begin and end <= last:
                middle = (begin + end) / 2
                there = [event for event in own if event["ts"] < middle < event["ts"] + event["dur"]]
                rows[_row(there)] += (end - begin) * 1e-6
        found[rank] = rows
    return found


def _row(there: list[dict[str, Any]]) -> tuple[str, str]:
    kinds = {event["cat"] for event in there}
    units = [event for event in there if event["cat"] not in ("wait", "program", "left out")]
    if units:
        unit = max(units, key=lambda event: (event["ts"], -event["dur"]))
        if "wait" in kinds and Trait.COLLECTIVE in OPS[unit["name"]].traits:
            return "waiting for others", ""
        return unit["name"], unit["args"]["place"]
    if "program" in kinds:
        return "between units", ""
    return ("steps left out" if "left out" in kinds else "outside of programs"), ""


def agrees(found: Summary, events: list[dict[str, Any]]) -> None:
    again = recounted(events)
    assert set(found.ranks) == set(again)
    for rank in found.ranks:
        told = {(row.name, row.place): row.seconds[rank] for row in found.rows if row.seconds[rank] > 1e-9}
        assert told == pytest.approx({row: seconds for row, seconds in again[rank].items() if seconds > 1e-9}, abs=1e-9)
        assert sum(told.values()) == pytest.approx(found.seconds, abs=1e-8)


@pytest.mark.parametrize("mode", ["threads", "stacked"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_are_what_every_moment_goes_to(
    name: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAMS[name]
    inputs = [program.inputs(rank) for rank in range(4)]
    module = spmd.parse(program.text, name="p.mlir")
    run = prepared_run(module, program.grid, inputs, mode=mode, backends=("numpy",))
    monkeypatch.setattr(watch, "time", ticking())
    path = tmp_path / "trace.json"
    with spmd.profile(path, steps=range(1, 3)):
        for _ in range(4):
            run()
    found = summary(path)
    assert found.steps == (1, 2)
    agrees(found, json.loads(path.read_text())["traceEvents"])


def test_there_are_a_dozen_programs() -> None:
    assert len(NAMES) >= 12
