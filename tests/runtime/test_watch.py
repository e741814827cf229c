"""Watchers see the schedule that runs: its units, their times, and which op of one made a NaN."""

import io

import numpy as np
import pytest

import spmd
from spmd.compiler.schedule.watching import place_of
from spmd.errors import UNKNOWN, PythonLocation
from spmd.ir import Op
from spmd.runtime.watch import Profile, check_nans, print_each
from tests.loops import counted_loop

BACKENDS = [("llvm", "numpy"), ("numpy",)]
STEP = """func.func @main(%x: tensor<2x300xf32>, %w: tensor<300x300xf32>) -> tensor<2x300xf32> {
  %a = stablehlo.add %x, %x : tensor<2x300xf32>
  %b = stablehlo.log %a : tensor<2x300xf32>
  %c = stablehlo.abs %b : tensor<2x300xf32>
  %d = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0]
    : (tensor<2x300xf32>, tensor<300x300xf32>) -> tensor<2x300xf32>
  return %d : tensor<2x300xf32>
}"""
ROOT = """%w = stablehlo.sqrt %v : tensor<4xf32>
      %u = stablehlo.subtract %w, %x : tensor<4xf32>"""
LOOP = f"""func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {{
{counted_loop("tensor<4xf32>", ROOT)}
  return %r#1 : tensor<4xf32>
}}"""
REDUCED = """%s = "stablehlo.all_reduce"(%v) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %t = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %t : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
      %u = stablehlo.sine %s : tensor<2xf32>"""
REDUCED_LOOP = f"""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
{counted_loop("tensor<2xf32>", REDUCED, 3)}
  return %r#1 : tensor<2xf32>
}}"""


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((2, 300)).astype(np.float32) + 1, rng.random((300, 300)).astype(np.float32)


@pytest.mark.parametrize("backends", BACKENDS)
@pytest.mark.parametrize("watch", [check_nans, Profile()])
def test_a_watched_program_gives_the_same_bits(backends: tuple[str, ...], watch: object) -> None:
    module = spmd.parse(STEP)
    (plain,) = spmd.compile(module, backends=backends)(*arrays())
    (watched,) = spmd.compile(module, backends=backends, watch=watch)(*arrays())
    np.testing.assert_array_equal(watched, plain)


def test_a_profile_tells_units_that_are_computed_together() -> None:
    profile = Profile()
    executable = spmd.compile(spmd.parse(STEP, name="step.mlir"), backends=("llvm", "numpy"), watch=profile)
    for _ in range(3):
        executable(*arrays())
    names = {(event.name, event.place) for event in profile.events}
    assert names == {("add, log, abs", "step.mlir:2,3,4"), ("stablehlo.dot_general", "step.mlir:5:8")}
    assert [event.calls for event in profile.events] == [1] * 6
    assert all(event.seconds >= event.own >= 0 for event in profile.events)
    assert {event["cat"] for event in profile.trace_events()} == {"fusion", "stablehlo"}


def test_a_profile_counts_the_turns_of_native_loops() -> None:
    profile = Profile()
    spmd.compile(spmd.parse(LOOP, name="loop.mlir"), backends=("llvm", "numpy"), watch=profile)(
        np.ones(4, np.float32), np.int32(50)
    )
    calls = {event.name: event.calls for event in profile.events}
    assert calls["stablehlo.while"] == 1 and calls["sqrt, subtract"] == 50
    whole = next(event for event in profile.events if event.name == "stablehlo.while")
    inside = sum(event.seconds for event in profile.events if event is not whole)
    assert inside <= whole.seconds * 1.0001 and whole.own <= whole.seconds - inside + 1e-9


def test_collectives_inside_native_loops_are_events_of_their_own() -> None:
    profile = Profile()
    x = np.ones(2, np.float32)
    spmd.run_parallel(spmd.parse(REDUCED_LOOP), spmd.ProcessGrid(2, 1), [(x,), (x,)], mode="threads", watch=profile)
    reduced = [event for event in profile.events if event.name == "stablehlo.all_reduce"]
    assert len(reduced) == 6 and {event.thread for event in reduced} == {"process-0", "process-1"}
    assert sum(event.calls for event in profile.events if event.name == "stablehlo.sine") == 6


@pytest.mark.parametrize("backends", BACKENDS)
def test_a_nan_is_traced_to_its_op_within_a_unit(backends: tuple[str, ...]) -> None:
    x, w = arrays()
    x[0, 7] = -1
    executable = spmd.compile(spmd.parse(STEP, name="step.mlir"), backends=backends, watch=check_nans)
    with pytest.raises(
        spmd.ExecutionError, match=r"step.mlir:3:\d+: stablehlo.log: .*1 of 600 .* the first at \[0, 7\]"
    ):
        executable(x, w)


@pytest.mark.parametrize("backends", BACKENDS)
def test_a_nan_is_traced_to_its_op_within_a_loop(backends: tuple[str, ...]) -> None:
    executable = spmd.compile(spmd.parse(LOOP, name="loop.mlir"), backends=backends, watch=check_nans)
    executable(np.zeros(4, np.float32), np.int32(9))
    with pytest.raises(spmd.ExecutionError, match=r"loop.mlir:10:\d+: stablehlo.sqrt: .*1 of 4 .* the first at \[2\]"):
        executable(np.array([0, 0, 4, 0], np.float32), np.int32(9))


def test_each_unit_is_printed_with_what_it_gives() -> None:
    file = io.StringIO()
    executable = spmd.compile(
        spmd.parse(STEP, name="step.mlir"),
        backends=("llvm", "numpy"),
        watch=lambda unit, run: print_each(unit, run, file),
    )
    executable(*arrays())
    first, second = file.getvalue().splitlines()[0], file.getvalue().splitlines()[-1]
    assert first.startswith("step.mlir:2,3,4: add, log, abs %c : tensor<2x300xf32> = [")
    assert "stablehlo.dot_general %d : tensor<2x300xf32> = [" in file.getvalue() and second.endswith("]")


def test_units_of_several_files_name_the_lines_of_each() -> None:
    places = [PythonLocation("/a.py", 3), PythonLocation("/a.py", 1), PythonLocation("/b.py", 900), UNKNOWN]
    ops = [Op("stablehlo.add", location=place) for place in places]
    assert place_of(ops) == "/a.py:1,3, /b.py:900"
    assert place_of(ops[3:] * 2) == "<unknown>:1"
