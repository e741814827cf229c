"""What simulations take of memory: at most three times the stacked arguments, results and largest temporary."""

import runpy
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partitioner
import spmd
from benchmarks.simulation import mlp_arguments, mlp_program, rounds_program
from spmd.support.arrays import Array
from spmd.types import TensorType
from tests.effort import some_slow
from tests.measuring import with_peak_memory

PROCESSES = 8
NATIVE = ("llvm", "numpy")
SHARDED = Path(__file__).parents[2] / "examples" / "sharded"
#: Ops whose results are never stored whole, as what they are made of is read instead.
_UNSTORED = ("stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.iota", "stablehlo.reshape")
#: Bytes of Python's own objects that a call takes, whatever the program.
_PYTHON = 1 << 16


def stored(arrays: Sequence[Array]) -> int:
    """Bytes of arrays; what a view sees more than once counts once."""
    return sum(
        array.itemsize * prod(size for size, stride in zip(array.shape, array.strides, strict=True) if stride)
        for array in arrays
    )


def largest_temporary(module: spmd.Module) -> int:
    """Bytes of the largest value that is computed."""
    values = [value for op in module.walk() if op.name not in _UNSTORED for value in op.results]
    types = [value.type for value in values if isinstance(value.type, TensorType)]
    return max(type.nbytes for type in types if type.is_static)


def share(simulation: spmd.Simulation, arrays: Sequence[Array]) -> float:
    """All memory of a call over arguments, results and the largest temporary."""
    results = stored(simulation(*arrays, collapse=True))
    _, peak = with_peak_memory(lambda: simulation(*arrays))
    held = stored(arrays) + results + largest_temporary(simulation.module)
    return (stored(arrays) + peak - _PYTHON) / held


def layout_names() -> Sequence[str]:
    return list(runpy.run_path(str(SHARDED / "layouts.py"))["NAMES"])


@pytest.mark.parametrize("name", some_slow(layout_names(), 1))
def test_memory_of_a_layout(name: str) -> None:
    layouts: Any = runpy.run_path(str(SHARDED / "layouts.py"))
    chosen = layouts["layout"](name, PROCESSES)
    step = partitioner.with_shardings(spmd.load(SHARDED / "step.mlir"), chosen.mesh, chosen.arguments, chosen.results)
    simulation = spmd.simulate(step, spmd.ProcessGrid(1, PROCESSES), backends=NATIVE)
    rng = np.random.default_rng(0)
    shapes = list(layouts["PARAMETERS"].values())
    parameters = [(0.05 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]
    moments = [np.zeros(shape, np.float32) for shape in shapes] * 2
    words = [rng.integers(0, 512, (16, 64)).astype(np.int32) for _ in range(2)]
    assert share(simulation, simulation.shard(*parameters, *moments, *words)) <= 3


def function(body: str, result: str, *arguments: str) -> str:
    taken = ", ".join(f"%a{index}: tensor<{type}>" for index, type in enumerate(arguments))
    return f"func.func @main({taken}) -> tensor<{result}> {{\n{body}\n  return %r : tensor<{result}>\n}}"


def grouped(op: str, types: str, rest: str = "", region: str = "") -> str:
    groups = f"replica_groups = dense<{[list(range(PROCESSES))]}> : tensor<1x{PROCESSES}xi64>"
    return f'"stablehlo.{op}"{types.split(":")[0]} <{{{groups}{rest}}}> {region}:{types.split(":")[1]}'


ADD = """({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %sum = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  })"""
RING = f"source_target_pairs = dense<{[[rank, (rank + 1) % PROCESSES] for rank in range(PROCESSES)]}>"
VECTOR, TYPE = "32768xf32", "tensor<32768xf32>"
LOOP = """
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %l:2 = stablehlo.while(%i = %zero, %x = %a0) : tensor<i32>, tensor<32768xf32>
    cond {{
      %c = stablehlo.compare LT, %i, {turns} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %j = stablehlo.add %i, %one : tensor<i32>
      {body}
      stablehlo.return %j, %v : tensor<i32>, tensor<32768xf32>
    }}
  %r = stablehlo.tanh %l#1 : tensor<32768xf32>"""
HALO = f"""
      %first = stablehlo.slice %x [0:64] : ({TYPE}) -> tensor<64xf32>
      %halo = "stablehlo.collective_permute"(%first) {{{RING} : tensor<8x2xi64>}} : (tensor<64xf32>) -> tensor<64xf32>
      %rest = stablehlo.slice %x [64:32768] : ({TYPE}) -> tensor<32704xf32>
      %w = stablehlo.concatenate %rest, %halo, dim = 0 : (tensor<32704xf32>, tensor<64xf32>) -> {TYPE}
      %u = stablehlo.add %x, %w : {TYPE}
      %v = stablehlo.tanh %u : {TYPE}"""
MASKED = f"%e = stablehlo.sine %x : {TYPE}\n%v = stablehlo.add %e, %a0 : {TYPE}"
POSITION = "%id = stablehlo.replica_id : tensor<ui32>\n%n = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>"
TURNS = "%n = stablehlo.constant dense<5> : tensor<i32>"

PROGRAMS = {
    "halo exchange in a loop": function(TURNS + LOOP.format(turns="%n", body=HALO), VECTOR, VECTOR),
    "while until the last is done": function(POSITION + LOOP.format(turns="%n", body=MASKED), VECTOR, VECTOR),
    "if whose predicates differ": function(
        f"""{POSITION}
  %four = stablehlo.constant dense<4> : tensor<i32>
  %c = stablehlo.compare LT, %n, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r = "stablehlo.if"(%c) ({{
    %s = stablehlo.sine %a0 : {TYPE}
    stablehlo.return %s : {TYPE}
  }}, {{
    %s = stablehlo.cosine %a0 : {TYPE}
    stablehlo.return %s : {TYPE}
  }}) : (tensor<i1>) -> {TYPE}""",
        VECTOR,
        VECTOR,
    ),
    "all_to_all": function(
        f"""%m = stablehlo.reshape %a0 : ({TYPE}) -> tensor<64x512xf32>
  %s = {
            grouped(
                "all_to_all",
                "(%m) : (tensor<64x512xf32>) -> tensor<512x64xf32>",
                ", split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 8 : i64",
            )
        }
  %t = stablehlo.transpose %s, dims = [1, 0] : (tensor<512x64xf32>) -> tensor<64x512xf32>
  %r = stablehlo.exponential %t : tensor<64x512xf32>""",
        "64x512xf32",
        VECTOR,
    ),
    "reduce_scatter and all_gather": function(
        f"""%s = {
            grouped("reduce_scatter", f"(%a0) : ({TYPE}) -> tensor<4096xf32>", ", scatter_dimension = 0 : i64", ADD)
        }
  %t = stablehlo.tanh %s : tensor<4096xf32>
  %r = {grouped("all_gather", f"(%t) : (tensor<4096xf32>) -> {TYPE}", ", all_gather_dim = 0 : i64")}""",
        VECTOR,
        VECTOR,
    ),
    "data-parallel slope": function(
        f"""%y = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0]
    : (tensor<128x256xf32>, tensor<256x128xf32>) -> tensor<128x128xf32>
  %t = stablehlo.tanh %y : tensor<128x128xf32>
  %g = stablehlo.dot_general %a0, %t, contracting_dims = [0] x [0]
    : (tensor<128x256xf32>, tensor<128x128xf32>) -> tensor<256x128xf32>
  %r = {grouped("all_reduce", "(%g) : (tensor<256x128xf32>) -> tensor<256x128xf32>", "", ADD)}""",
        "256x128xf32",
        "128x256xf32",
        "256x128xf32",
    ),
    "slices at places that differ": function(
        f"""{POSITION}
  %s = stablehlo.dynamic_slice %a0, %n, sizes = [32000] : ({TYPE}, tensor<i32>) -> tensor<32000xf32>
  %t = stablehlo.negate %s : tensor<32000xf32>
  %r = stablehlo.dynamic_update_slice %a0, %t, %n : ({TYPE}, tensor<32000xf32>, tensor<i32>) -> {TYPE}""",
        VECTOR,
        VECTOR,
    ),
    "scan": function(
        """%zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%a0, %zero) <{window_dimensions = array<i64: 32768>,
    padding = dense<[[32767, 0]]> : tensor<1x2xi64>}> """
        f"{ADD} : ({TYPE}, tensor<f32>) -> {TYPE}",
        VECTOR,
        VECTOR,
    ),
    "sort of what arrives": function(
        f"""%s = "stablehlo.collective_permute"(%a0) {{{RING} : tensor<8x2xi64>}} : ({TYPE}) -> {TYPE}
  %r = "stablehlo.sort"(%s) <{{dimension = 0 : i64}}> ({{
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %c = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}) : ({TYPE}) -> {TYPE}""",
        VECTOR,
        VECTOR,
    ),
    "convolution": function(
        """%s = stablehlo.convolution(%a0, %a1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x32x32x16xf32>, tensor<3x3x16x16xf32>) -> tensor<2x32x32x16xf32>
  %r = stablehlo.tanh %s : tensor<2x32x32x16xf32>""",
        "2x32x32x16xf32",
        "2x32x32x16xf32",
        "3x3x16x16xf32",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_of_a_program(name: str) -> None:
    simulation = spmd.simulate(spmd.parse(PROGRAMS[name]), spmd.ProcessGrid(PROCESSES, 1), backends=NATIVE)
    assert simulation.serial == ()
    rng = np.random.default_rng(0)
    types = [type for type in simulation.in_types if isinstance(type, TensorType)]
    arrays = [rng.standard_normal((PROCESSES, *type.static_shape)).astype(np.float32) for type in types]
    assert share(simulation, arrays) <= 3


def test_memory_of_a_data_parallel_step() -> None:
    processes = 64
    simulation = spmd.simulate(mlp_program(processes), spmd.ProcessGrid(processes, 1), backends=NATIVE)
    assert share(simulation, mlp_arguments(processes)) <= 3


def test_memory_of_rounds_is_that_of_two_values_and_the_result() -> None:
    x = np.ones((512, 64), np.float32)
    simulation = spmd.simulate(rounds_program(512), spmd.ProcessGrid(512, 1), backends=NATIVE)
    assert share(simulation, [x]) <= 3
