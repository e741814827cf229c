"""Ends and insides of loops give the same bits as the reference, wherever a loop is cut."""

from collections.abc import Callable

import numpy as np
import pytest

import spmd


def stencil(rows: int, columns: int) -> tuple[str, str]:
    here, padded = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows + 2}x{columns + 2}xf32>"
    return (
        here,
        f"""%p = stablehlo.pad %x, %z, low = [1, 1], high = [1, 1], interior = [0, 0]
        : ({here}, tensor<f32>) -> {padded}
      %a = stablehlo.slice %p [2:{rows + 2}, 1:{columns + 1}] : ({padded}) -> {here}
      %b = stablehlo.slice %p [1:{rows + 1}, 0:{columns}] : ({padded}) -> {here}
      %s = stablehlo.subtract %a, %b : {here}
      %y = stablehlo.multiply %s, %x : {here}""",
    )


def cropped_and_spread(rows: int, columns: int) -> tuple[str, str]:
    result = f"tensor<{2 * rows}x{columns + 2}xf32>"
    return (
        result,
        f"""%y = stablehlo.pad %x, %z, low = [-1, 3], high = [2, -1], interior = [1, 0]
        : (tensor<{rows}x{columns}xf32>, tensor<f32>) -> {result}""",
    )


def interleaved(rows: int, columns: int) -> tuple[str, str]:
    """Padding between elements of both dimensions: each element of the result comes from one of the operands."""
    here, result = f"tensor<{rows}x{columns}xf32>", f"tensor<{2 * rows - 1}x{3 * columns - 1}xf32>"
    return (
        result,
        f"""%n = stablehlo.negate %x : {here}
      %a = stablehlo.pad %x, %z, low = [0, 1], high = [0, 0], interior = [1, 2] : ({here}, tensor<f32>) -> {result}
      %b = stablehlo.pad %n, %z, low = [1, -4], high = [-1, 5], interior = [1, 2] : ({here}, tensor<f32>) -> {result}
      %s = stablehlo.add %a, %b : {result}
      %y = stablehlo.reverse %s, dims = [1] : {result}""",
    )


def spread_twice(rows: int, columns: int) -> tuple[str, str]:
    """Padding between the elements of a part of an array that has padding between its elements."""
    here, once = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}x{2 * columns}xf32>"
    part, result = f"tensor<{rows}x{2 * columns - 3}xf32>", f"tensor<{rows}x{4 * columns - 5}xf32>"
    return (
        result,
        f"""%a = stablehlo.pad %x, %z, low = [0, 1], high = [0, 0], interior = [0, 1] : ({here}, tensor<f32>) -> {once}
      %p = stablehlo.slice %a [0:{rows}, 3:{2 * columns}] : ({once}) -> {part}
      %y = stablehlo.pad %p, %z, low = [0, 1], high = [0, 1], interior = [0, 1] : ({part}, tensor<f32>) -> {result}""",
    )


def first_column_of_neighbours(rows: int, columns: int) -> tuple[str, str]:
    """What depends on the rows alone is read in the outer loop, where it may be beyond the operand's ends."""
    here, padded = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}x1xf32>"
    return (
        here,
        f"""%f = stablehlo.slice %x [0:{rows}, 0:1] : ({here}) -> {padded}
      %p = stablehlo.pad %f, %z, low = [{rows // 3}, 0], high = [-{rows // 3}, 0], interior = [0, 0]
        : ({padded}, tensor<f32>) -> {padded}
      %b = stablehlo.broadcast_in_dim %p, dims = [0, 1] : ({padded}) -> {here}
      %y = stablehlo.add %b, %x : {here}""",
    )


def frame(rows: int, columns: int) -> tuple[str, str]:
    here, numbers, bits = (f"tensor<{rows}x{columns}x{element}>" for element in ("f32", "i32", "i1"))
    return (
        here,
        f"""%i = stablehlo.iota dim = 0 : {numbers}
      %j = stablehlo.iota dim = 1 : {numbers}
      %first = stablehlo.constant dense<0> : {numbers}
      %last = stablehlo.constant dense<{columns - 1}> : {numbers}
      %t = stablehlo.compare EQ, %i, %first, SIGNED : ({numbers}, {numbers}) -> {bits}
      %e = stablehlo.compare GE, %j, %last, SIGNED : ({numbers}, {numbers}) -> {bits}
      %m = stablehlo.or %t, %e : {bits}
      %n = stablehlo.negate %x : {here}
      %y = stablehlo.select %m, %n, %x : {bits}, {here}""",
    )


def largest_of_windows(rows: int, columns: int) -> tuple[str, str]:
    here = f"tensor<{rows}x{columns}xf32>"
    return (
        here,
        f"""%y = "stablehlo.reduce_window"(%x, %z) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %g = stablehlo.maximum %a, %b : tensor<f32>
        stablehlo.return %g : tensor<f32>
      }}) {{window_dimensions = array<i64: 3, 4>, padding = dense<[[1, 1], [0, 3]]> : tensor<2x2xi64>}}
        : ({here}, tensor<f32>) -> {here}""",
    )


def smallest_of_parts(rows: int, columns: int) -> tuple[str, str]:
    """Of a stack of three parts, the second of two layers: each place of the folded loop reads one of them."""
    layer, layers, both = (f"tensor<{count}x{rows}x{columns}xf32>" for count in (1, 2, 4))
    here = f"tensor<{rows}x{columns}xf32>"
    return (
        here,
        f"""%n = stablehlo.negate %x : {here}
      %s = stablehlo.reverse %x, dims = [0, 1] : {here}
      %a = stablehlo.broadcast_in_dim %n, dims = [1, 2] : ({here}) -> {layer}
      %b = stablehlo.broadcast_in_dim %x, dims = [1, 2] : ({here}) -> {layers}
      %c = stablehlo.broadcast_in_dim %s, dims = [1, 2] : ({here}) -> {layer}
      %t = stablehlo.concatenate %a, %b, %c, dim = 0 : ({layer}, {layers}, {layer}) -> {both}
      %y = stablehlo.reduce(%t init: %z) applies stablehlo.minimum across dimensions = [0]
        : ({both}, tensor<f32>) -> {here}""",
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (35, 47), (8, 160)])
@pytest.mark.parametrize(
    "program",
    [
        stencil,
        cropped_and_spread,
        interleaved,
        spread_twice,
        first_column_of_neighbours,
        frame,
        largest_of_windows,
        smallest_of_parts,
    ],
)
def test_points_at_the_ends_and_inside(
    program: Callable[[int, int], tuple[str, str]], rows: int, columns: int, threads: int
) -> None:
    result, body = program(rows, columns)
    module = spmd.parse(f"""func.func @main(%x: tensor<{rows}x{columns}xf32>, %z: tensor<f32>) -> {result} {{
      {body}
      return %y : {result}
    }}""")
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    x[0, 0], x[-1, -1], x[rows // 2, columns // 2] = np.inf, np.nan, -0.0
    for outside in (np.float32(-0.0), np.float32(np.inf)):
        (expected,) = spmd.compile(module, backends=("numpy",))(x, outside)
        (y,) = spmd.compile(module, threads=threads)(x, outside)
        np.testing.assert_array_equal(y, expected)
        numbers = ~np.isnan(expected)  # a NaN's sign means nothing
        np.testing.assert_array_equal(np.signbit(y)[numbers], np.signbit(expected)[numbers])
