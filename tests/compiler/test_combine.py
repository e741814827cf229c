"""Combining all_reduces: fewer messages, the same results in the same order of effects."""

import numpy as np
import pytest

import spmd
from spmd.compiler.transforms.combine import combine
from spmd.ir import Function

REDUCE = """"stablehlo.all_reduce"(OPERAND) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.KIND %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<GROUPS> : tensor<1x2xi64>} : (tensor<Nxf32>) -> tensor<Nxf32>"""


def reduce(operand: str, length: int, kind: str = "add", groups: str = "[[0, 1]]") -> str:
    text = REDUCE.replace("OPERAND", operand).replace("KIND", kind).replace("GROUPS", groups)
    return text.replace("Nxf32", f"{length}xf32")


def program(*lines: str) -> spmd.Module:
    body = "\n".join(lines)
    text = "(%x: tensor<4xf32>, %y: tensor<3xf32>)"
    return spmd.parse(f"func.func @main{text} -> (tensor<4xf32>, tensor<3xf32>) {{\n{body}\n}}", name="t.mlir")


def sizes(module: spmd.Module, threshold: int = 1 << 20) -> list[int]:
    """How many operands each all_reduce has after combining."""
    function: Function = module.function("main")
    combine(function.body, threshold)
    return [len(op.operands) for op in function.walk() if op.name == "stablehlo.all_reduce"]


RETURN = "return %p, %q : tensor<4xf32>, tensor<3xf32>"
TWO = (f"%p = {reduce('%x', 4)}", f"%q = {reduce('%y', 3)}", RETURN)


def test_neighbours_become_one() -> None:
    assert sizes(program(*TWO)) == [2]


def test_what_is_larger_than_the_threshold_stays_apart() -> None:
    assert sizes(program(*TWO), threshold=27) == [1, 1]
    assert sizes(program(*TWO), threshold=28) == [2]
    assert sizes(program(*TWO), threshold=0) == [1, 1]


def test_a_large_one_between_does_not_keep_small_ones_apart() -> None:
    small = "%one = stablehlo.slice %y [0:1] : (tensor<3xf32>) -> tensor<1xf32>"
    lines = [small, f"%m = {reduce('%one', 1)}", f"%p = {reduce('%x', 4)}", f"%q = {reduce('%y', 3)}", RETURN]
    assert sizes(program(*lines), threshold=15) == [1, 1, 1]
    module = program(small, f"%m = {reduce('%one', 1)}", f"%p = {reduce('%x', 4)}", f"%n = {reduce('%one', 1)}",
                     f"%q = {reduce('%y', 3)}", RETURN)  # fmt: skip
    assert sizes(module, threshold=12) == [1, 2, 1]


def test_one_that_needs_the_other_waits_for_it() -> None:
    first, second = f"%m = {reduce('%x', 4)}", f"%p = {reduce('%m', 4)}"
    assert sizes(program(first, second, f"%q = {reduce('%y', 3)}", RETURN)) == [1, 2]


def test_other_reductions_and_other_groups_stay_apart() -> None:
    assert sizes(program(TWO[0], f"%q = {reduce('%y', 3, 'maximum')}", RETURN)) == [1, 1]
    assert sizes(program(TWO[0], f"%q = {reduce('%y', 3, groups='[[1, 0]]')}", RETURN)) == [1, 1]


def test_no_effect_is_overtaken() -> None:
    token = "%t = stablehlo.after_all : !stablehlo.token"
    out = '%u = "stablehlo.outfeed"(%x, %t) : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token'
    assert sizes(program(token, TWO[0], out, TWO[1], RETURN)) == [1, 1]


@pytest.mark.parametrize("threshold", [0, 1 << 20])
def test_results_are_the_same(threshold: int) -> None:
    module = program(TWO[0], "%d = stablehlo.multiply %y, %y : tensor<3xf32>", f"%q = {reduce('%d', 3)}", RETURN)
    inputs = [(np.full(4, r, np.float32), np.arange(3, dtype=np.float32) + r) for r in range(2)]
    grid = spmd.ProcessGrid(2, 1)
    for p, q in spmd.run_parallel(module, grid, inputs, combine_threshold=threshold):
        np.testing.assert_array_equal(p, np.ones(4, np.float32))
        np.testing.assert_array_equal(q, np.array([1, 5, 13], np.float32))
