"""Folds in native code whose order shows: extrema that take the last of equal values, and sums in their order."""

from collections.abc import Callable

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array
from spmd.types import ELEMENT_TYPES

EXTREMUM = """func.func @main(%x: tensor<3x{n}xf32>) -> (tensor<3xf32>, tensor<3xi32>) {{
  %i = stablehlo.iota dim = 1 : tensor<3x{n}xi32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [1]
    : (tensor<3x{n}xf32>, tensor<3x{n}xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)
    reducer(%a: tensor<f32>, %b: tensor<f32>) (%j: tensor<i32>, %k: tensor<i32>) {{
      %p = stablehlo.compare {direction}, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %v = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
      %w = stablehlo.select %p, %j, %k : tensor<i1>, tensor<i32>
      stablehlo.return %v, %w : tensor<f32>, tensor<i32>
    }}
  return %r#0, %r#1 : tensor<3xf32>, tensor<3xi32>
}}"""


@pytest.mark.parametrize("n", [4, 15, 64, 200, 1000])
@pytest.mark.parametrize("direction", ["GT", "GE"])
def test_which_of_equal_values_is_found_is_as_in_order(n: int, direction: str) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, n)).astype(np.float32)
    values, places = spmd.compile(spmd.parse(EXTREMUM.format(n=n, direction=direction)))(x)
    np.testing.assert_array_equal(values, x.max(1))
    first, last = x.argmax(1), n - 1 - x[:, ::-1].argmax(1)
    np.testing.assert_array_equal(places, last if direction == "GT" else first)


@pytest.mark.parametrize("shape", [(1000,), (5, 300), (300, 5)])
def test_a_sum_that_is_marked_is_folded_one_after_another(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 1e3
    kind = "tensor<" + "".join(f"{size}x" for size in shape) + "f32>"
    kept = "tensor<" + "".join(f"{size}x" for size in shape[1:]) + "f32>"
    text = f"""func.func @main(%x: {kind}) -> {kept} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce"(%x, %zero) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }}) {{dimensions = array<i64: 0>, spmd_in_order}} : ({kind}, tensor<f32>) -> {kept}
  return %r : {kept}
}}"""
    (got,) = spmd.compile(spmd.parse(text))(x)
    np.testing.assert_array_equal(got, np.add.accumulate(x, axis=0)[-1])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rows", [128, 127 * 3, 1000, 40_000])
@pytest.mark.parametrize("op", ["add", "maximum"])
def test_a_column_has_the_same_bits_however_many_there_are(rows: int, op: str) -> None:
    start = {"add": "0.0", "maximum": "0xFF800000"}[op]

    def fold(x: np.ndarray) -> np.ndarray:
        kind, kept = f"tensor<{rows}x{x.shape[1]}xf32>", f"tensor<{x.shape[1]}xf32>"
        text = f"""func.func @main(%x: {kind}) -> {kept} {{
          %start = stablehlo.constant dense<{start}> : tensor<f32>
          %r = stablehlo.reduce(%x init: %start) applies stablehlo.{op} across dimensions = [0]
            : ({kind}, tensor<f32>) -> {kept}
          return %r : {kept}
        }}"""
        return spmd.compile(spmd.parse(text))(np.ascontiguousarray(x))[0]

    x = np.random.default_rng(rows).standard_normal((rows, 80)).astype(np.float32)
    x[rows // 2, 2], x[-1, 3] = np.nan, -np.inf
    x[:, 1], x[5, 1] = -0.0, 0.0
    whole = fold(x)
    for columns in (2, 7, 8, 16, 32, 64):  # a single one is a row, which is folded in lanes
        assert fold(x[:, :columns]).tobytes() == whole[:columns].tobytes(), columns


@pytest.mark.parametrize("n", [63, 64, 80, 1000, 70_001])
@pytest.mark.parametrize("op", ["and", "or"])
def test_truths_that_much_is_computed_of_are_folded(n: int, op: str) -> None:
    text = f"""func.func @main(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> tensor<i1> {{
      %start = stablehlo.constant dense<{str(op == "and").lower()}> : tensor<i1>
      %e = stablehlo.exponential %x : tensor<{n}xf32>
      %p = stablehlo.compare {"GE" if op == "and" else "LT"}, %e, %y
        : (tensor<{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xi1>
      %r = stablehlo.reduce(%p init: %start) applies stablehlo.{op} across dimensions = [0]
        : (tensor<{n}xi1>, tensor<i1>) -> tensor<i1>
      return %r : tensor<i1>
    }}"""
    run = spmd.compile(spmd.parse(text))
    x, y = np.zeros(n, np.float32), np.zeros(n, np.float32)
    assert run(x, y)[0] == (op == "and")
    for place in (0, n // 2, n - 1):  # one that is not like the others
        other = y.copy()
        other[place] = 2
        assert run(x, other)[0] == (op == "or"), place


@pytest.mark.parametrize("element", ["i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64"])
@pytest.mark.parametrize(("direction", "best"), [("GE", np.argmax), ("LE", np.argmin)])
def test_the_place_of_the_best_integer(element: str, direction: str, best: Callable[[Array], int]) -> None:
    """Of ties the lowest place, as `jnp.argmax` lowers it; both ends of the types are there."""
    dtype = ELEMENT_TYPES[element].dtype
    limits = np.iinfo(dtype)
    worst = limits.min if direction == "GE" else limits.max
    text = f"""func.func @main(%x: tensor<35x{element}>) -> (tensor<{element}>, tensor<i32>) {{
      %i = stablehlo.iota dim = 0 : tensor<35xi32>
      %v = stablehlo.constant dense<{worst}> : tensor<{element}>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.reduce(%x init: %v), (%i init: %z) across dimensions = [0]
        : (tensor<35x{element}>, tensor<35xi32>, tensor<{element}>, tensor<i32>) -> (tensor<{element}>, tensor<i32>)
        reducer(%a: tensor<{element}>, %c: tensor<{element}>) (%b: tensor<i32>, %d: tensor<i32>) {{
          %p = stablehlo.compare {direction}, %a, %c : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
          %s = stablehlo.select %p, %a, %c : tensor<i1>, tensor<{element}>
          %e = stablehlo.compare EQ, %a, %c : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
          %m = stablehlo.minimum %b, %d : tensor<i32>
          %f = stablehlo.select %p, %b, %d : tensor<i1>, tensor<i32>
          %g = stablehlo.select %e, %m, %f : tensor<i1>, tensor<i32>
          stablehlo.return %s, %g : tensor<{element}>, tensor<i32>
        }}
      return %r#0, %r#1 : tensor<{element}>, tensor<i32>
    }}"""
    compiled = spmd.compile(spmd.parse(text))
    for seed in range(5):
        x = np.random.default_rng(seed).choice(np.array([limits.min, 0, 1, limits.max], dtype), 35)
        value, place = compiled(x)
        assert (value, place) == (x[best(x)], best(x))
