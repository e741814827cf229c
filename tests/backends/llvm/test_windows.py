"""Windows in loop nests against the NumPy back end; no bit depends on the number of threads. Geometry at large is drawn
in tests/backends/test_window.py and test_convolution.py."""

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import chosen_options
from spmd.types import ELEMENT_TYPES
from tests.backends.modules import dense, ints, main, monoid, op, region
from tests.backends.together import Cases, Program, for_numpy, together
from tests.effort import some_slow

Shape = tuple[int, ...]
HARD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-42]


def pooled(name: str, element: str, x: np.ndarray, init: np.ndarray, sizes: list[int], strides: list[int],
           padding: list[tuple[int, int]]) -> str:  # fmt: skip
    """A reduce_window of `x` by the monoid `name`."""
    spans = zip(x.shape, sizes, strides, padding, strict=True)
    counts = [(size + sum(pad) - window) // stride + 1 for size, window, stride, pad in spans]
    text = f""""stablehlo.reduce_window"(%0, %1) <{{window_dimensions = {ints(sizes)}, window_strides = {ints(strides)},
        padding = {dense(padding)}}}> {monoid(name, element)}"""
    return op(text, [x, init], (element, counts))


def run(text: str, *arrays: np.ndarray, threads: int = 1) -> list[np.ndarray]:
    executable = spmd.compile(spmd.parse(text), threads=threads, backends=("llvm", "numpy"))
    return [np.asarray(result) for result in executable(*arrays)]


def native(text: str, *arrays: np.ndarray, threads: int = 1) -> Program:
    return Program(text, arrays, {"threads": threads, "backends": ("llvm", "numpy")})


LAYOUTS = {
    "features last": ((2, 21, 18, 5), [1, 3, 2, 1], [1, 2, 2, 1], [(0, 0), (1, 1), (1, 0), (0, 0)]),
    "features first": ((2, 5, 21, 37), [1, 1, 3, 3], [1, 1, 2, 2], [(0, 0), (0, 0), (1, 1), (0, 1)]),
    "one window": ((2, 3, 7, 8), [1, 1, 7, 8], [1, 1, 1, 1], [(0, 0)] * 4),
    "three dimensions": ((9, 8, 7), [3, 3, 3], [1, 2, 1], [(1, 1)] * 3),
    "one dimension, negative padding": ((130,), [5], [1], [(-2, -3)]),
}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["maximum", "minimum", "add", "multiply"])
@pytest.mark.parametrize("element", ["f32", "bf16", "f64", "i8", "ui32"])
@together
def test_windows_are_those_of_numpy(layout: str, name: str, element: str) -> Cases:
    shape, sizes, strides, padding = LAYOUTS[layout]
    dtype = ELEMENT_TYPES[element].dtype
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, shape).astype(dtype)
    if dtype.kind not in "iu":
        x = np.where(rng.random(shape) < 0.1, rng.choice(HARD, shape), x / 4).astype(dtype)
    init = np.asarray({"maximum": 0, "minimum": 0, "add": 0, "multiply": 1}[name], dtype)
    text = pooled(name, element, x, init, sizes, strides, padding)
    (want,), (got,) = yield for_numpy(text, x, init), native(text, x, init)
    exact = element.lstrip("u").startswith("i") or name in ("maximum", "minimum")
    wide = np.float64
    if exact:
        np.testing.assert_array_equal(got.astype(wide), want.astype(wide))
        if dtype.kind not in "iu":
            np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got.astype(wide))],
                                          np.signbit(want)[~np.isnan(want.astype(wide))])  # fmt: skip
    else:
        eps = float(ELEMENT_TYPES[element].dtype.type(0.01)) if element == "bf16" else 1e-5
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=eps, atol=eps)


def grouped(
    element: str, x: tuple[int, ...], w: tuple[int, ...], groups: str, result_shape: tuple[int, ...], extra: str
) -> str:
    def type_(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{element}>"

    return f"""func.func @main(%x: {type_(x)}, %w: {type_(w)}) -> {type_(result_shape)} {{
      %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{{extra}}} {{{groups}}} : ({type_(x)}, {type_(w)}) -> {type_(result_shape)}
      return %r : {type_(result_shape)}
    }}"""


DEPTHWISE = "feature_group_count = 24 : i64, batch_group_count = 1 : i64"
GROUPED = "feature_group_count = 3 : i64, batch_group_count = 1 : i64"
BY_BATCH = "feature_group_count = 1 : i64, batch_group_count = 24 : i64"
SAME = "pad = [[1, 1], [1, 1]]"
CONVOLUTIONS = {
    "depthwise": ((2, 9, 11, 24), (3, 3, 1, 24), DEPTHWISE, (2, 9, 11, 24), SAME),
    "depthwise, strides": ((2, 9, 11, 24), (3, 3, 1, 24), DEPTHWISE, (2, 5, 6, 24), "stride = [2, 2], " + SAME),
    "two features each": ((2, 9, 11, 24), (3, 3, 1, 48), DEPTHWISE, (2, 9, 11, 48), SAME),
    "dilated": ((2, 5, 6, 24), (3, 3, 1, 24), DEPTHWISE, (2, 9, 11, 24), "lhs_dilate = [2, 2], " + SAME),
    "groups": ((2, 9, 11, 24), (3, 3, 8, 48), GROUPED, (2, 9, 11, 48), SAME),
    "groups, strides": ((2, 9, 11, 24), (3, 3, 8, 15), GROUPED, (2, 5, 6, 15), "stride = [2, 2], " + SAME),
    "a kernel's gradient": ((24, 9, 11, 2), (9, 11, 2, 24), BY_BATCH, (1, 3, 3, 24), SAME),
    "groups of the batch": ((48, 9, 11, 2), (3, 3, 2, 240), BY_BATCH, (2, 9, 11, 240), SAME),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@together
def test_grouped_convolutions_are_those_of_numpy(case: str, element: str) -> Cases:
    text = grouped(element, *CONVOLUTIONS[case])
    rng, dtype = np.random.default_rng(0), ELEMENT_TYPES[element].dtype
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in CONVOLUTIONS[case][:2])
    (got,), (want,) = yield native(text, x, w), for_numpy(text, x, w)
    eps = {"f32": 1e-4, "bf16": 2e-2, "f64": 1e-11}[element]
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=eps, atol=eps)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_grouped_convolutions_have_a_native_form(case: str) -> None:
    module = spmd.parse(grouped("f32", *CONVOLUTIONS[case]))
    _, plan = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {})).entry(module.functions[0])
    assert [step.kernel.is_native for step in plan.steps if step.op.name != "stablehlo.reshape"] == [True]


def test_no_bit_depends_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 33, 35, 24)).astype(np.float32)
    zero = np.zeros((), np.float32)
    sums = pooled("add", "f32", x, zero, [1, 5, 5, 1], [1, 1, 1, 1], [(0, 0), (2, 2), (2, 2), (0, 0)])
    w = rng.standard_normal((3, 3, 1, 24)).astype(np.float32)
    depthwise = grouped("f32", x.shape, w.shape, DEPTHWISE, x.shape, SAME)
    w8 = rng.standard_normal((3, 3, 8, 48)).astype(np.float32)
    groups = grouped("f32", x.shape, w8.shape, GROUPED, (*x.shape[:3], 48), SAME)
    for text, arrays in ((sums, (x, zero)), (depthwise, (x, w)), (groups, (x, w8))):
        one = run(text, *arrays)
        for threads in (2, 3):
            np.testing.assert_array_equal(run(text, *arrays, threads=threads)[0], one[0])


@pytest.mark.parametrize("element", ["f32", "bf16", "i32"])
@pytest.mark.parametrize(("size", "stride", "padding"), [(2, 2, (0, 0)), (3, 2, (1, 0)), (3, 1, (2, 2))])
@together
def test_selecting_and_scattering_is_that_of_numpy(element: str, size: int, stride: int, padding: Shape) -> Cases:
    """Ties, NaN and windows that overlap: the gradient of max pooling."""
    rng, dtype = np.random.default_rng(0), ELEMENT_TYPES[element].dtype
    x = rng.integers(-2, 3, (3, 9, 11)).astype(dtype)
    if dtype.kind not in "iu":
        x[rng.random(x.shape) < 0.1] = np.nan
    counts = [(extent + sum(padding) - size) // stride + 1 for extent in x.shape[1:]]
    source = rng.integers(-3, 4, (3, *counts)).astype(dtype)
    compare = f"%r = stablehlo.compare GE, %a0, %a1 : (tensor<{element}>, tensor<{element}>) -> tensor<i1>"
    select = region(2, element, compare, "%r", "i1")
    text = op(
        f""""stablehlo.select_and_scatter"(%0, %1, %2) <{{window_dimensions = {ints([1, size, size])},
        window_strides = {ints([1, stride, stride])}, padding = {dense([(0, 0), padding, padding])}}}>
        {select.removesuffix(")")}, {monoid("add", element).removeprefix("(")}""",
        [x, source, np.asarray(1, dtype)], (element, x.shape),
    )  # fmt: skip
    arrays = (x, source, np.asarray(1, dtype))
    (want,), *ours = yield for_numpy(text, *arrays), *(native(text, *arrays, threads=threads) for threads in (1, 2))
    for (got,) in ours:
        np.testing.assert_array_equal(got.astype(float), want.astype(float))


@pytest.mark.parametrize("element", some_slow(["f32", "bf16", "i8", "i1", "f64", "ui32"], 3))
@pytest.mark.parametrize("name", ["add", "maximum", "multiply"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 70), 1), ((2, 530, 3), 1), ((40, 37), 0), ((1,), 0), ((2, 16, 16), 1)]
)
@pytest.mark.parametrize("backwards", [False, True])
@together
def test_running_totals_are_those_of_numpy(element: str, name: str, shape: Shape, axis: int, backwards: bool) -> Cases:
    rng, dtype = np.random.default_rng(0), ELEMENT_TYPES[element].dtype
    x = rng.integers(0, 2, shape).astype(dtype) if name == "multiply" else rng.integers(-3, 4, shape).astype(dtype)
    if dtype.kind not in "iub" and name == "maximum":
        x = np.where(rng.random(shape) < 0.05, rng.choice(HARD, shape), x).astype(dtype)
    init = np.asarray({"add": 0, "multiply": 1, "maximum": 0}[name], dtype)
    span, padding, sizes = shape[axis], [(0, 0)] * len(shape), [1] * len(shape)
    padding[axis], sizes[axis] = (0, span - 1) if backwards else (span - 1, 0), span
    windows = f"window_dimensions = {ints(sizes)}, padding = {dense(padding)}"
    lines = [f'%1 = stablehlo.constant dense<{str(init.astype(bool)).lower() if element == "i1" else init.astype(int)}'
             f'{"" if element.lstrip("u").startswith("i") else ".0"}> : tensor<{element}>']  # fmt: skip
    type_ = f"tensor<{'x'.join(map(str, shape))}x{element}>"
    lines.append(f'%r = "stablehlo.reduce_window"(%0, %1) <{{{windows}}}> {monoid(name, element)}'
                 f" : ({type_}, tensor<{element}>) -> {type_}")  # fmt: skip
    text = main("\n".join(lines), [x], f"%r : {type_}")
    (want,), one, two = yield for_numpy(text, x), native(text, x), native(text, x, threads=2)
    np.testing.assert_array_equal(one[0].astype(float), want.astype(float))
    np.testing.assert_array_equal(two[0].astype(float), one[0].astype(float))
    plain = not element.lstrip("u").startswith("i")
    if plain:
        numbers = ~np.isnan(want.astype(float))
        np.testing.assert_array_equal(
            np.signbit(one[0][numbers].astype(float)), np.signbit(want[numbers].astype(float))
        )
    module = spmd.parse(text)
    _, plan = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {})).entry(module.functions[0])
    assert all(step.kernel.is_native for step in plan.steps)
