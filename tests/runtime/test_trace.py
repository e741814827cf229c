"""One trace of all processes."""

import json
import threading
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.runtime.trace import merged
from spmd.runtime.trace_summary import summary
from spmd.runtime.watch import Profile
from spmd.viewing.profile import read_profile
from spmd.viewing.tables import Texts
from tests.clocks import WATCHDOG_SECONDS
from tests.mutants import mutate_values, mutated_bytes

PROGRAM = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "stablehlo.all_gather"(%0) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<2xf32>) -> tensor<4xf32>
  %2 = stablehlo.slice %1 [0:2] : (tensor<4xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}"""


def test_a_track_a_process_with_waits_at_collectives() -> None:
    module, grid, profile = spmd.parse(PROGRAM, name="p.mlir"), spmd.ProcessGrid(2, 1), Profile()
    inside = threading.Event()

    def watch(op, run):  # type: ignore[no-untyped-def]
        """Process 1 comes to the all_gather when process 0 is inside."""

        def enter():  # type: ignore[no-untyped-def]
            inside.set()
            return run()

        if op.name != "stablehlo.all_gather":
            return profile(op, run)
        if threading.current_thread().name == "process-1":
            assert inside.wait(WATCHDOG_SECONDS)
            return profile(op, run)
        return profile(op, enter)

    spmd.run_parallel(module, grid, [(np.ones(2, np.float32),)] * 2, watch=watch)
    events = merged(profile.trace_events(), module, grid)
    tracks = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert tracks == {0: "rank 0 (0, 0)", 1: "rank 1 (1, 0)"}
    (wait,) = [e for e in events if e.get("cat") == "wait" and e["args"]["place"] == "p.mlir:4:8"]
    gathers = {e["pid"]: e for e in events if e["name"] == "stablehlo.all_gather"}
    gather, later = gathers[0], gathers[1]
    assert (wait["pid"], wait["name"], wait["ts"]) == (0, "wait for rank 1", gather["ts"])
    assert wait["dur"] == pytest.approx(later["ts"] - gather["ts"])
    assert 0 < wait["dur"] <= gather["dur"]


def trace() -> dict[str, Any]:
    """Three ranks that compute, with a collective that was started ahead, and wait."""
    events: list[dict[str, Any]] = []
    for rank in range(3):
        events.append({"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}})
        units = [
            ("@main", "program"), ("stablehlo.async_start", "unit"), ("stablehlo.add", "unit"),
            ("stablehlo.async_done", "unit"), ("wait for rank 1", "wait"),
        ]  # fmt: skip
        for number, (name, category) in enumerate(units):
            times = {"ts": number * 10.0 + rank, "dur": 5.0}
            events.append({"ph": "X", "pid": rank, "name": name, "cat": category, **times, "args": {"place": "f:1"}})
    return {"traceEvents": events}


def test_mutants_of_traces_are_summed_up_and_shown_or_refused(tmp_path: Path) -> None:
    random, path = Random("traces"), tmp_path / "trace.json"
    refused = 0
    for _ in range(400):
        content = trace()
        if random.random() < 0.4:
            path.write_bytes(mutated_bytes(json.dumps(content).encode(), random))
        else:
            mutate_values(content, random)
            path.write_text(json.dumps(content))
        try:
            assert summary(path)
            assert read_profile(path, Texts())
        except spmd.UsageError as error:
            assert str(path) in str(error)
            refused += 1
    assert 100 < refused < 390


def test_a_rank_that_only_waited_is_among_the_ranks(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    content = trace()
    content["traceEvents"] = [e for e in content["traceEvents"] if e["pid"] != 1 or e.get("cat") == "wait"]
    path.write_text(json.dumps(content))
    assert "rank 1: 0.000000 s, 0.000000 s, 0.000005 s" in summary(path)


def test_rows_add_up_to_the_length_of_the_profile_on_all_ranks(tmp_path: Path) -> None:
    """Two ranks, 10 us each: rank 1 comes 4 us late to a sum, and both do nothing at the end."""

    def event(rank: int, name: str, began: float, took: float, category: str = "stablehlo") -> dict[str, object]:
        return {"name": name, "cat": category, "ph": "X", "ts": began, "dur": took, "pid": rank, "tid": 0, "args": {}}

    both = [event(rank, "@main", 0, 9, "program") for rank in (0, 1)]
    first = [event(0, "stablehlo.add", 1, 1), event(0, "stablehlo.all_reduce", 2, 6)]
    second = [event(1, "stablehlo.add", 1, 5), event(1, "stablehlo.all_reduce", 6, 2)]
    last = [event(0, "wait for rank 1", 2, 4, "wait"), event(1, "@other", 9.5, 0.5, "program")]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*both, *first, *second, *last]}))
    head, *lines = summary(path).splitlines()
    rows = [line.split(maxsplit=5) for line in lines if " x  " in line]
    assert head == "Where 1e-05 s went, on the mean of 2 ranks:"
    assert sum(float(share.removesuffix("%")) for _, _, share, *_ in rows) == pytest.approx(100, abs=0.5)
    shares = {" ".join(text.partition("  (")[0].split()): share for _, _, share, _, _, text in rows}
    assert shares == {
        "stablehlo.add": "30.0%", "stablehlo.all_reduce": "20.0%", "waiting for others": "20.0%",
        "between units": "22.5%", "outside of programs": "7.5%",
    }  # fmt: skip
    assert "(0.000001 to 0.000005 s, most on rank 1)" in next(line for line in lines if "stablehlo.add" in line)
