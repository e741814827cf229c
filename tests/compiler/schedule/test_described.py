"""What is described is what runs: memory, units and their names, on whole programs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import Prepared, prepare
from spmd.compiler.schedule.schedule import NativeRegion, Schedule
from spmd.compiler.schedule.show import show_schedule
from spmd.compiler.schedule.step_costs import cost_of_step
from spmd.compiler.schedule.steps import BatchRun, LibraryCall, Step
from spmd.ir import Op, Region
from spmd.predict.events import price_schedule
from spmd.predict.machine import nominal
from spmd.runtime.watch import Profile

ROOT = Path(__file__).parents[3]

ATTENTION = """func.func @main(%q: tensor<8x128x16xf32>, %k: tensor<8x128x16xf32>) -> tensor<8x128x16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<8x128x16xf32>, tensor<8x128x16xf32>) -> tensor<8x128x128xf32>
  %e = stablehlo.exponential %p : tensor<8x128x128xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<8x128x128xf32>, tensor<f32>) -> tensor<8x128xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<8x128xf32>) -> tensor<8x128x128xf32>
  %w = stablehlo.divide %e, %b : tensor<8x128x128xf32>
  %r = stablehlo.dot_general %w, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<8x128x128xf32>, tensor<8x128x16xf32>) -> tensor<8x128x16xf32>
  return %r : tensor<8x128x16xf32>
}"""
IMAGES = """func.func @main(%x: tensor<16x32x32x8xf32>, %k: tensor<3x3x8x8xf32>) -> tensor<16x32x32x8xf32> {
  %t = stablehlo.tanh %x : tensor<16x32x32x8xf32>
  %r = stablehlo.convolution(%t, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<16x32x32x8xf32>, tensor<3x3x8x8xf32>) -> tensor<16x32x32x8xf32>
  return %r : tensor<16x32x32x8xf32>
}"""
LOOP = """func.func @main(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<4096xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %n, %y = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<64x64xf32>
    cond { %most = stablehlo.constant dense<5> : tensor<i32>
      %c = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> }
    do { %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
      %p = stablehlo.dot_general %t, %x, contracting_dims = [1] x [0]
        : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %h = stablehlo.tanh %p : tensor<64x64xf32>
      stablehlo.return %j, %h : tensor<i32>, tensor<64x64xf32> }
  %s = stablehlo.add %y, %x : tensor<64x64xf32>
  %v = stablehlo.reshape %s : (tensor<64x64xf32>) -> tensor<4096xf32>
  %o = "stablehlo.sort"(%v) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %c = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) : (tensor<4096xf32>) -> tensor<4096xf32>
  return %y, %o : tensor<64x64xf32>, tensor<4096xf32>
}"""
PROGRAMS = {
    "attention": ATTENTION,
    "images": IMAGES,
    "loop": LOOP,
    "softmax": (ROOT / "benchmarks" / "peers" / "softmax.mlir").read_text(),
    "training": (ROOT / "examples" / "digits" / "train_step_1.mlir").read_text(),
}


def compiled(text: str) -> tuple[Prepared, ModuleLowering, Schedule]:
    prepared = prepare(spmd.parse(text), backends=("llvm", "numpy"), threads=1)
    lowering = ModuleLowering(prepared.module, prepared.options)
    return prepared, lowering, lowering.schedule(lowering.flatten(prepared.function).body)


def all_steps(steps: Sequence[Step], lowering: ModuleLowering) -> Iterator[Step]:
    """Also those inside of loops and branches."""
    for step in steps:
        yield step
        inner = [block.steps for block in step.blocks]
        inner = inner or [lowering.schedule(region.block).steps for op in step.ops for region in runs(op)]
        for each in inner:
            yield from all_steps(each, lowering)


def runs(op: Op) -> Sequence[Region]:
    return op.regions if op.name in ("stablehlo.while", "stablehlo.if", "stablehlo.case") else ()


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> tuple[Prepared, ModuleLowering, Schedule]:
    return compiled(PROGRAMS[request.param])


def test_predicted_temporaries_are_the_memory_that_is_taken(
    program: tuple[Prepared, ModuleLowering, Schedule],
) -> None:
    prepared, lowering, schedule = program
    predicted = price_schedule(lowering, prepared.function, nominal()).footprint.temporaries
    _, plan = ModuleLowering(prepared.module, prepared.options).entry(prepared.function)
    arenas = [step.native.code.arena for step in plan.steps if step.native is not None]
    assert arenas == [part.placement.size for part in schedule.entries if isinstance(part, NativeRegion)]
    kept = {*plan.results, *plan.parameters}
    handed = {v: v.tensor.nbytes for step in plan.steps for v in step.outputs if v not in kept}
    assert schedule.arena <= predicted <= schedule.arena + sum(handed.values())
    if len(arenas) == len(plan.steps) == 1:
        assert predicted == arenas[0]


def test_views_cost_nothing(program: tuple[Prepared, ModuleLowering, Schedule]) -> None:
    _, lowering, schedule = program
    for step in all_steps(schedule.steps, lowering):
        if step.units[0].is_view:
            cost = cost_of_step(step)
            assert (cost.operations, cost.bytes) == (0, 0)


def test_a_profile_has_the_names_of_the_explanation(program: tuple[Prepared, ModuleLowering, Schedule]) -> None:
    prepared, lowering, schedule = program
    explained = "\n".join(show_schedule(schedule, lowering.schedule))
    profile = Profile()
    executable = spmd.compile(prepared.module, function=prepared.function.symbol, threads=1, watch=profile)
    executable(*(np.ones(v.tensor.static_shape, v.tensor.dtype) for v in prepared.function.arguments))
    assert profile.events
    for event in profile.events:
        assert f"{event.name}  ({event.place})" in explained


def test_what_one_step_hands_on_inside_is_no_traffic() -> None:
    """Of attention's weights, 512 KiB, only a batch at a time lies in memory, and the rest of it is no traffic."""
    _, _, schedule = compiled(ATTENTION.replace("8x128x128", "8x256x256").replace("8x128", "8x256"))
    (step,) = (step for step in schedule.steps if isinstance(step, BatchRun))
    operands = 2 * 8 * 256 * 16 * 4
    assert cost_of_step(step).read == operands and cost_of_step(step).written == operands // 2
    assert schedule.arena < 3 * 256 * 256 * 4


def test_images_are_a_part_of_their_convolution() -> None:
    _, _, schedule = compiled(IMAGES)
    step = schedule.steps[-1]
    assert isinstance(step, LibraryCall) and step.images is not None
    assert [op.name for op in step.ops] == ["stablehlo.pad", "stablehlo.convolution"]
