"""A schedule's text is read back: it prints the same, and runs the same; a text that says otherwise is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.parse import parse_schedule
from spmd.compiler.schedule.schedule import Schedule
from spmd.compiler.schedule.target import Target
from spmd.compiler.schedule.text import schedule_text
from spmd.errors import UsageError
from spmd.io import arguments
from spmd.ir import Block, Value

FILES = sorted((Path(__file__).parent / "checks").glob("*.mlir"))
#: Loops and branches of native code and of Python, with an op that only Python runs.
CONTROL = """func.func @main(%x: tensor<40x30xf32>, %n: tensor<i32>) -> (tensor<40x30xf32>, tensor<40x30xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<40x30xf32>
    cond {
      %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %h = stablehlo.tanh %v : tensor<40x30xf32>
      stablehlo.return %next, %h : tensor<i32>, tensor<40x30xf32>
    }
  %sorted = "stablehlo.sort"(%last#1) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %less = stablehlo.compare GT, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<40x30xf32>) -> tensor<40x30xf32>
  %few = stablehlo.compare LT, %n, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %branch = "stablehlo.if"(%few) ({
    %d = stablehlo.add %sorted, %x : tensor<40x30xf32>
    stablehlo.return %d : tensor<40x30xf32>
  }, {
    %e = stablehlo.exponential %sorted : tensor<40x30xf32>
    stablehlo.return %e : tensor<40x30xf32>
  }) : (tensor<i1>) -> tensor<40x30xf32>
  return %sorted, %branch : tensor<40x30xf32>, tensor<40x30xf32>
}"""
PROGRAMS = {**{file.stem: file.read_text() for file in FILES}, "control": CONTROL}


def read_back(text: str, threads: int) -> tuple[str, Block, Target]:
    """A program's schedule as text, the block that it is of, and what it is made for."""
    prepared = prepare(spmd.parse(text), threads=threads)
    lowering = ModuleLowering(prepared.module, prepared.options)
    block = lowering.flatten(prepared.function).body
    assert lowering.target is not None
    return schedule_text(lowering.schedule(block), lowering.schedule), block, lowering.target


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_prints_the_same(name: str, threads: int) -> None:
    text, block, target = read_back(PROGRAMS[name], threads)
    schedules = parse_schedule(text, block, target)
    assert schedule_text(schedules[block], schedules.__getitem__) == text
    assert parse_schedule(text, block, target)[block] is not schedules[block]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_runs_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = spmd.parse(PROGRAMS[name])
    arrays = arguments.make(module)
    want = spmd.compile(module, threads=2)(*arrays)
    plan, read = ModuleLowering.schedule, []

    def parsed(self: ModuleLowering, block: Block, donated: Sequence[Value] = (), **more: bool) -> Schedule:
        planned = plan(self, block, donated, **more)
        assert self.target is not None
        read.append(parse_schedule(schedule_text(planned, lambda inner: plan(self, inner)), block, self.target)[block])
        return read[-1]

    monkeypatch.setattr(ModuleLowering, "schedule", parsed)
    monkeypatch.setenv("SPMD_CACHE_DIR", "")
    got = spmd.compile(module, threads=2)(*arrays)
    assert read
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("pattern", "other", "says"),
    [
        (r"over 64x1000", "over 64x999", "expected .nest"),
        (r"arena \d+", "arena 64", r"line 1 .*expected .region .* arena"),
        (r"of \(%\d+", "of (%99", r"line 4 .*the program has no value %99"),
        (r"of \(%\d+", "of (%0", r"line 4 .*an argument of the block"),
        (r"unit reduction", "unit of what", r"line 3 .*malformed unit"),
        (r"    unit .*\n", "", "the step has no unit"),
        (r"region \(", "region ", r"line 1 .*malformed region"),
        (r"    cost .*\n$", "", "unexpected end"),
    ],
)
def test_a_text_that_says_otherwise_is_refused(pattern: str, other: str, says: str) -> None:
    text, block, target = read_back(PROGRAMS["rows"], 1)
    wrong = re.sub(pattern, other, text)
    assert wrong != text
    with pytest.raises(UsageError, match=says):
        parse_schedule(wrong, block, target)


def test_the_schedule_of_another_program_is_refused() -> None:
    text, _, _ = read_back(CONTROL, 1)
    _, block, target = read_back(PROGRAMS["rows"], 1)
    with pytest.raises(UsageError, match=r"line \d+ of the schedule"):
        parse_schedule(text, block, target)
