"""Transposes next to products become the products' own dimension numbers; the values stay."""

from collections.abc import Callable

import numpy as np
import pytest

import spmd
from spmd.compiler.transforms.simplify import remove_dead
from spmd.compiler.transforms.transpose_folding import fold_transposes
from tests.loops import counted_loop


def transposes(module: spmd.Module) -> int:
    function = module.function("main")
    fold_transposes(function.body)
    remove_dead(function.body)
    spmd.verify(module)
    return sum(op.name == "stablehlo.transpose" for op in function.walk())


def of_result(shapes: tuple[str, str, str], dims: str, permutation: str, result: str, extra: str = "") -> str:
    lhs, rhs, product = (f"tensor<{shape}xf32>" for shape in shapes)
    return f"""func.func @main(%a: {lhs}, %b: {rhs}) -> tensor<{result}xf32> {{
      %p = stablehlo.dot_general %a, %b, {dims}, precision = [HIGH, DEFAULT] : ({lhs}, {rhs}) -> {product}
      %t = stablehlo.transpose %p, dims = {permutation} : ({product}) -> tensor<{result}xf32>
      {extra}
      return %t : tensor<{result}xf32>
    }}"""


MATRICES = (("3x4", "3x5", "4x5"), "contracting_dims = [0] x [0]", "[1, 0]", "5x4")
BATCHED = (("2x3x4", "2x4x5x6", "2x3x5x6"), "batching_dims = [0] x [0], contracting_dims = [2] x [1]")
ONLY_RHS = (("3", "3x5", "5"), "contracting_dims = [0] x [0]", "[0]", "5")


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (of_result(*MATRICES), 0),
        (of_result(*BATCHED, "[0, 2, 3, 1]", "2x5x6x3"), 0),
        (of_result(*BATCHED, "[0, 3, 2, 1]", "2x6x5x3"), 1),  # the dimensions of rhs change their order
        (of_result(*BATCHED, "[2, 3, 0, 1]", "5x6x2x3"), 1),  # the batch is not first
        (of_result(*ONLY_RHS), 0),
        (of_result(*MATRICES, extra="%n = stablehlo.negate %p : tensor<4x5xf32>"), 1),  # read by another as well
    ],
)
def test_a_transpose_of_a_product_is_the_product_of_its_operands_exchanged(program: str, left: int) -> None:
    assert transposes(spmd.parse(program)) == left


def test_precisions_follow_their_operands() -> None:
    module = spmd.parse(of_result(*MATRICES))
    transposes(module)
    assert "%arg1, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, HIGH]" in str(module)


def test_no_product_is_taken_into_a_loop() -> None:
    body = """%t = stablehlo.transpose %p, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %u = stablehlo.add %v, %t : tensor<4x4xf32>"""
    text = f"""func.func @main(%a: tensor<3x4xf32>, %n: tensor<i32>) -> tensor<4x4xf32> {{
      %p = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0]
        : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<4x4xf32>
      %z = stablehlo.constant dense<0.0> : tensor<4x4xf32>
    {counted_loop("tensor<4x4xf32>", body, start="%z")}
      return %r#1 : tensor<4x4xf32>
    }}"""
    assert transposes(spmd.parse(text)) == 1


Compute = Callable[[np.ndarray, np.ndarray], np.ndarray]


@pytest.mark.parametrize(
    ("dims", "permutation", "expected"),
    [
        ("[1, 0]", "[1, 0]", lambda a, b: (a.T @ b).T),
        ("[0, 1]", "[1, 0]", lambda a, b: (a @ b).T),
        ("[1, 0]", "[0, 1]", lambda a, b: a.T @ b),
    ],
)
def test_values_stay(dims: str, permutation: str, expected: Compute) -> None:
    text = f"""func.func @main(%a: tensor<7x7xf64>, %b: tensor<7x7xf64>) -> tensor<7x7xf64> {{
      %s = stablehlo.transpose %a, dims = {dims} : (tensor<7x7xf64>) -> tensor<7x7xf64>
      %p = stablehlo.dot_general %s, %b, contracting_dims = [1] x [0]
        : (tensor<7x7xf64>, tensor<7x7xf64>) -> tensor<7x7xf64>
      %t = stablehlo.transpose %p, dims = {permutation} : (tensor<7x7xf64>) -> tensor<7x7xf64>
      return %t : tensor<7x7xf64>
    }}"""
    a, b = np.random.default_rng(0).standard_normal((2, 7, 7))
    np.testing.assert_allclose(spmd.compile(spmd.parse(text))(a, b)[0], expected(a, b), rtol=1e-12)
