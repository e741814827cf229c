"""One trace of all processes."""

import json
import threading
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.runtime.trace import groups_of, with_waits
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
    events = with_waits(profile.trace_events(), groups_of(module, grid), grid)
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
            assert str(summary(path)) and json.dumps(summary(path).to_json())
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
    assert "rank 1: 0.000000 s, 0.000000 s, 0.000005 s" in str(summary(path))


def event(rank: int, name: str, began: float, took: float, category: str = "stablehlo", **arguments: int) -> Any:
    times = {"ts": began, "dur": took}
    return {"name": name, "cat": category, "ph": "X", **times, "pid": rank, "tid": 0, "args": arguments}


def written(tmp_path: Path, events: list[Any]) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_rows_add_up_to_the_length_of_the_profile_on_all_ranks(tmp_path: Path) -> None:
    """Two ranks, 10 us each: rank 1 comes 4 us late to a sum, and both do nothing at the end."""
    both = [event(rank, "@main", 0, 9, "program", step=3) for rank in (0, 1)]
    first = [event(0, "stablehlo.add", 1, 1), event(0, "stablehlo.all_reduce", 2, 6)]
    second = [event(1, "stablehlo.add", 1, 5), event(1, "stablehlo.all_reduce", 6, 2)]
    last = [event(0, "wait for rank 1", 2, 4, "wait"), event(1, "@other", 9.5, 0.5, "program", step=4)]
    found = summary(written(tmp_path, [*both, *first, *second, *last]))
    head, *lines = str(found).splitlines()
    rows = [line.split(maxsplit=5) for line in lines if " x  " in line]
    assert head == "Where 1e-05 s went in steps 3-4, on the mean of 2 ranks (least, median, most and whose):"
    assert sum(float(share.removesuffix("%")) for _, _, share, *_ in rows) == pytest.approx(100, abs=0.5)
    shares = {" ".join(text.partition("  (")[0].split()): share for _, _, share, _, _, text in rows}
    assert shares == {
        "stablehlo.add": "30.0%", "stablehlo.all_reduce": "20.0%", "waiting for others": "20.0%",
        "between units": "22.5%", "outside of programs": "7.5%",
    }  # fmt: skip
    assert "(0.000001, 0.000003, 0.000005 s: rank 1)" in next(line for line in lines if "stablehlo.add" in line)
    assert lines[-1] == (
        "Rank 1 is the straggler: 100% of the waiting (4e-06 s) is for it, "
        "since it spends 4e-06 s more than the median of the others in stablehlo.add."
    )
    for rank in (0, 1):
        assert sum(found.by_kind(rank).values()) == pytest.approx(found.seconds)
        assert sum(row.seconds[rank] for row in found.rows) == pytest.approx(found.seconds)
    told = found.to_json()
    assert told["straggler"]["rank"] == 1 and told["steps"] == [3, 4]  # type: ignore[index]
    assert [row["seconds"] for row in told["rows"]] == [[row.seconds[0], row.seconds[1]] for row in found.rows]  # type: ignore[attr-defined]


def test_a_rank_that_slept_between_programs_is_the_straggler_and_no_other(tmp_path: Path) -> None:
    """Rank 2 of three sleeps 8 us between two programs; rank 0 computes the longest, and has to wait nonetheless."""
    events = []
    for rank, (computes, second) in enumerate([(3, 5), (1, 5), (1, 13)]):
        for number, began in enumerate((0, second)):
            comes = began + computes
            end = 5 if number == 0 else 18
            events += [event(rank, "@main", began, end - began, "program", step=number + 1)]
            events += [event(rank, "stablehlo.sine", began, computes)]
            events += [event(rank, "stablehlo.all_reduce", comes, end - comes)]
            last = 3 if number == 0 else 14
            if comes < last:
                events += [event(rank, f"wait for rank {2 * number}", comes, last - comes, "wait")]
    found = summary(written(tmp_path, events))
    assert found.straggler is not None and found.straggler.row is not None
    assert (found.straggler.rank, found.straggler.row.name) == (2, "outside of programs")
    assert found.straggler.longer == pytest.approx(8e-6)
    assert str(found).count("straggler") == 1 and "imbalance" not in str(found).lower()


def test_ranks_that_come_last_by_turns_are_no_stragglers(tmp_path: Path) -> None:
    events = []
    for number in range(4):
        late = number % 2
        events += [
            event(1 - late, "stablehlo.all_reduce", 10 * number, 9),
            event(late, "stablehlo.all_reduce", 10 * number + 5, 4),
        ]
        events += [event(1 - late, f"wait for rank {late}", 10 * number, 5, "wait")]
    found = summary(written(tmp_path, events))
    assert found.straggler is None and "No rank is a straggler" in str(found)


def test_steps_that_are_left_out_between_others_have_a_row(tmp_path: Path) -> None:
    kept = [event(0, "@a", 10 * n, 5, "program", step=n) for n in (2, 3)]
    units = [event(0, "stablehlo.sine", 10 * n, 5) for n in (2, 3)]
    left_out = [event(0, "@a", 10 * n, 5, "left out", step=n) for n in (0, 1, 4)] + [event(0, "@b", 26, 2, "left out")]
    found = summary(written(tmp_path, [*left_out, *kept, *units]))
    assert {row.name: round(row.total * 1e6) for row in found.rows} == {
        "stablehlo.sine": 10, "outside of programs": 3, "steps left out": 2
    }  # fmt: skip
    assert found.steps == (2, 3) and round(found.seconds * 1e6) == 15
