"""Nests that only copy are calls of one piece of code, and copy what the same nests do where they stand."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.loops import copies
from spmd.backends.llvm.loops.copies import apart_copy_of
from spmd.backends.llvm.loops.loops import Range
from spmd.compiler.schedule.copies import Copy
from spmd.compiler.schedule.nest import Nest
from spmd.support.arrays import DType
from tests.backends.modules import type_of

SHAPE = (3, 2, 5, 41)


def program(op: str, element: str, out: tuple[int, ...]) -> str:
    before, after = type_of((element, SHAPE)), type_of((element, out))
    padding = "true" if element == "i1" else "-3" if element.startswith("i") else "-0.0"
    return f"""func.func @main(%x: {before}) -> {after} {{
      %c = stablehlo.constant dense<{padding}> : tensor<{element}>
      %r = {op.format(before=before, after=after, element=element)}
      return %r : {after}
    }}"""


def dtype_of(text: str) -> DType:
    return spmd.parse(text).functions[0].arguments[0].tensor.dtype


def pad(low: list[int], high: list[int]) -> tuple[str, tuple[int, ...]]:
    """A padding, and the shape that it gives."""
    out = tuple(size + before + after for size, before, after in zip(SHAPE, low, high, strict=True))
    how = f"low = {low}, high = {high}, interior = {[0] * len(SHAPE)}"
    return f"stablehlo.pad %x, %c, {how} : ({{before}}, tensor<{{element}}>) -> {{after}}", out


OPS = {
    "slice": ("stablehlo.slice %x [1:3, 0:2, 1:4, 2:39] : ({before}) -> {after}", (2, 2, 3, 37)),
    "rows of all": ("stablehlo.slice %x [0:3, 0:2, 2:5, 0:41] : ({before}) -> {after}", (3, 2, 3, 41)),
    "transpose": ("stablehlo.transpose %x, dims = [2, 1, 0, 3] : ({before}) -> {after}", (5, 2, 3, 41)),
    "reverse": ("stablehlo.reverse %x, dims = [1, 2] : {after}", SHAPE),
    "pad of rows": pad([0, 0, 1, 0], [0, 0, 2, 0]),
    "pad around": pad([1, 0, 2, 3], [0, 1, 1, 33]),
    "pad in front": pad([0, 0, 0, 1], [0, 0, 0, 0]),
    "pad and cut": pad([0, 1, -2, -1], [1, 0, 1, 64]),
}


@pytest.mark.parametrize("element", ["f64", "f32", "i64"])
@pytest.mark.parametrize("name", OPS)
def test_copies_out_of_line_are_those_that_stand_where_they_are_used(
    name: str, element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, out = OPS[name]
    text = program(op, element, out)
    found: list[Copy | None] = []

    def noted(nest: Nest, part: Range | None = None) -> Copy | None:
        found.append(apart_copy_of(nest, part))
        return found[-1]

    monkeypatch.setattr(copies, "_LEAST_ROW", 1)
    monkeypatch.setattr(copies, "_LEAST", 1)
    monkeypatch.setattr(copies, "apart_copy_of", noted)
    x = np.random.default_rng(0).integers(-(2**31), 2**31, SHAPE).astype(dtype_of(text))
    (apart,) = spmd.compile(spmd.parse(text), threads=1)(x)
    assert any(found)
    monkeypatch.setattr(copies, "_LEAST", 1 << 40)
    (inside,) = spmd.compile(spmd.parse(text), threads=1)(x)
    np.testing.assert_array_equal(apart.view(np.uint8), inside.view(np.uint8))


@pytest.mark.parametrize("element", ["i1", "i8", "i16", "bf16"])
def test_rows_of_narrow_elements(element: str) -> None:
    op, out = pad([0, 0, 1, 0], [0, 1, 0, 200])
    text = program(op, element, out)
    dtype = dtype_of(text)
    x = np.random.default_rng(0).integers(0, 2, SHAPE).astype(dtype)
    (got,) = spmd.compile(spmd.parse(text), threads=1)(x)
    wanted = np.full(out, np.array(True if element == "i1" else -3 if element[0] == "i" else -0.0).astype(dtype))
    wanted[:, :2, 1:, :41] = x
    np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


def test_images_of_a_batch_are_copied_one_by_one() -> None:
    before, after = "tensor<3x40x48x16xf32>", "tensor<3x40x48x16xf32>"
    text = f"""func.func @main(%x: {before}, %k: tensor<3x3x16x16xf32>) -> {after} {{
      %r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[1, 1], [2, 0]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : ({before}, tensor<3x3x16x16xf32>) -> {after}
      return %r : {after}
    }}"""
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, (3, 40, 48, 16)).astype(np.float32)
    k = rng.integers(-4, 5, (3, 3, 16, 16)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1), (2, 0), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    np.testing.assert_array_equal(
        spmd.compile(spmd.parse(text), threads=1)(x, k)[0], np.einsum("bhwcij,ijco->bhwo", windows, k)
    )
