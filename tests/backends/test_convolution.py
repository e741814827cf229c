"""Convolutions of random geometry against the specification's sums, and of every layout against one another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from spmd.types import ELEMENT_TYPES
from tests.backends.modules import dense, here, ints, op, type_of
from tests.backends.together import Cases, Program, drawn, for_numpy, together
from tests.effort import examples


@dataclass
class Convolution:
    """A convolution's attributes; dimensions are named b, f, i, o and by spatial number."""

    lhs: list[object]
    rhs: list[object]
    result: list[object]
    strides: list[int]
    padding: list[tuple[int, int]]
    lhs_dilation: list[int]
    rhs_dilation: list[int]
    reversal: list[bool]
    feature_groups: int = 1
    batch_groups: int = 1

    def text(self, name: str = "convolution") -> str:
        flags = ", ".join(str(flag).lower() for flag in self.reversal)
        padding = f"padding = {dense(self.padding)}," if name == "convolution" else ""
        lhs, rhs, result = (f"[{', '.join(map(str, names))}]" for names in (self.lhs, self.rhs, self.result))
        return f"""window_strides = {ints(self.strides)}, {padding} lhs_dilation = {ints(self.lhs_dilation)},
            rhs_dilation = {ints(self.rhs_dilation)}, window_reversal = array<i1{": " if flags else ""}{flags}>,
            dimension_numbers = #stablehlo.conv<{lhs}x{rhs}->{result}>,
            feature_group_count = {self.feature_groups} : i64, batch_group_count = {self.batch_groups} : i64"""

    def program(self, x: np.ndarray, w: np.ndarray, result: tuple[str, Sequence[int]]) -> Program:
        return Program(op(f'"stablehlo.convolution"(%0, %1) {{{self.text()}}}', [x, w], result), [x, w])

    def run(self, x: np.ndarray, w: np.ndarray, result: tuple[str, Sequence[int]]) -> np.ndarray:
        return self.program(x, w, result).run()[0]


def two_dimensional(lhs: list[object], rhs: list[object], result: list[object]) -> Convolution:
    """3x3 windows that keep the size of the image."""
    return Convolution(lhs, rhs, result, [1, 1], [(1, 1), (1, 1)], [1, 1], [1, 1], [False, False])


def defined(c: Convolution, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The specification's sums, one place of the window and one group at a time; dimensions b, spatial, f."""
    spatial = sorted(name for name in c.lhs if isinstance(name, int))
    x = x.transpose([c.lhs.index(name) for name in ("b", *spatial, "f")])
    w = w.transpose([c.rhs.index(name) for name in (*spatial, "i", "o")])
    w = np.flip(w, [d for d in spatial if c.reversal[d]])
    for d in spatial:
        shape = list(x.shape)
        low, high = c.padding[d]
        shape[d + 1] = (shape[d + 1] - 1) * c.lhs_dilation[d] + 1
        dilated = np.zeros(shape, x.dtype)
        lead = (slice(None),) * (d + 1)
        dilated[(*lead, slice(None, None, c.lhs_dilation[d]))] = x
        edges = [(0, 0)] * x.ndim
        edges[d + 1] = (max(low, 0), max(high, 0))
        x = np.pad(dilated, edges)[(*lead, slice(max(-low, 0), shape[d + 1] + max(low, 0) + high))]
    counts = [max(0, (x.shape[d + 1] - (w.shape[d] - 1) * c.rhs_dilation[d] - 1) // c.strides[d] + 1) for d in spatial]
    groups = max(c.feature_groups, c.batch_groups)
    parts = []
    for g, kernel in enumerate(np.split(w, groups, -1)):
        image = np.split(x, groups, 0 if c.batch_groups > 1 else -1)[g]
        total = np.zeros((image.shape[0], *counts, kernel.shape[-1]))
        for place in np.ndindex(*kernel.shape[: len(spatial)]):
            starts = [k * step for k, step in zip(place, c.rhs_dilation, strict=True)]
            windows = [
                slice(start, start + (count - 1) * stride + 1, stride) if count else slice(0, 0)
                for start, count, stride in zip(starts, counts, c.strides, strict=True)
            ]
            total += image[(slice(None), *windows)] @ kernel[place]
        parts.append(total)
    result = np.concatenate(parts, -1)
    return result.transpose([["b", *spatial, "f"].index(name) for name in c.result])


def draw_convolution(data: st.DataObject) -> tuple[Convolution, np.ndarray, np.ndarray]:
    """Layouts, strides, paddings (negative ones too), dilations, reversal and groups, of small integers."""
    rank = data.draw(st.integers(0, 3))
    spatial = list(range(rank))
    lhs, rhs, result = (data.draw(st.permutations([*pair, *spatial])) for pair in (("b", "f"), ("i", "o"), ("b", "f")))
    which = data.draw(st.sampled_from(["none", "feature", "depthwise", "batch"]))
    groups = 1 if which == "none" else data.draw(st.integers(2, 3))
    per_group = 1 if which == "depthwise" else data.draw(st.integers(1, 3))

    def draw(low: int, high: int) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in spatial]

    sizes, windows = draw(1, 7), draw(1, 4)
    c = Convolution(
        lhs, rhs, result, draw(1, 3), list(zip(draw(-2, 3), draw(-2, 3), strict=True)), draw(1, 2), draw(1, 2),
        [data.draw(st.booleans()) for _ in spatial], *((1, groups) if which == "batch" else (groups, 1)),
    )  # fmt: skip
    padded = [(s - 1) * d + 1 + sum(p) for s, d, p in zip(sizes, c.lhs_dilation, c.padding, strict=True)]
    assume(all(size > 0 for size in padded))
    rng = np.random.default_rng(0)
    extents: dict[object, int] = {
        "b": data.draw(st.integers(1, 3)) * c.batch_groups, "f": per_group * c.feature_groups,
        "i": per_group, "o": groups * data.draw(st.integers(1, 2)),
    }  # fmt: skip
    x = rng.integers(-3, 4, [extents[k] if k in extents else sizes[k] for k in lhs]).astype(np.float32)
    w = rng.integers(-3, 4, [extents[k] if k in extents else windows[k] for k in rhs]).astype(np.float32)
    return c, x, w


@together
@drawn(examples(200), data=st.data())
def test_any_geometry(data: st.DataObject) -> Cases:
    """Exactly what the definition gives."""
    c, x, w = draw_convolution(data)
    want = defined(c, x, w)
    (got,) = yield c.program(x, w, ("f32", want.shape))
    np.testing.assert_array_equal(got, want)


def along_one_dimension(padding: tuple[int, int] = (0, 0), spread: int = 1) -> Convolution:
    return Convolution(["b", 0, "f"], [0, "i", "o"], ["b", 0, "f"], [1], [padding], [spread], [1], [False])


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("make", [Program, for_numpy], ids=["native", "numpy"])
@together
def test_zeros_between_and_around_elements_are_multiplied(make: Callable[..., Program], element: str) -> Cases:
    """spmd/dialects/convolution.py: 0 times infinity is NaN."""
    x = np.ones((1, 3, 1), ELEMENT_TYPES[element].dtype)
    w = np.array([np.inf, 1], x.dtype).reshape(2, 1, 1)
    geometries = along_one_dimension(spread=2), along_one_dimension(padding=(1, 0)), along_one_dimension((0, 3), 3)
    programs = [c.program(x, w, (element, (1, size, 1))) for c, size in zip(geometries, (4, 3, 9), strict=True)]
    results = yield [make(program.text, *program.arrays) if make is for_numpy else program for program in programs]
    inf, nan = np.inf, np.nan
    wanted = [inf, nan, inf, nan], [nan, inf, inf], [inf, nan, nan, inf, nan, nan, inf, nan, nan]
    for (got,), want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got.reshape(-1).astype(np.float64), want)


def draw_not_finite(data: st.DataObject) -> tuple[Convolution, np.ndarray, np.ndarray]:
    """A convolution of dilated images, some of whose elements, or weights, are infinite or NaN."""
    c, x, w = draw_convolution(data)
    c.lhs_dilation = [data.draw(st.integers(1, 4)) for _ in c.lhs_dilation]
    sizes = [x.shape[c.lhs.index(d)] for d in range(len(c.padding))]
    assume(all((s - 1) * d + 1 + sum(p) > 0 for s, d, p in zip(sizes, c.lhs_dilation, c.padding, strict=True)))
    for array in (w, data.draw(st.sampled_from([x, w]))):
        place = data.draw(st.integers(0, array.size - 1))
        array.reshape(-1)[place] = data.draw(st.sampled_from([np.inf, -np.inf, np.nan]))
    return c, x, w


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
@together
@drawn(examples(60), data=st.data())
def test_infinity_and_nan_in_any_geometry(element: str, data: st.DataObject) -> Cases:
    """Both back ends give what the definition gives, as they do of numbers."""
    c, x, w = draw_not_finite(data)
    x, w = x.astype(ELEMENT_TYPES[element].dtype), w.astype(ELEMENT_TYPES[element].dtype)
    with np.errstate(invalid="ignore"):
        want = defined(c, x.astype(np.float64), w.astype(np.float64))
    program = c.program(x, w, (element, want.shape))
    for (got,) in (yield [program, for_numpy(program.text, x, w)]):
        np.testing.assert_array_equal(got.astype(np.float64), want)


def plain(x: np.ndarray, w: np.ndarray, result: str) -> np.ndarray:
    c = two_dimensional(["b", 0, 1, "f"], [0, 1, "i", "o"], ["b", 0, 1, "f"])
    return c.run(x, w, (result, (*x.shape[:3], w.shape[-1])))


@pytest.mark.parametrize("element", ["bf16", "f16", "f64", "complex<f32>", "i8", "i32", "ui8"])
def test_every_element_type(element: str) -> None:
    dtype = ELEMENT_TYPES[element].dtype
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 3, shape) for shape in ((2, 6, 5, 3), (3, 3, 3, 4)))
    want = plain(x.astype(np.float32), w.astype(np.float32), "f32")
    got = plain(x.astype(dtype), w.astype(dtype), element)
    np.testing.assert_array_equal(got.astype(want.dtype if dtype.kind != "c" else np.complex128), want)


def test_small_integers_add_up_in_the_result_type() -> None:
    x, w = np.full((1, 9, 9, 4), 100, np.int8), np.full((3, 3, 4, 2), -100, np.int8)
    got = plain(x, w, "i32")
    assert got[0, 4, 4, 0] == -10_000 * 36


@pytest.mark.sampled(8)
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_large_images_in_every_layout(order: tuple[int, ...]) -> None:
    """Images larger than what is made of patches at a time, and both gradients, do not depend on the layout."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (70, 20, 12, 5)).astype(np.float32)
    w = rng.integers(-2, 3, (3, 3, 5, 6)).astype(np.float32)
    want = plain(x, w, "f32")
    names = [["b", 0, 1, "f"][axis] for axis in order]
    moved = np.ascontiguousarray(x.transpose(order))
    got = two_dimensional(names, [0, 1, "i", "o"], names).run(moved, w, ("f32", want.transpose(order).shape))
    np.testing.assert_array_equal(got, want.transpose(order))
    # The kernel's gradient: batches are contracted, the result is as large as the kernel.
    lhs = [{"b": "f", "f": "b"}.get(name, name) for name in names]
    rhs = [{"b": "i", "f": "o"}.get(name, name) for name in names]
    grad = two_dimensional(lhs, rhs, [0, 1, "b", "f"]).run(moved, got, ("f32", w.shape))
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.array(
        [[np.einsum("bhwi,bhwo->io", padded[:, i : i + 20, j : j + 12], want) for j in range(3)] for i in range(3)]
    )
    np.testing.assert_array_equal(grad, expected)


def test_dynamic_conv_takes_its_padding_while_running() -> None:
    x, w = np.arange(25, dtype=np.float32).reshape(1, 5, 5, 1), np.ones((2, 2, 1, 1), np.float32)
    c = Convolution(["b", 0, 1, "f"], [0, 1, "i", "o"], ["b", 0, 1, "f"], [1, 1], [], [1, 1], [1, 1], [False, False])
    arguments = f"{type_of(x)}, {type_of(w)}, tensor<2x2xi64>"
    text = f"""func.func @main(%0: {type_of(x)}, %1: {type_of(w)}, %2: tensor<2x2xi64>) -> tensor<1x?x?x1xf32> {{
      %r = "stablehlo.dynamic_conv"(%0, %1, %2) {{{c.text("dynamic_conv")}}} : ({arguments}) -> tensor<1x?x?x1xf32>
      return %r : tensor<1x?x?x1xf32>
    }}"""
    for padding in ([[0, 0], [0, 0]], [[1, 2], [0, -1]]):
        (got,) = here(text, x, w, np.array(padding))
        image = np.pad(x[0, :, :, 0], [(max(low, 0), max(high, 0)) for low, high in padding])
        image = image[:, : image.shape[1] + min(padding[1][1], 0)]
        want = image[:-1, :-1] + image[1:, :-1] + image[:-1, 1:] + image[1:, 1:]
        np.testing.assert_array_equal(got[0, :, :, 0], want)
