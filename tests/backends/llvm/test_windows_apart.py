"""Depthwise convolutions by the piece of code that all share: the bits of the loops that stand where they are used."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.emit import math_library as functions
from spmd.backends.llvm.loops import windows
from spmd.backends.llvm.loops.loops import Range
from spmd.backends.llvm.loops.windows import WindowSums, apart_window_of
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.windows import WindowFold


def depthwise(
    features: int,
    image: str = "2x9x7",
    kernel: str = "3x3",
    window: str = "pad = [[1, 1], [1, 1]]",
    element: str = "f32",
) -> str:
    x, k = f"tensor<{image}x{features}x{element}>", f"tensor<{kernel}x1x{features}x{element}>"
    spatial = ", ".join("01"[: len(kernel.split("x"))])
    numbers = f"[b, {spatial}, f]x[{spatial}, i, o]->[b, {spatial}, f]"
    text = f"""func.func @main(%x: {x}, %k: {k}) -> RESULT {{
      %r = stablehlo.convolution(%x, %k) dim_numbers = {numbers}, window = {{{window}}}
        {{batch_group_count = 1 : i64, feature_group_count = {features} : i64}} : ({x}, {k}) -> RESULT
      return %r : RESULT
    }}"""
    return text


def both(text: str, result: str, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """What the shared code gives, and the loops."""
    module_text = text.replace("RESULT", result)
    arguments = [argument.tensor for argument in spmd.parse(module_text).functions[0].arguments]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(each.static_shape).astype(each.dtype) for each in arguments]
    arrays[1].flat[:2] = np.inf, np.nan
    found: list[WindowFold | None] = []

    def noted(nest: Nest, part: Range | None = None) -> WindowFold | None:
        found.append(apart_window_of(nest, part))
        return found[-1]

    monkeypatch.setattr(windows, "apart_window_of", noted)
    monkeypatch.setattr(windows, "_LEAST", 1)
    (apart,) = spmd.compile(spmd.parse(module_text), threads=1)(*arrays)
    assert any(found)
    monkeypatch.setattr(windows, "_LEAST", 1 << 60)
    (inside,) = spmd.compile(spmd.parse(module_text), threads=1)(*arrays)
    return apart, inside


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (depthwise(64), "tensor<2x9x7x64xf32>"),
        (depthwise(70, element="f64"), "tensor<2x9x7x70xf64>"),
        (depthwise(133, window="stride = [2, 1], pad = [[2, 0], [0, 3]]"), "tensor<2x5x8x133xf32>"),
        (depthwise(64, window="rhs_dilate = [2, 1], pad = [[3, 2], [0, 0]]"), "tensor<2x10x5x64xf32>"),
        (depthwise(80, window="stride = [1, 2]"), "tensor<2x7x3x80xf32>"),
        (depthwise(64, "3x20", "5", "pad = [[4, 4]]"), "tensor<3x24x64xf32>"),
        (depthwise(64, "1x2x2", "2x5", "pad = [[0, 0], [4, 4]]"), "tensor<1x1x6x64xf32>"),
    ],
)
def test_bits_are_those_of_the_loops(text: str, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apart, inside = both(text, result, monkeypatch)
    np.testing.assert_array_equal(apart.view(np.uint8), inside.view(np.uint8))


def test_images_of_other_sizes_share_the_code() -> None:
    def pieces() -> set[object]:
        return {callee for callee in functions._LIBRARIES if isinstance(callee, WindowSums)}

    spmd.compile(spmd.parse(depthwise(64, "4x20x20").replace("RESULT", "tensor<4x20x20x64xf32>")), threads=1)
    before = pieces()
    assert before
    text = depthwise(128, "2x30x16", window="stride = [2, 2], pad = [[1, 1], [1, 1]]")
    spmd.compile(spmd.parse(text.replace("RESULT", "tensor<2x15x8x128xf32>")), threads=1)
    assert pieces() == before
