"""One trace of all processes."""

import threading

import numpy as np
import pytest

import spmd
from spmd.runtime.trace import merged
from spmd.runtime.watch import Profile
from tests.clocks import WATCHDOG_SECONDS

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
