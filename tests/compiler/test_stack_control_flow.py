"""Branches and loops whose predicates differ between processes: each process goes its own way."""

import numpy as np
import pytest

import spmd
from tests.compiler.stacking import PROCESSES, assert_stacks, same_bits

BRANCHES = """
func.func @main(%p: tensor<i1>, %x: tensor<3xf32>) -> (tensor<3xf32>, tensor<f32>, tensor<i32>) {
  %one = stablehlo.constant dense<0.5> : tensor<f32>
  %same = stablehlo.constant dense<7> : tensor<i32>
  %r:3 = "stablehlo.if"(%p) ({
    %a = stablehlo.add %x, %x : tensor<3xf32>
    stablehlo.return %a, %one, %same : tensor<3xf32>, tensor<f32>, tensor<i32>
  }, {
    %b = stablehlo.negate %x : tensor<3xf32>
    %c = stablehlo.constant dense<2.0> : tensor<f32>
    stablehlo.return %b, %c, %same : tensor<3xf32>, tensor<f32>, tensor<i32>
  }) : (tensor<i1>) -> (tensor<3xf32>, tensor<f32>, tensor<i32>)
  return %r#0, %r#1, %r#2 : tensor<3xf32>, tensor<f32>, tensor<i32>
}"""

CASES = """
func.func @main(%i: tensor<i32>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %r = "stablehlo.case"(%i) ({
    stablehlo.return %x : tensor<2xf32>
  }, {
    %b = stablehlo.negate %x : tensor<2xf32>
    stablehlo.return %b : tensor<2xf32>
  }, {
    %c = stablehlo.multiply %x, %x : tensor<2xf32>
    stablehlo.return %c : tensor<2xf32>
  }) : (tensor<i32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}"""

# Adds %step to %x until the counter is %n: carries what differs, what does not, and what stays.
LOOP = """
func.func @main(%n: tensor<i32>, %x: tensor<2xf32>, %step: tensor<2xf32>)
    -> (tensor<i32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %f = stablehlo.constant dense<1.0> : tensor<f32>
  %r:4 = stablehlo.while(%i = %zero, %a = %x, %s = %step, %g = %f)
      : tensor<i32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %k = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.add %a, %s : tensor<2xf32>
    %h = stablehlo.add %g, %g : tensor<f32>
    stablehlo.return %k, %b, %s, %h : tensor<i32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
  }
  return %r#0, %r#1, %r#2, %r#3 : tensor<i32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
}"""

# What a process carries moves on by one place a step: only the last becomes different at first.
CHAIN = """
func.func @main(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %f = stablehlo.constant dense<1.0> : tensor<f32>
  %r:4 = stablehlo.while(%i = %zero, %a = %f, %b = %f, %c = %x)
      : tensor<i32>, tensor<f32>, tensor<f32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %k = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %k, %b, %c, %f : tensor<i32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
  return %r#1, %r#2, %r#3 : tensor<f32>, tensor<f32>, tensor<f32>
}"""

# A loop inside a branch that never ends for processes that do not take it, and one that ends in none of them.
GUARDED = """
func.func @main(%p: tensor<i1>, %n: tensor<i32>) -> tensor<i32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r = "stablehlo.if"(%p) ({
    %w = stablehlo.while(%i = %zero) : tensor<i32>
    cond {
      %c = stablehlo.compare NE, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %k = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %k : tensor<i32>
    }
    stablehlo.return %w : tensor<i32>
  }, {
    %w = stablehlo.while(%i = %zero) : tensor<i32>
    cond {
      %c = stablehlo.compare GT, %n, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      stablehlo.return %i : tensor<i32>
    }
    stablehlo.return %w : tensor<i32>
  }) : (tensor<i1>) -> tensor<i32>
  return %r : tensor<i32>
}"""


def test_if() -> None:
    assert_stacks(BRANCHES, np.array(True), np.array([1, -0.0, np.nan], np.float32))


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 2**31 - 3])
def test_case(index: int) -> None:
    assert_stacks(CASES, np.array(index, np.int32), np.array([3, -2], np.float32))


@pytest.mark.parametrize("steps", [-1, 0, 4])
def test_while(steps: int) -> None:
    x = np.array([1, 0.1], np.float32)
    assert_stacks(LOOP, np.array(steps, np.int32), x, x / 3)


def test_what_a_loop_carries_becomes_different_step_by_step() -> None:
    assert_stacks(CHAIN, np.array(5, np.float32))


def test_a_loop_ends_for_those_that_are_in_it() -> None:
    grid = spmd.ProcessGrid(PROCESSES, 1)
    simulation = spmd.simulate(spmd.parse(GUARDED), grid)
    (results,) = simulation(np.array([True, False, True]), np.array([3, 0, 5], np.int32))
    assert results.tolist() == [3, 0, 5]


def test_only_what_differs_is_stacked() -> None:
    simulation = spmd.simulate(spmd.parse(LOOP), spmd.ProcessGrid(PROCESSES, 1))
    n, x = np.array([4], np.int32), np.ones((PROCESSES, 2), np.float32)
    results = simulation(n, x, x[:1], collapse=True)
    assert [result.shape[0] for result in results] == [1, PROCESSES, 1, 1]


CALLS = """
func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = call @twice(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.composite "my.twice" %0 {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}"""

TUPLES = """
func.func @main(%x: tensor<2xf32>, %y: tensor<i32>) -> (tensor<2xf32>, tensor<i32>) {
  %t = stablehlo.tuple %x, %y : tuple<tensor<2xf32>, tensor<i32>>
  %n = stablehlo.negate %x : tensor<2xf32>
  %u = stablehlo.tuple %n, %y : tuple<tensor<2xf32>, tensor<i32>>
  %w = stablehlo.tuple %t, %u : tuple<tuple<tensor<2xf32>, tensor<i32>>, tuple<tensor<2xf32>, tensor<i32>>>
  %v = stablehlo.get_tuple_element %w[1]
    : (tuple<tuple<tensor<2xf32>, tensor<i32>>, tuple<tensor<2xf32>, tensor<i32>>>) -> tuple<tensor<2xf32>, tensor<i32>>
  %a = stablehlo.get_tuple_element %v[0] : (tuple<tensor<2xf32>, tensor<i32>>) -> tensor<2xf32>
  %b = stablehlo.get_tuple_element %u[1] : (tuple<tensor<2xf32>, tensor<i32>>) -> tensor<i32>
  %k = stablehlo.create_token : !stablehlo.token
  %j = stablehlo.after_all %k, %k : !stablehlo.token
  %o:3 = stablehlo.optimization_barrier %a, %b, %j : tensor<2xf32>, tensor<i32>, !stablehlo.token
  return %o#0, %o#1 : tensor<2xf32>, tensor<i32>
}"""

QUANTIZED = """
!q = tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25:3, 2.0}>>
!t = tensor<3x2x!quant.uniform<i8:f32:0, {0.5, 0.25:3, 2.0}>>
func.func @main(%x: tensor<2x3xf32>) -> (!q, !t, tensor<2x3xf32>) {
  %q = stablehlo.uniform_quantize %x : (tensor<2x3xf32>) -> !q
  %t = stablehlo.transpose %q, dims = [1, 0] : (!q) -> !t
  %d = stablehlo.uniform_dequantize %q : (!q) -> tensor<2x3xf32>
  return %q, %t, %d : !q, !t, tensor<2x3xf32>
}"""

CAPTURES = """
func.func @main(%x: tensor<4xf32>, %limit: tensor<f32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce"(%x, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    %m = stablehlo.minimum %s, %limit : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}"""


@pytest.mark.parametrize("text", [CALLS, TUPLES, QUANTIZED])
def test_what_holds_values(text: str) -> None:
    arrays = {
        CALLS: [np.array([1, 2], np.float32)],
        TUPLES: [np.array([1, 2], np.float32), np.array(3, np.int32)],
        QUANTIZED: [np.array([[1, 2, 3], [-9, 0.3, 100]], np.float32)],
    }[text]
    assert_stacks(text, *arrays)


def test_a_region_that_captures_what_differs_is_run_by_turns() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    assert_stacks(CAPTURES, x, np.array(4, np.float32), serial=None)


CALL = """
func.func @main(%p: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %r = "stablehlo.if"(%p) ({
    %a = stablehlo.custom_call @stack.test(%x) {has_side_effect = true} : (tensor<2xf32>) -> tensor<2xf32>
    stablehlo.return %a : tensor<2xf32>
  }, {
    stablehlo.return %x : tensor<2xf32>
  }) : (tensor<i1>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}"""


def test_a_custom_call_is_made_by_the_processes_that_come_to_it() -> None:
    seen = []

    def call(x: np.ndarray, attributes: object) -> np.ndarray:
        seen.append(x.tolist())
        return x * 2

    spmd.register_custom_call("stack.test", call)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    simulation = spmd.simulate(spmd.parse(CALL), spmd.ProcessGrid(PROCESSES, 1))
    (results,) = simulation(np.array([True, False, True]), x)
    assert seen == [[0, 1], [4, 5]]
    assert results.tolist() == [[0, 2], [2, 3], [8, 10]]


def test_a_custom_call_that_takes_a_batch_is_made_once() -> None:
    shapes = []

    def call(x: np.ndarray, attributes: object) -> np.ndarray:
        shapes.append(x.shape)
        return x * 2

    spmd.register_custom_call("stack.batch", call, takes_batch=True)
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %a = stablehlo.custom_call @stack.batch(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %a : tensor<2xf32>
    }"""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    (results,) = spmd.simulate(spmd.parse(text), spmd.ProcessGrid(PROCESSES, 1))(x)
    assert shapes == [(3, 2)]
    assert same_bits(results, x * 2)


def test_shapes_that_may_differ_are_refused() -> None:
    text = """func.func @main(%n: tensor<1xi32>) -> tensor<?xi32> {
      %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %0 : tensor<?xi32>
    }"""
    with pytest.raises(spmd.CompileError, match=r"test.mlir:2:\d+: .*dynamic_iota.*cannot be stacked"):
        spmd.simulate(spmd.parse(text, name="test.mlir"), spmd.ProcessGrid(PROCESSES, 1))
