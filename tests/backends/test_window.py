"""reduce_window and select_and_scatter of random geometry, against the reference interpreter; running totals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spmd.backends.numpy.window import scan
from spmd.types import ELEMENT_TYPES
from tests.backends.modules import (
    assert_are_of_reference,
    assert_as_reference,
    dense,
    here,
    ints,
    monoid,
    op,
    pair_kept,
    region,
)
from tests.backends.together import Cases, Program, drawn, together
from tests.effort import examples

HYPOT = region(
    2, "f32",
    "%x = stablehlo.multiply %a0, %a0 : tensor<f32>\n%y = stablehlo.multiply %a1, %a1 : tensor<f32>\n"
    "%s = stablehlo.add %x, %y : tensor<f32>\n%r = stablehlo.sqrt %s : tensor<f32>", "%r",
)  # fmt: skip


def window_text(
    body: str, sizes: list[int], strides: list[int], base: list[int], dilations: list[int], padding: list
) -> str:
    return f""""stablehlo.reduce_window"(%0, %1) <{{window_dimensions = {ints(sizes)}, window_strides = {ints(strides)},
        base_dilations = {ints(base)}, window_dilations = {ints(dilations)}, padding = {dense(padding)}}}> {body}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("body", "element", "init"),
    [(monoid("add", "i32"), "i32", 0), (monoid("add", "i32"), "i32", 3), (monoid("maximum", "i32"), "i32", -100),
     (monoid("minimum", "i32"), "i32", 2), (monoid("multiply", "i32"), "i32", 1), (HYPOT, "f32", 0)],
    ids=["sum", "sum and initial value", "max", "min and initial value", "product", "any"],
)  # fmt: skip
@together
@drawn(examples(40), data=st.data())
def test_reduce_window(body: str, element: str, init: int, data: st.DataObject) -> Cases:
    rank = data.draw(st.integers(0, 3))
    draw = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    shape, strides, base, dilations = draw(1, 6), draw(1, 3), draw(1, 2), draw(1, 2)
    padding = list(zip(draw(0, 3), draw(0, 3), strict=True))
    padded = [(size - 1) * step + 1 + sum(pad) for size, step, pad in zip(shape, base, padding, strict=True)]
    sizes = [data.draw(st.integers(1, (size - 1) // step + 1)) for size, step in zip(padded, dilations, strict=True)]
    counts = [
        (size - ((window - 1) * step + 1)) // stride + 1
        for size, window, step, stride in zip(padded, sizes, dilations, strides, strict=True)
    ]
    dtype = {"i32": np.int32, "f32": np.float32}[element]
    x = np.random.default_rng(0).integers(-5, 6, shape).astype(dtype)
    arrays = [x, np.asarray(dtype(init))]
    text = op(window_text(body, sizes, strides, base, dilations, padding), arrays, (element, counts))
    results = yield Program(text, arrays)
    assert_are_of_reference(results, text, *arrays, tolerance=1e-6 if element == "f32" else 0.0)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("element", ["i32", "f32", "bf16", "complex<f32>"])
@together
def test_running_totals(name: str, backwards: bool, axis: int, element: str) -> Cases:
    if element.startswith("complex") and name in ("maximum", "minimum"):
        return
    dtype = ELEMENT_TYPES[element].dtype
    shape = (2, 5, 3)
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    ufunc = getattr(np, name)
    init = {"add": 0, "multiply": 1, "maximum": -(2**31), "minimum": 2**31 - 1}[name]
    padding = [(0, 0)] * 3
    padding[axis] = (0, shape[axis] - 1) if backwards else (shape[axis] - 1, 0)
    sizes = [1] * 3
    sizes[axis] = shape[axis]
    text = window_text(monoid(name, element), sizes, [1] * 3, [1] * 3, [1] * 3, padding)
    arrays = [x, np.asarray(init, dtype)]
    (got,) = yield Program(op(text, arrays, (element, shape)), arrays)
    wide = x.astype(np.complex128 if dtype.kind == "c" else np.float64)
    flipped = np.flip(wide, axis) if backwards else wide
    want = ufunc.accumulate(flipped, axis=axis)
    np.testing.assert_array_equal(got.astype(wide.dtype), np.flip(want, axis) if backwards else want)


@pytest.mark.parametrize("size", [1, 1023, 1024, 5000])
def test_a_long_running_sum_keeps_its_digits(size: int) -> None:
    for axis, shape in ((1, (2, size)), (0, (size, 3))):
        x = np.random.default_rng(0).random(shape).astype(np.float32)
        padding, sizes = [(0, 0), (0, 0)], [1, 1]
        padding[axis], sizes[axis] = (size - 1, 0), size
        text = op(
            window_text(monoid("add", "f32"), sizes, [1, 1], [1, 1], [1, 1], padding),
            [x, np.float32(0)],
            ("f32", shape),
        )
        np.testing.assert_allclose(here(text, x, np.float32(0))[0], np.cumsum(x.astype(np.float64), axis), rtol=2e-6)


@given(st.integers(1, 40))
def test_scan_of_an_associative_function_that_does_not_commute(size: int) -> None:
    """Products of 2x2 matrices, one array an entry."""
    rng = np.random.default_rng(size)
    matrices = rng.standard_normal((size, 2, 2))

    def combine(*entries: np.ndarray) -> tuple[np.ndarray, ...]:
        a, b = (np.moveaxis(np.array(part), 0, -1).reshape(-1, 2, 2) for part in (entries[:4], entries[4:]))
        return tuple(np.moveaxis((a @ b).reshape(-1, 4), -1, 0))

    totals = scan(combine, tuple(np.moveaxis(matrices.reshape(-1, 4), -1, 0)), ())
    running = np.eye(2)
    for place, matrix in enumerate(matrices):
        running = running @ matrix
        np.testing.assert_allclose(
            np.array([total[place] for total in totals]).reshape(2, 2), running, rtol=1e-9, atol=1e-9
        )


def test_a_running_total_of_any_region() -> None:
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    text = window_text(HYPOT, [1, 50], [1, 1], [1, 1], [1, 1], [(0, 0), (49, 0)])
    (got,) = here(op(text, [x, np.float32(0)], ("f32", x.shape)), x, np.float32(0))
    np.testing.assert_allclose(got, np.sqrt(np.cumsum(x.astype(np.float64) ** 2, 1)), rtol=1e-5)


def test_two_operands_in_one_window() -> None:
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    places = np.arange(30, dtype=np.int32).reshape(5, 6)
    arrays = [x, places, np.float32(-np.inf), np.int32(-1)]
    sizes = f"window_dimensions = {ints([2, 3])}, window_strides = {ints([1, 2])}"
    text = f'"stablehlo.reduce_window"(%0, %1, %2, %3) <{{{sizes}}}> {pair_kept("GE", "f32")}'
    assert_as_reference(op(text, arrays, ("f32", (4, 2)), ("i32", (4, 2))), *arrays)


@pytest.mark.parametrize("direction", ["GE", "GT", "LE", "LT"])
@pytest.mark.parametrize("scatter", ["add", "maximum"])
@together
@drawn(examples(15), data=st.data())
def test_select_and_scatter(direction: str, scatter: str, data: st.DataObject) -> Cases:
    rank = data.draw(st.integers(1, 3))
    draw = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    shape, strides = draw(1, 6), draw(1, 3)
    sizes = [data.draw(st.integers(1, size)) for size in shape]
    # No window may lie in the padding alone: it would select nothing.
    padding = [(data.draw(st.integers(0, w - 1)), data.draw(st.integers(0, w - 1))) for w in sizes]
    counts = [
        (size + sum(pad) - window) // stride + 1
        for size, pad, window, stride in zip(shape, padding, sizes, strides, strict=True)
    ]
    assume(all(count > 0 for count in counts))
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, shape).astype(np.float32)
    arrays = [x, rng.integers(1, 9, counts).astype(np.float32), np.asarray(np.float32(0 if scatter == "add" else 2))]
    compare = f"%p = stablehlo.compare {direction}, %a0, %a1 : (tensor<f32>, tensor<f32>) -> tensor<i1>"
    text = f""""stablehlo.select_and_scatter"(%0, %1, %2) <{{window_dimensions = {ints(sizes)},
        window_strides = {ints(strides)}, padding = {dense(padding)}}}>
        ({region(2, "f32", compare, "%p", "i1")[1:-1]}, {monoid(scatter, "f32")[1:-1]})"""
    text = op(text, arrays, ("f32", shape))
    results = yield Program(text, arrays)
    assert_are_of_reference(results, text, *arrays)


@pytest.mark.parametrize("name", ["add", "multiply"])
@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", [(3, 2), (4, 4)])
@together
def test_small_windows_are_combined_in_order(name: str, element: str, sizes: tuple[int, int]) -> Cases:
    """From the initial value on, in row-major order; narrow types in f32, rounded once."""
    dtype = ELEMENT_TYPES[element].dtype
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(12, 12)) if name == "add" else np.exp(rng.normal(size=(12, 12)) / 9)).astype(dtype)
    arrays, padding = [x, np.asarray(1.0625, dtype)], [(4, 5), (6, 7)]
    shape = [(12 + sum(pad) - size) // 5 + 1 for size, pad in zip(sizes, padding, strict=True)]
    text = op(window_text(monoid(name, element), sizes, [5, 5], [1, 1], [1, 1], padding), arrays, (element, shape))
    (got,) = yield Program(text, arrays)
    wide = np.float32 if element != "f64" else np.float64
    padded = np.pad(x.astype(wide), padding, constant_values=arrays[1].astype(wide))
    for place in np.ndindex(*shape):
        total = arrays[1].astype(wide)
        for inner in np.ndindex(*sizes):
            total = getattr(np, name)(total, padded[place[0] * 5 + inner[0], place[1] * 5 + inner[1]])
        assert got[place] == total.astype(dtype)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "subtract"])
@pytest.mark.parametrize("element", ["i32", "f32"])
@pytest.mark.parametrize("options", [{}, {"backends": ("numpy",)}], ids=["here", "with_numpy"])
@together
@drawn(examples(8), length=st.integers(0, 7), size=st.integers(2, 30), dilation=st.integers(1, 9),
       stride=st.integers(1, 3), pad=st.integers(0, 3))  # fmt: skip
def test_a_window_that_reaches_beyond_its_operand_is_nowhere(
    name: str, element: str, options: dict[str, Any], length: int, size: int, dilation: int, stride: int, pad: int
) -> Cases:
    assume((size - 1) * dilation + 1 > length + pad)
    x, init = np.ones((length, 3), ELEMENT_TYPES[element].dtype), np.asarray(0, ELEMENT_TYPES[element].dtype)
    text = window_text(monoid(name, element), [size, 2], [stride, 1], [1, 1], [dilation, 1], [(0, pad), (0, 0)])
    (got,) = yield Program(op(text, [x, init], (element, (0, 2))), [x, init], options)
    assert got.shape == (0, 2)


def test_select_and_scatter_computes_in_the_type_of_its_region() -> None:
    x, source, init = np.int8([1, 2, 4, 3]), np.int8([100, -100]), np.asarray(1000, np.int32)
    compare = "%p = stablehlo.compare GE, %a0, %a1 : (tensor<i8>, tensor<i8>) -> tensor<i1>"
    for stride in (2, 1):
        text = f""""stablehlo.select_and_scatter"(%0, %1, %2) <{{window_dimensions = {ints([2])},
            window_strides = {ints([stride])}}}>
            ({region(2, "i8", compare, "%p", "i1")[1:-1]}, {monoid("add", "i32")[1:-1]})"""
        source_values = source if stride == 2 else np.int8([100, 100, 127])
        want = [1000, 1100, 900, 1000] if stride == 2 else [1000, 1100, 1227, 1000]
        (got,) = here(op(text, [x, source_values, init], ("i32", (4,))), x, source_values, init)
        assert got.tolist() == want
