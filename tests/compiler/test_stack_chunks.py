"""Processes in chunks: what each gets does not depend on how many are computed at a time."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.errors import UsageError
from tests.compiler.stacking import same_bits
from tests.effort import examples
from tests.predict.programs import DATA_PARALLEL, loop

GRID = spmd.ProcessGrid(7, 1)

#: Local work of all kinds between two collectives: what differs and what does not, a loop, a branch, a position.
MIXED = """
module attributes {mhlo.num_replicas = 7 : i32} {
  func.func @main(%x: tensor<5x4xf32>, %c: tensor<4xf32>)
      -> (tensor<5x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<ui32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %once = stablehlo.sine %c : tensor<4xf32>
    %b = stablehlo.broadcast_in_dim %once, dims = [1] : (tensor<4xf32>) -> tensor<5x4xf32>
    %y = stablehlo.multiply %x, %b : tensor<5x4xf32>
    %z = stablehlo.tanh %y : tensor<5x4xf32>
    %s = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<5x4xf32>, tensor<f32>) -> tensor<4xf32>
    %i0 = stablehlo.constant dense<0> : tensor<i32>
    %i1 = stablehlo.constant dense<1> : tensor<i32>
    %i3 = stablehlo.constant dense<3> : tensor<i32>
    %l:2 = stablehlo.while(%i = %i0, %v = %s) : tensor<i32>, tensor<4xf32>
      cond {
        %p = stablehlo.compare LT, %i, %i3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %i1 : tensor<i32>
        %w = stablehlo.cosine %v : tensor<4xf32>
        %u = stablehlo.add %w, %s : tensor<4xf32>
        stablehlo.return %j, %u : tensor<i32>, tensor<4xf32>
      }
    %first = stablehlo.slice %l#1 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
    %scalar = stablehlo.reshape %first : (tensor<1xf32>) -> tensor<f32>
    %pred = stablehlo.compare GT, %scalar, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q = "stablehlo.if"(%pred) ({
      %a = stablehlo.negate %l#1 : tensor<4xf32>
      stablehlo.return %a : tensor<4xf32>
    }, {
      stablehlo.return %s : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    %r = "stablehlo.all_reduce"(%q) <{replica_groups = dense<[[0, 1, 2], [3, 4, 5], [6, -1, -1]]> : tensor<3x3xi64>}> ({
      ^bb0(%a: tensor<f32>, %b1: tensor<f32>):
        %m = stablehlo.maximum %a, %b1 : tensor<f32>
        stablehlo.return %m : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %id = stablehlo.replica_id : tensor<ui32>
    %t = stablehlo.exponential %r : tensor<4xf32>
    %o = stablehlo.subtract %t, %q : tensor<4xf32>
    return %z, %o, %once, %id : tensor<5x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<ui32>
  }
}
"""


def whiles(simulation: spmd.Simulation) -> int:
    return len(re.findall("stablehlo.while", str(simulation.module)))


@settings(max_examples=examples(12))
@given(st.integers(1, 8000), st.tuples(st.booleans(), st.booleans()))
def test_any_budget_gives_the_same_bits(memory: int, stacked: tuple[bool, bool]) -> None:
    module, generator = spmd.parse(MIXED), np.random.default_rng(memory)
    arrays = [
        generator.standard_normal((7 if up else 1, *shape)).astype(np.float32)
        for up, shape in zip(stacked, ((5, 4), (4,)), strict=True)
    ]
    whole = spmd.simulate(module, GRID, memory=1 << 40)
    parts = spmd.simulate(module, GRID, memory=memory)
    spmd.verify(parts.module)
    for left, right in zip(whole(*arrays), parts(*arrays), strict=True):
        assert same_bits(np.ascontiguousarray(left), np.ascontiguousarray(right))


def test_chunks_are_taken_only_where_they_are_needed() -> None:
    module = spmd.parse(MIXED)
    assert whiles(spmd.simulate(module, GRID, memory=1 << 40)) == 1  # the program's own
    assert whiles(spmd.simulate(module, GRID, memory=1)) >= 3


def test_values_between_communications_exist_for_a_chunk_alone() -> None:
    text = loop(3, "%e = stablehlo.exponential %v : tensor<1000xf32>\n      %u = stablehlo.tanh %e : tensor<1000xf32>")
    module = spmd.parse(text)
    grid = spmd.ProcessGrid(64, 1)
    stacked = spmd.simulate(module, grid, memory=600_000).module
    inner = [op for op in stacked.walk() if op.name == "stablehlo.exponential"]
    assert [op.result.tensor.shape[0] for op in inner] != [64] and inner


def test_gradients_that_are_summed_are_never_stacked() -> None:
    """A sum over all processes of products is one product, chunks or not."""
    stacked = spmd.simulate(spmd.parse(DATA_PARALLEL), spmd.ProcessGrid(4, 1), memory=1).module
    assert not any(
        value.tensor.shape == (4, 64, 32) and op.name == "stablehlo.dot_general"
        for op in stacked.walk()
        for value in op.results
    )


@pytest.mark.parametrize("memory", [0, -1, 1.5, True, "1GB"])
def test_memory_is_a_number_of_bytes(memory: object) -> None:
    with pytest.raises(UsageError, match="takes its memory as a positive number of bytes"):
        spmd.simulate(spmd.parse(MIXED), GRID, memory=memory)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="takes its memory as a positive number of bytes"):
        spmd.run_parallel(spmd.parse(MIXED), GRID, memory=memory)  # type: ignore[arg-type]


def test_run_parallel_takes_memory() -> None:
    module = spmd.parse(MIXED)
    inputs = [[np.full((5, 4), rank, np.float32), np.ones(4, np.float32)] for rank in range(7)]
    stacked = spmd.run_parallel(module, GRID, inputs, mode="stacked", memory=1000)
    threads = spmd.run_parallel(module, GRID, inputs, mode="threads")
    for left, right in zip(stacked, threads, strict=True):
        assert all(same_bits(a, b) for a, b in zip(left, right, strict=True))


def test_what_differs_from_the_second_turn_of_a_loop_on() -> None:
    """A loop's body is written anew when a value that it carries is found to differ: nothing of before is taken."""
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %many = stablehlo.constant dense<40> : tensor<i32>
      %same = stablehlo.constant dense<1.0> : tensor<3xf32>
      %r:2 = stablehlo.while(%i = %zero, %v = %same) : tensor<i32>, tensor<3xf32> cond {
        %p = stablehlo.compare LT, %i, %many, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %a = stablehlo.sine %v : tensor<3xf32>
        %b = stablehlo.cosine %a : tensor<3xf32>
        %w = stablehlo.add %b, %x : tensor<3xf32>
        stablehlo.return %j, %w : tensor<i32>, tensor<3xf32>
      }
      return %r#1 : tensor<3xf32>
    }"""
    module = spmd.parse(text)
    xs = np.float32(np.random.default_rng(0).normal(size=(7, 3)))
    expected = [result for (result,) in spmd.run_parallel(module, GRID, [[x] for x in xs], mode="threads")]
    assert same_bits(spmd.simulate(module, GRID)(xs)[0], np.stack(expected))
