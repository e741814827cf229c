"""Columns of large arrays are folded strip by strip, with the bits of folds of a few columns at a time."""

from collections.abc import Sequence

import numpy as np
import pytest

import spmd
from spmd.compiler.schedule import loop_plan
from spmd.support.arrays import Array

SUM = """func.func @main(%x: tensor<{shape}x{type}>) -> tensor<{kept}x{type}> {{
  %zero = stablehlo.constant dense<0.0> : tensor<{type}>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [{axis}]
      : (tensor<{shape}x{type}>, tensor<{type}>) -> tensor<{kept}x{type}>
  return %0 : tensor<{kept}x{type}>
}}"""

SOFTMAX = """func.func @main(%x: tensor<{shape}xf32>) -> tensor<{shape}xf32> {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %most = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [{axis}]
      : (tensor<{shape}xf32>, tensor<f32>) -> tensor<{kept}xf32>
  %all = stablehlo.broadcast_in_dim %most, dims = [{others}] : (tensor<{kept}xf32>) -> tensor<{shape}xf32>
  %less = stablehlo.subtract %x, %all : tensor<{shape}xf32>
  %exp = stablehlo.exponential %less : tensor<{shape}xf32>
  %total = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [{axis}]
      : (tensor<{shape}xf32>, tensor<f32>) -> tensor<{kept}xf32>
  %sums = stablehlo.broadcast_in_dim %total, dims = [{others}] : (tensor<{kept}xf32>) -> tensor<{shape}xf32>
  %0 = stablehlo.divide %exp, %sums : tensor<{shape}xf32>
  return %0 : tensor<{shape}xf32>
}}"""

#: Shapes and what is folded: strips that are whole and not, columns that do not fill lanes, few rows and many, batches.
SHAPES = [
    ((4096, 130), 0),
    ((300, 1100), 0),
    ((9, 40_000), 0),
    ((130, 2048), 0),
    ((6000, 191), 0),
    ((3, 100, 1500), 1),
]


def module(text: str, shape: Sequence[int], axis: int, type: str = "f32") -> spmd.Module:
    others = [dimension for dimension in range(len(shape)) if dimension != axis]
    kept = "x".join(str(shape[dimension]) for dimension in others)
    return spmd.parse(
        text.format(shape="x".join(map(str, shape)), kept=kept, axis=axis, others=str(others)[1:-1], type=type)
    )


def special(shape: Sequence[int], dtype: type) -> Array:
    """Numbers of all sizes, zeros of both signs, and in some columns infinities and NaNs."""
    rng = np.random.default_rng(shape[-1])
    array = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3, shape)).astype(dtype)
    array[..., 5] = -0.0
    array[..., 3, 7], array[..., 4, 8], array[..., 2, 9] = np.inf, -np.inf, np.nan
    return array


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("text", "type"), [(SUM, "f32"), (SUM, "f64"), (SUM, "f16"), (SOFTMAX, "f32")])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_strips_have_the_bits_of_single_columns(
    text: str, type: str, shape: Sequence[int], axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, array = (
        module(text, shape, axis, type),
        special(shape, {"f64": np.float64, "f16": np.float16}.get(type, np.float32)),
    )
    strips, is_column_tiled = [], loop_plan._is_column_tiled

    def spied(*arguments: object) -> bool:
        strips.append(is_column_tiled(*arguments))  # type: ignore[arg-type]
        return strips[-1]

    monkeypatch.setattr(loop_plan, "_is_column_tiled", spied)
    found = [spmd.compile(program, threads=threads)(array)[0] for threads in (1, 2, 3)]
    assert any(strips)
    monkeypatch.setattr(loop_plan, "_is_column_tiled", lambda *arguments: False)
    (expected,) = spmd.compile(program)(array)
    for result in found:
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result[~np.isnan(result)]), np.signbit(expected[~np.isnan(expected)]))


def test_places_of_extremes_are_those_of_the_first() -> None:
    """Values and places folded together, where many are equal."""
    array = np.random.default_rng(0).integers(0, 50, (3000, 193)).astype(np.float32)
    program = spmd.parse("""func.func @main(%x: tensor<3000x193xf32>) -> (tensor<193xf32>, tensor<193xi32>) {
      %places = stablehlo.iota dim = 0 : tensor<3000x193xi32>
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %first = stablehlo.constant dense<0> : tensor<i32>
      %0:2 = stablehlo.reduce(%x init: %low), (%places init: %first) across dimensions = [0]
          : (tensor<3000x193xf32>, tensor<3000x193xi32>, tensor<f32>, tensor<i32>)
            -> (tensor<193xf32>, tensor<193xi32>)
        reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
          %more = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %same = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %before = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
          %tie = stablehlo.and %same, %before : tensor<i1>
          %take = stablehlo.or %more, %tie : tensor<i1>
          %value = stablehlo.select %take, %a, %b : tensor<i1>, tensor<f32>
          %place = stablehlo.select %take, %i, %j : tensor<i1>, tensor<i32>
          stablehlo.return %value, %place : tensor<f32>, tensor<i32>
        }
      return %0#0, %0#1 : tensor<193xf32>, tensor<193xi32>
    }""")
    values, places = spmd.compile(program)(array)
    np.testing.assert_array_equal(values, array.max(0))
    np.testing.assert_array_equal(places, array.argmax(0))
