"""Ops of rank 0, which run on NumPy's scalars: what the same ops on arrays give, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.types import ELEMENT_TYPES

DTYPES = {"i8": np.int8, "ui16": np.uint16, "i32": np.int32, "i64": np.int64, "f16": np.float16, "f32": np.float32,
          "f64": np.float64}  # fmt: skip
BINARY = [
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "and", "or", "xor",
    "shift_left", "shift_right_logical", "shift_right_arithmetic",
]  # fmt: skip
UNARY = ["abs", "negate", "not", "sign"]


def _values(dtype: type) -> list[np.ndarray]:
    if np.dtype(dtype).kind == "f":
        return [np.array(v, dtype) for v in (0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, np.finfo(dtype).max)]
    limits = np.iinfo(dtype)
    return [np.array(v, dtype) for v in {0, 1, 3, limits.max, limits.min, limits.min // 2, limits.max - 1}]


def _runs(op: str, element: str, arity: int) -> tuple[spmd.Executable, spmd.Executable] | None:
    """`op` on rank 0 and on one element of rank 1; None where it is not defined on the type."""
    executables = []
    for tensor in (f"tensor<{element}>", f"tensor<1x{element}>"):
        names = ["%x", "%y"][:arity]
        text = f"""func.func @main({", ".join(f"{name}: {tensor}" for name in names)}) -> {tensor} {{
  %r = stablehlo.{op} {", ".join(names)} : {tensor}
  return %r : {tensor}
}}"""
        try:
            executables.append(spmd.compile(spmd.parse(text)))
        except spmd.VerificationError:
            return None
    return executables[0], executables[1]


def _same(scalar: np.ndarray, array: np.ndarray) -> None:
    assert scalar.shape == () and scalar.dtype == array.dtype
    assert scalar.tobytes() == array.tobytes() or (np.isnan(scalar) and np.isnan(array[0]))


@pytest.mark.sampled(18)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("op", BINARY)
def test_binary_ops_give_what_they_give_on_arrays(op: str, element: str) -> None:
    runs = _runs(op, element, 2)
    for x in _values(DTYPES[element]) if runs else ():
        for y in _values(DTYPES[element]):
            assert runs is not None
            _same(runs[0](x, y)[0], runs[1](x[None], y[None])[0])


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("op", UNARY)
def test_unary_ops_give_what_they_give_on_arrays(op: str, element: str) -> None:
    runs = _runs(op, element, 1)
    for x in _values(DTYPES[element]) if runs else ():
        assert runs is not None
        _same(runs[0](x)[0], runs[1](x[None])[0])


@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
@pytest.mark.parametrize("element", ["i32", "f32"])
def test_comparisons_and_choices(direction: str, element: str) -> None:
    tensor = f"tensor<{element}>"
    text = f"""func.func @main(%x: {tensor}, %y: {tensor}) -> (tensor<i1>, {tensor}) {{
  %p = stablehlo.compare {direction}, %x, %y : ({tensor}, {tensor}) -> tensor<i1>
  %r = stablehlo.select %p, %x, %y : tensor<i1>, {tensor}
  return %p, %r : tensor<i1>, {tensor}
}}"""
    run = spmd.compile(spmd.parse(text))
    compare = {"EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal,
               "LT": np.less}[direction]  # fmt: skip
    for x in _values(DTYPES[element]):
        for y in _values(DTYPES[element]):
            pred, chosen = run(x, y)
            assert pred.dtype == np.bool_ and pred == compare(x, y)
            assert chosen.tobytes() == (x if compare(x, y) else y).tobytes()


def test_what_is_handed_on_is_not_the_callers() -> None:
    text = """func.func @main(%p: tensor<i1>, %x: tensor<f32>, %y: tensor<1xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %0 = stablehlo.select %p, %x, %x : tensor<i1>, tensor<f32>
  %1 = stablehlo.reshape %y : (tensor<1xf32>) -> tensor<f32>
  %c = stablehlo.constant dense<-1.0> : tensor<f32>
  %2 = stablehlo.maximum %x, %c : tensor<f32>
  return %0, %1, %2 : tensor<f32>, tensor<f32>, tensor<f32>
}"""  # noqa: E501 - a program stands as it is printed
    x, y = np.array(3, np.float32), np.array([4], np.float32)
    results = spmd.compile(spmd.parse(text))(np.bool_(True), x, y)
    x[...], y[...] = 7, 8
    assert [float(result) for result in results] == [3, 4, 3]


def test_a_loop_counts_and_fills_an_array() -> None:
    text = """func.func @main(%n: tensor<i32>, %x: tensor<5xi32>) -> tensor<5xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<5xi32> cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %v = stablehlo.multiply %i, %i : tensor<i32>
    %at = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
    %b = "stablehlo.scatter"(%a, %at, %v) <{
      scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>
    }> ({
    ^bb0(%old: tensor<i32>, %new: tensor<i32>):
      %s = stablehlo.add %old, %new : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) : (tensor<5xi32>, tensor<1xi32>, tensor<i32>) -> tensor<5xi32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %b : tensor<i32>, tensor<5xi32>
  }
  return %r#1 : tensor<5xi32>
}"""
    x = np.full(5, 100, np.int32)
    for turns in (3, 9):  # what lies beyond the array is skipped
        (result,) = spmd.compile(spmd.parse(text))(np.int32(turns), x)
        np.testing.assert_array_equal(result, [100 + i * i if i < turns else 100 for i in range(5)])


@pytest.mark.parametrize("backends", [("numpy",), ("llvm", "numpy")])
@pytest.mark.parametrize("element", ["bf16", "f8E4M3FN", "i4", "ui2", "f32"])
@pytest.mark.parametrize(
    "body",
    [
        "stablehlo.maximum %a, %b : tensor<E>",
        "stablehlo.minimum %a, %b : tensor<E>",
        "stablehlo.select %p, %a, %b : tensor<i1>, tensor<E>",
        "stablehlo.clamp %b, %a, %a : tensor<E>",
    ],
)
def test_a_result_is_nobody_elses(body: str, element: str, backends: tuple[str, ...]) -> None:
    text = """func.func @main(%p: tensor<i1>, %a: tensor<E>, %b: tensor<E>) -> (tensor<E>, tensor<E>) {
      %r = BODY
      return %r, %r : tensor<E>, tensor<E>
    }""".replace("BODY", body).replace("<E>", f"<{element}>")
    dtype = ELEMENT_TYPES[element].dtype
    inputs = [np.array(True), np.array(1, dtype), np.array(0, dtype)]
    first, second = spmd.compile(spmd.parse(text), backends=backends)(*inputs)
    assert first == second
    assert not np.shares_memory(first, second)
    assert not any(np.shares_memory(result, array) for result in (first, second) for array in inputs)
