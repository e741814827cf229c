"""What a loop carries is written over only where nobody reads it any more."""

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.types import ELEMENT_TYPES
from tests.backends.together import Cases, Program, for_numpy, together
from tests.loops import counted_loop


@pytest.mark.parametrize("shape", [(8, 3), (1, 8, 3), (1, 8, 1, 3)])
def test_rows_turn_round_in_a_loop(shape: tuple[int, ...]) -> None:
    """The parts of a concatenation read what the loop carries, seen through a reshape or not."""
    axis = shape.index(8)
    kind = lambda rows: f"tensor<{'x'.join(str(rows if k == axis else n) for k, n in enumerate(shape))}xf32>"  # noqa: E731
    cut = lambda a, b: ", ".join(f"{a}:{b}" if k == axis else f"0:{n}" for k, n in enumerate(shape))  # noqa: E731
    body = f"""%w = stablehlo.reshape %v : (tensor<8x3xf32>) -> {kind(8)}
      %p = stablehlo.slice %w [{cut(7, 8)}] : ({kind(8)}) -> {kind(1)}
      %q = stablehlo.slice %w [{cut(0, 7)}] : ({kind(8)}) -> {kind(7)}
      %h = stablehlo.concatenate %p, %q, dim = {axis} : ({kind(1)}, {kind(7)}) -> {kind(8)}
      %u = stablehlo.reshape %h : ({kind(8)}) -> tensor<8x3xf32>"""
    text = f"""func.func @main(%x: tensor<8x3xf32>) -> tensor<8x3xf32> {{
{counted_loop("tensor<8x3xf32>", body, 1001)}
      return %r#1 : tensor<8x3xf32>
    }}"""
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    (result,) = spmd.compile(spmd.parse(text))(x)
    assert result.tolist() == np.roll(x, 1001 % 8, axis=0).tolist()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("element", ["f32", "f64", "ui8", "i16"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (15, 40), (17, 16), (33, 47), (160, 331)])
@together
def test_transposed_operands(element: str, rows: int, columns: int) -> Cases:
    """Blocks that are turned, what is left of both loops, masks, and parts for threads."""
    text = f"""func.func @main(%x: tensor<{rows}x3x{columns}x{element}>, %p: tensor<{element}>)
        -> (tensor<{columns}x3x{rows}x{element}>, tensor<{columns + 3}x3x{rows + 1}x{element}>) {{
      %t = stablehlo.transpose %x, dims = [2, 1, 0]
        : (tensor<{rows}x3x{columns}x{element}>) -> tensor<{columns}x3x{rows}x{element}>
      %r = stablehlo.reverse %t, dims = [2] : tensor<{columns}x3x{rows}x{element}>
      %s = stablehlo.add %t, %r : tensor<{columns}x3x{rows}x{element}>
      %q = stablehlo.pad %t, %p, low = [2, 0, 1], high = [1, 0, 0], interior = [0, 0, 0]
        : (tensor<{columns}x3x{rows}x{element}>, tensor<{element}>) -> tensor<{columns + 3}x3x{rows + 1}x{element}>
      return %s, %q : tensor<{columns}x3x{rows}x{element}>, tensor<{columns + 3}x3x{rows + 1}x{element}>
    }}"""
    dtype = ELEMENT_TYPES[element].dtype
    x = (np.random.default_rng(0).standard_normal((rows, 3, columns)) * 50).astype(dtype)
    arrays = [x, dtype.type(7)]
    plain, *native = yield for_numpy(text, *arrays), *(Program(text, arrays, {"threads": n}) for n in (1, 2, 3))
    for results in native:
        for mine, other in zip(results, plain, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("columns", [16, 17, 18, 33, 65])
@pytest.mark.parametrize(("element", "dtype"), [("i8", np.int8), ("ui16", np.uint16), ("bf16", ml_dtypes.bfloat16)])
def test_rows_that_end_with_a_single_lane_leave_the_next_row_alone(columns: int, element: str, dtype: type) -> None:
    """The result is written over the argument, row by row: what is written too far is read by the next row."""
    narrow, wide = (f"tensor<20x{columns}x{type}>" for type in (element, "f32" if element == "bf16" else "i32"))
    row = wide.replace("20x", "")
    text = f"""func.func @main(%x: {narrow}, %r: {row}) -> {narrow} {{
      %w = stablehlo.convert %x : ({narrow}) -> {wide}
      %b = stablehlo.broadcast_in_dim %r, dims = [1] : ({row}) -> {wide}
      %p = stablehlo.multiply %w, %b : {wide}
      %y = stablehlo.convert %p : ({wide}) -> {narrow}
      return %y : {narrow}
    }}"""
    rng = np.random.default_rng(0)
    x, r = rng.integers(1, 11, (20, columns)).astype(dtype), rng.integers(1, 11, columns)
    expected = (x.astype(np.int64) * r).astype(dtype)
    factors = r.astype(np.float32 if element == "bf16" else np.int32)
    (result,) = spmd.compile(spmd.parse(text), donate=(0,))(x, factors)
    np.testing.assert_array_equal(result, expected)
