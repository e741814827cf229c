"""Reductions: monoids over random dimensions, argmax and its kin, and regions that are neither."""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import spmd
from spmd.types import ELEMENT_TYPES
from tests.backends.modules import (
    assert_are_of_reference,
    assert_as_reference,
    here,
    ints,
    monoid,
    op,
    region,
    type_of,
)
from tests.backends.together import Cases, Program, drawn, for_numpy, together
from tests.effort import examples

SOME = examples(30)
SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
LARGE = (
    st.lists(st.sampled_from([1, 2, 7, 40, 130]), min_size=1, max_size=4)
    .map(tuple)
    .filter(lambda s: math.prod(s) < 200_000)
)

UFUNCS = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce_text(axes: list[int], body: str, count: int = 1) -> str:
    names = ", ".join(f"%{index}" for index in range(2 * count))
    return f'"stablehlo.reduce"({names}) <{{dimensions = {ints(axes)}}}> {body}'


def axes_of(shape: tuple[int, ...], data: st.DataObject) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))) if shape else []


def reduction(x: np.ndarray, init: np.generic, axes: list[int], name: str, element: str) -> Program:
    """The reduction of `x` over `axes` by op `name`."""
    shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    arrays = [x, np.asarray(init)]
    return Program(op(reduce_text(axes, monoid(name, element)), arrays, (element, shape)), arrays)


def reduced(
    x: np.ndarray, init: np.generic, axes: list[int], name: str, element: str, run: Callable[..., Any] = here
) -> np.ndarray:
    program = reduction(x, init, axes, name, element)
    return run(program.text, *program.arrays)[0]


@pytest.mark.parametrize("name", UFUNCS)
@together
@drawn(SOME, shape=st.one_of(SHAPES, LARGE), data=st.data())
def test_integers(name: str, shape: tuple[int, ...], data: st.DataObject) -> Cases:
    axes = axes_of(shape, data)
    element = data.draw(st.sampled_from(["i8", "i32", "ui16", "i64"]))
    dtype = ELEMENT_TYPES[element].dtype
    x = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    init = dtype.type(data.draw(st.integers(0, 5)))
    (got,) = yield reduction(x, init, axes, name, element)
    with np.errstate(over="ignore"):
        want = UFUNCS[name].reduce(x, axis=tuple(axes), initial=init, dtype=dtype) if axes else UFUNCS[name](x, init)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "f16", "complex<f32>"])
@together
@drawn(SOME, shape=st.one_of(SHAPES, LARGE), data=st.data())
def test_sums_of_floats_are_accurate(element: str, shape: tuple[int, ...], data: st.DataObject) -> Cases:
    """Within two roundings of the result's type of the exact sum of magnitudes."""
    axes = axes_of(shape, data)
    dtype = ELEMENT_TYPES[element].dtype
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    (result,) = yield reduction(x, dtype.type(0), axes, "add", element)
    exact = x.astype(np.complex128 if dtype.kind == "c" else np.float64)
    want, size = exact.sum(axis=tuple(axes)), np.abs(exact).sum(axis=tuple(axes))
    got = result.astype(exact.dtype)
    bits = {"f32": 24, "f64": 53, "bf16": 8, "f16": 11, "complex<f32>": 24}[element]
    assert (np.abs(got - want) <= size * 2.0 ** (2 - bits)).all()


def test_a_long_sum_keeps_its_digits() -> None:
    x = np.full((3_000_001,), 0.1, np.float32)
    (total,) = here(op(reduce_text([0], monoid("add", "f32")), [x, np.float32(0)], ("f32", ())), x, np.float32(0))
    assert abs(float(total) / (float(np.float32(0.1)) * 3_000_001) - 1) < 1e-6
    tall = np.full((300_000, 3), 0.1, np.float32)
    (totals,) = here(
        op(reduce_text([0], monoid("add", "f32")), [tall, np.float32(0)], ("f32", (3,))), tall, np.float32(0)
    )
    np.testing.assert_allclose(totals, float(np.float32(0.1)) * 300_000, rtol=1e-5)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("shape", [(6, 7), (700, 9), (700, 200)])
@pytest.mark.parametrize("axis", [0, 1])
@together
def test_nan_wins_maximum_and_minimum(name: str, shape: tuple[int, int], axis: int) -> Cases:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[3, 4] = np.nan
    (got,) = yield reduction(x, np.float32(-np.inf if name == "maximum" else np.inf), [axis], name, "f32")
    np.testing.assert_array_equal(got, UFUNCS[name].reduce(x, axis=axis))
    assert np.isnan(got).sum() == 1


@pytest.mark.parametrize("size", [97, 128, 131, 192])
@pytest.mark.parametrize(("name", "start"), [("maximum", 0), ("minimum", 2**32 - 1), ("and", 2**32 - 1), ("xor", 0)])
@together
def test_many_rows_of_middling_length(name: str, start: int, size: int) -> Cases:
    x = np.random.default_rng(size).integers(0, 2**32, (700, size), dtype=np.uint32)
    (got,) = yield reduction(x, np.uint32(start), [1], name, "ui32")
    np.testing.assert_array_equal(got, UFUNCS[name].reduce(x, axis=1))


def test_booleans_add_as_or_and_multiply_as_and() -> None:
    x = np.random.default_rng(0).integers(0, 2, (50, 60)).astype(bool)
    for name, want in (("add", x.any(1)), ("multiply", x.all(1)), ("xor", np.logical_xor.reduce(x, 1))):
        np.testing.assert_array_equal(reduced(x, np.bool_(name == "multiply"), [1], name, "i1"), want)


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("step", [1, 2])
@together
def test_a_view_is_reduced_where_it_lies(order: tuple[int, ...], axes: list[int], step: int) -> Cases:
    """Transposed operands, and strided ones, whose memory no reshape can group."""
    x = np.random.default_rng(0).integers(-9, 9, (20, 30, 24)).astype(np.float32)
    view = x[::step].transpose(order)
    kept = tuple(size for axis, size in enumerate(view.shape) if axis not in axes)
    text = f"""func.func @main(%x: {type_of(x)}) -> {type_of(("f32", kept))} {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.slice %x [0:20:{step}, 0:30, 0:24] : ({type_of(x)}) -> {type_of(x[::step])}
      %t = stablehlo.transpose %s, dims = {list(order)} : ({type_of(x[::step])}) -> {type_of(view)}
      %r = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = {axes}
        : ({type_of(view)}, tensor<f32>) -> {type_of(("f32", kept))}
      return %r : {type_of(("f32", kept))}
    }}"""
    (got,) = yield Program(text, [x])
    np.testing.assert_array_equal(got, view.sum(tuple(axes)))


# --- the largest or smallest, and where ------------------------------------------------------------------------------


def extremum(direction: str, element: str, *, nan: bool) -> str:
    """The reducer as JAX writes it; without NaN's part, as others do."""
    better = f"%b = stablehlo.compare {direction}, %v0, %v1 : (tensor<{element}>, tensor<{element}>) -> tensor<i1>"
    strange = f"%s = stablehlo.compare NE, %v0, %v0 : (tensor<{element}>, tensor<{element}>) -> tensor<i1>"
    pick = "%p = stablehlo.or %b, %s : tensor<i1>" if nan else "%p = stablehlo.or %b, %b : tensor<i1>"
    return f"""({{
    ^bb0(%v0: tensor<{element}>, %i0: tensor<i32>, %v1: tensor<{element}>, %i1: tensor<i32>):
      {better}
      {strange}
      {pick}
      %e = stablehlo.compare EQ, %v0, %v1 : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
      %l = stablehlo.compare LT, %i0, %i1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %t = stablehlo.and %e, %l : tensor<i1>
      %q = stablehlo.or %p, %t : tensor<i1>
      %v = stablehlo.select %p, %v0, %v1 : tensor<i1>, tensor<{element}>
      %i = stablehlo.select %q, %i0, %i1 : tensor<i1>, tensor<i32>
      stablehlo.return %v, %i : tensor<{element}>, tensor<i32>
    }})"""


@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.parametrize("nan", [True, False])
@together
@drawn(SOME, shape=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple), data=st.data())
def test_largest_and_its_place(direction: str, nan: bool, shape: tuple[int, ...], data: st.DataObject) -> Cases:
    """Any indices, ties and NaNs, over any dimensions: as the reference interpreter."""
    axes = axes_of(shape, data)
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 4, shape).astype(np.float32)
    if nan and data.draw(st.booleans()):
        x.reshape(-1)[data.draw(st.integers(0, x.size - 1))] = np.nan
    places = np.arange(x.size, dtype=np.int32).reshape(shape)
    if data.draw(st.booleans()):
        places = places[::-1].copy()
    init = np.float32(-np.inf if direction == "GT" else np.inf)
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    arrays = [x, places, np.asarray(init), np.asarray(np.int32(0))]
    text = reduce_text(axes, extremum(direction, "f32", nan=nan), 2)
    program = Program(op(text, arrays, ("f32", kept), ("i32", kept)), arrays)
    results = yield program
    assert_are_of_reference(results, program.text, *arrays)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows", [50, 20_000])
@pytest.mark.parametrize("element", ["f32", "bf16", "i8", "ui32"])
@together
def test_argmax_of_an_iota(axis: int, rows: int, element: str) -> Cases:
    """The first of equals and the first NaN, in any layout."""
    dtype = ELEMENT_TYPES[element].dtype
    shape = (rows, 7 if rows > 50 else 70)
    x = np.random.default_rng(0).integers(0, 9, shape).astype(dtype)
    if element in ("f32", "bf16"):
        x[[3, 9], [5, 5]] = np.nan
        x[9, 2] = np.nan
    lowest = {"f32": "0xFF800000", "bf16": "0xFF80", "i8": "-128", "ui32": "0"}[element]
    whole, kept = type_of(x), type_of((element, (shape[1 - axis],)))
    places, place_type = type_of(("i32", shape)), type_of(("i32", (shape[1 - axis],)))
    text = f"""func.func @main(%x: {whole}) -> ({kept}, {place_type}) {{
      %place = stablehlo.iota dim = {axis} : {places}
      %w = stablehlo.constant dense<{lowest}> : tensor<{element}>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = "stablehlo.reduce"(%x, %place, %w, %z) <{{dimensions = array<i64: {axis}>}}> {
        extremum("GT", element, nan=True)
    } : ({whole}, {places}, tensor<{element}>, tensor<i32>) -> ({kept}, {place_type})
      return %r#0, %r#1 : {kept}, {place_type}
    }}"""
    best, where = yield Program(text, [x])
    np.testing.assert_array_equal(where, np.argmax(x.astype(np.float64), axis))
    np.testing.assert_array_equal(best.astype(np.float64), np.max(x.astype(np.float64), axis))


# --- other regions ---------------------------------------------------------------------------------------------------


def test_an_unknown_region_runs_as_it_is() -> None:
    """hypot, which no ufunc's reduction recognizes: over few slabs and over many."""
    square = region(
        2, "f32",
        "%x = stablehlo.multiply %a0, %a0 : tensor<f32>\n%y = stablehlo.multiply %a1, %a1 : tensor<f32>\n"
        "%s = stablehlo.add %x, %y : tensor<f32>\n%r = stablehlo.sqrt %s : tensor<f32>", "%r",
    )  # fmt: skip
    for size in (5, 999):
        x = np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)
        (got,) = here(op(reduce_text([1], square), [x, np.float32(0)], ("f32", (3,))), x, np.float32(0))
        np.testing.assert_allclose(got, np.linalg.norm(x.astype(np.float64), axis=1), rtol=1e-5)


def test_an_unknown_region_keeps_the_order() -> None:
    """x, y -> y is associative and gives the last element, x, y -> x the initial value."""
    for size in (4, 1000):
        x = np.arange(2 * size, dtype=np.int32).reshape(size, 2)
        for returned, want in (("%a1", x[-1]), ("%a0", np.array([-5, -5]))):
            text = op(reduce_text([0], region(2, "i32", "", returned)), [x, np.int32(-5)], ("i32", (2,)))
            np.testing.assert_array_equal(here(text, x, np.int32(-5))[0], want)


def test_a_region_reads_what_is_outside_of_it() -> None:
    body = region(
        2, "f32", "%m = stablehlo.multiply %a1, %2 : tensor<f32>\n%s = stablehlo.add %a0, %m : tensor<f32>", "%s"
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    text = (
        "func.func @main(%0: tensor<3x4xf32>, %1: tensor<f32>, %2: tensor<f32>) -> tensor<3xf32> {\n"
        f"%r = {reduce_text([1], body)} : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>\n"
        "return %r : tensor<3xf32>\n}"
    )
    np.testing.assert_allclose(here(text, x, np.float32(1), np.float32(2))[0], 1 + 2 * x.sum(1))


def test_independent_monoids_are_reduced_each_by_itself() -> None:
    body = """({
    ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
      %s = stablehlo.add %a, %c : tensor<f32>
      %m = stablehlo.maximum %b, %d : tensor<i32>
      stablehlo.return %s, %m : tensor<f32>, tensor<i32>
    })"""
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(12, dtype=np.int32).reshape(3, 4)
    arrays = [x, y, np.float32(1), np.int32(-1)]
    assert_as_reference(op(reduce_text([0], body, 2), arrays, ("f32", (4,)), ("i32", (4,))), *arrays)


def test_nothing_to_reduce_gives_the_initial_value() -> None:
    x = np.zeros((0, 3), np.float32)
    assert reduced(x, np.float32(5), [0], "add", "f32").tolist() == [5, 5, 5]
    arrays = [x, np.zeros((0, 3), np.int32), np.float32(-np.inf), np.int32(7)]
    values, places = here(
        op(reduce_text([0], extremum("GT", "f32", nan=True), 2), arrays, ("f32", (3,)), ("i32", (3,))), *arrays
    )
    assert values.tolist() == [-np.inf] * 3
    assert places.tolist() == [7, 7, 7]


@pytest.mark.parametrize("options", [{}, {"backends": ("numpy",)}], ids=["here", "with_numpy"])
@pytest.mark.parametrize("element", ["f32", "bf16", "complex<f32>", "i16"])
@pytest.mark.parametrize("name", ["add", "multiply"])
@together
def test_rows_of_no_columns(options: dict[str, Any], element: str, name: str) -> Cases:
    dtype = ELEMENT_TYPES[element].dtype
    shapes = [((size, 0) if axis == 0 else (0, size), axis) for size in (0, 1, 17, 120, 2500) for axis in (0, 1)]
    empty = [reduction(np.zeros(shape, dtype), dtype.type(0), [axis], name, element) for shape, axis in shapes]
    for (got,) in (yield [Program(each.text, each.arrays, options) for each in empty]):
        assert got.shape == (0,)


def test_what_is_reduced_is_not_written_over() -> None:
    """Nothing is added up over dimensions of size 1, and a region may hand its arguments back: both share no memory
    with what a later op writes in place."""
    x = np.arange(4000, dtype=np.float32).reshape(4000, 1)
    for body in (monoid("add", "f32"), region(2, "f32", "", "%a1")):
        text = f"""func.func @main(%x: tensor<4000x1xf32>) -> (tensor<4000xf32>, tensor<4000x1xf32>) {{
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %e = stablehlo.exponential %x : tensor<4000x1xf32>
          %r = "stablehlo.reduce"(%e, %z) <{{dimensions = array<i64: 1>}}> {body}
            : (tensor<4000x1xf32>, tensor<f32>) -> tensor<4000xf32>
          %n = stablehlo.negate %r : tensor<4000xf32>
          %s = stablehlo.sine %n : tensor<4000xf32>
          return %s, %e : tensor<4000xf32>, tensor<4000x1xf32>
        }}"""
        _, kept = here(text, np.minimum(x, 50))
        np.testing.assert_allclose(kept, np.exp(np.minimum(x, 50)), rtol=1e-5)


@pytest.mark.parametrize("name", ["add", "multiply"])
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("axes", [[0], [1], [0, 2], [2, 1]])
@together
def test_few_floats_are_combined_in_order(name: str, element: str, axes: list[int]) -> Cases:
    """From the initial value on, in row-major order; narrow types in f32, rounded once."""
    dtype = ELEMENT_TYPES[element].dtype
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 5, 3)).astype(dtype)
    init = np.asarray(1.25, dtype)
    wide = np.float64 if element == "f64" else np.float32
    want = reduced_in_order(x.astype(wide), init.astype(wide), axes, name).astype(dtype)
    (got,) = yield reduction(x, init[()], axes, name, element)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("init", [1, 1.25 - 0.5j])
def test_few_complex_numbers_are_multiplied_term_by_term(init: complex) -> None:
    """With each term rounded, whatever the processor could fuse."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(4, 300)) + 1j * rng.normal(size=(4, 300))).astype(np.complex64)
    start = np.asarray(init, np.complex64)
    (got,) = here(
        op(reduce_text([0], monoid("multiply", "complex<f32>")), [x, start], ("complex<f32>", (300,))), x, start
    )
    real, imaginary = np.full(300, start.real), np.full(300, start.imag)
    for row in x:
        first, second = real * row.real, imaginary * row.imag
        third, fourth = real * row.imag, imaginary * row.real
        real, imaginary = first - second, third + fourth
    np.testing.assert_array_equal(got.real, real)
    np.testing.assert_array_equal(got.imag, imaginary)


def reduced_in_order(x: np.ndarray, init: np.ndarray, axes: list[int], name: str) -> np.ndarray:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    total = np.full([x.shape[axis] for axis in kept], init)
    for slab in x.transpose([*sorted(axes), *kept]).reshape(-1, *total.shape):
        total = getattr(np, name)(total, slab)
    return total


# --- one association -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def compiled_for_numpy(text: str) -> spmd.Executable:
    return spmd.compile(spmd.parse(text), backends=("numpy",))


def by_numpy(x: np.ndarray, init: np.generic, axes: list[int], name: str, element: str) -> np.ndarray:
    return reduced(x, init, axes, name, element, run=lambda text, *arrays: compiled_for_numpy(text)(*arrays))


def numpy_pairwise(x: np.ndarray) -> np.floating:
    """The sum of one row as spmd.backends.numpy.reduction states it, element by element."""
    size = len(x)
    if size > 128:
        half = size // 2 - size // 2 % 8
        return numpy_pairwise(x[:half]) + numpy_pairwise(x[half:])
    total = x.dtype.type(-0.0)
    if size >= 8:
        lanes = x[:8].copy()
        for start in range(8, size - size % 8, 8):
            lanes += x[start : start + 8]
        total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
    for number in x[size - size % 8 :]:
        total = total + number
    return total


@pytest.mark.sampled(13)
@pytest.mark.parametrize("element", ["f32", "f64", "complex<f32>"])
@pytest.mark.parametrize("size", [17, 24, 100, 127, 128, 129, 136, 257, 300, 1000, 1025, 9 * 1024, 9 * 1024 + 131])
def test_a_sum_has_one_association(element: str, size: int) -> None:
    """Of rows, of columns, of a few and of many of them, cut, transposed and strided: the same bits."""
    dtype = ELEMENT_TYPES[element].dtype
    rng = np.random.default_rng(size)
    x = (rng.normal(size=(600, size)) * np.exp(rng.uniform(-9, 9, (600, size)))).astype(dtype)
    if dtype.kind == "c":
        x.imag = x.real[::-1]
    zero = np.asarray(0, dtype)
    parts = [x.real, x.imag] if dtype.kind == "c" else [x]
    want = [np.array([numpy_pairwise(part[row]) for row in range(3)]) for part in parts]

    def total(array: np.ndarray, axes: list[int]) -> np.ndarray:
        return by_numpy(array, zero[()], axes, "add", element)

    rows = total(x, [1])
    for part, expected in zip([rows.real, rows.imag], want, strict=False):
        np.testing.assert_array_equal(part[:3], expected)
    for count in (1, 2, 7, 300):
        np.testing.assert_array_equal(total(x[:count], [1]), rows[:count], "fewer rows")
        np.testing.assert_array_equal(total(np.ascontiguousarray(x[:count].T), [0]), rows[:count], "columns")
        np.testing.assert_array_equal(total(x[:count].T, [0]), rows[:count], "a transposed view")
        np.testing.assert_array_equal(total(np.repeat(x[:count], 2, 1)[:, ::2], [1]), rows[:count], "a strided view")
        np.testing.assert_array_equal(total(x[:count, ::-1][:, ::-1], [1]), rows[:count])
        middle = np.ascontiguousarray(x[:count].T.reshape(size, 1, count).transpose(1, 0, 2))
        np.testing.assert_array_equal(total(middle, [1])[0], rows[:count], "rows between others")
    for row in range(0, 600, 97):
        np.testing.assert_array_equal(total(x[row], [0]), rows[row], "one row")


def test_sums_over_separated_dimensions_do_not_depend_on_what_lies_between() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 6, 37)).astype(np.float32)
    whole = by_numpy(x, np.float32(0), [0, 2], "add", "f32")
    for column in range(6):
        np.testing.assert_array_equal(by_numpy(x[:, column : column + 1], np.float32(0), [0, 2], "add", "f32")[0],
                                      whole[column])  # fmt: skip


# --- zeros of two signs ----------------------------------------------------------------------------------------------

ZEROS = [name for name, element in ELEMENT_TYPES.items() if element.is_float and element.numpy is not None
         and not name.endswith(("FNU", "FNUZ"))]  # fmt: skip


def negative(array: np.ndarray) -> list[bool]:
    return np.signbit(np.asarray(array).astype(np.float64)).ravel().tolist()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", ZEROS)
def test_zeros_of_two_signs(element: str) -> None:
    """The maximum of +0 and -0 is +0, the minimum -0; a sum is -0 only when everything is, the initial value too."""
    dtype = ELEMENT_TYPES[element].dtype
    for size in (2, 5, 16, 17, 40, 300):
        for plus in {0, size // 2, size - 1}:
            x = np.full((size,), -0.0).astype(dtype)
            assert negative(by_numpy(x, np.asarray(-0.0, dtype)[()], [0], "add", element)) == [True]
            assert negative(by_numpy(x, np.asarray(0.0, dtype)[()], [0], "add", element)) == [False]
            low, high = np.asarray(-1, dtype)[()], np.asarray(1, dtype)[()]
            assert negative(by_numpy(x, low, [0], "maximum", element)) == [True]
            x[plus] = 0
            assert negative(by_numpy(x, low, [0], "maximum", element)) == [False]
            assert negative(by_numpy(x, high, [0], "minimum", element)) == [True]
            assert negative(by_numpy(-x, high, [0], "minimum", element)) == [True]
            assert negative(by_numpy(x, np.asarray(-0.0, dtype)[()], [0], "add", element)) == [False]
            table = np.stack([x, -x, x * 0 - np.asarray(1, dtype)], 1)
            assert negative(by_numpy(table, low, [0], "maximum", element)) == [False, False, True]
            assert negative(by_numpy(table, high, [0], "minimum", element)) == [True, True, True]
    ones = np.full((3,), -0.0).astype(dtype)
    assert negative(by_numpy(ones, np.asarray(0.0, dtype)[()], [0], "maximum", element)) == [False]
    assert negative(by_numpy(-ones, np.asarray(-0.0, dtype)[()], [0], "minimum", element)) == [True]
    assert negative(by_numpy(np.empty((0,), dtype), np.asarray(-0.0, dtype)[()], [0], "add", element)) == [True]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", ["bf16", "f16", "f32", "f64", "complex<f64>"])
@pytest.mark.parametrize("size", [8, 40, 300, 1024, 1025, 2048, 4097])
def test_a_sum_of_negative_zeros_is_one_at_every_size(element: str, size: int) -> None:
    """Of rows, and of columns."""
    dtype = ELEMENT_TYPES[element].dtype
    zero = np.asarray(complex(-0.0, -0.0) if dtype.kind == "c" else -0.0).astype(dtype)
    for inner in (1, 3, 40):
        rows, columns = np.full((inner, size), zero), np.full((size, inner), zero)
        for total in (by_numpy(rows, zero[()], [1], "add", element), by_numpy(columns, zero[()], [0], "add", element)):
            assert all(negative(total.real) + negative(total.imag if dtype.kind == "c" else total))


# --- where the largest is --------------------------------------------------------------------------------------------


def arg_text(direction: str, order: str, counted: bool, shape: tuple[int, ...]) -> str:
    """Argmax or argmin along the last dimension: (value, index), from constants or an operand of indices."""
    index = ("i32", shape)
    kept = shape[:-1]
    return f"""func.func @main(%x: {type_of(("f32", shape))}, %j: {type_of(index)}, %z: tensor<f32>) ->
        ({type_of(("f32", kept))}, {type_of(("i32", kept))}) {{
      %w = stablehlo.constant dense<0> : tensor<i32>
      %k = stablehlo.iota dim = {len(shape) - 1} : {type_of(index)}
      %r:2 = "stablehlo.reduce"(%x, %{"k" if counted else "j"}, %z, %w) <{{dimensions = {ints([len(shape) - 1])}}}> ({{
      ^bb0(%v: tensor<f32>, %i: tensor<i32>, %u: tensor<f32>, %l: tensor<i32>):
        %c = stablehlo.compare {direction}, %v, %u, {order} : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %s = stablehlo.select %c, %v, %u : tensor<i1>, tensor<f32>
        %t = stablehlo.select %c, %i, %l : tensor<i1>, tensor<i32>
        stablehlo.return %s, %t : tensor<f32>, tensor<i32>
      }}) : ({type_of(("f32", shape))}, {type_of(index)}, tensor<f32>, tensor<i32>)
        -> ({type_of(("f32", kept))}, {type_of(("i32", kept))})
      return %r#0, %r#1 : {type_of(("f32", kept))}, {type_of(("i32", kept))}
    }}"""


@pytest.mark.parametrize("shape", [(3,), (40, 5), (1500, 4), (3, 200)])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("order", ["FLOAT", "TOTALORDER"])
@pytest.mark.parametrize("direction", ["GT", "GE", "LT", "LE"])
@together
def test_extrema_among_zeros_and_nans(direction: str, order: str, counted: bool, shape: tuple[int, ...]) -> Cases:
    """As the region folds them from the first to the last."""
    rng = np.random.default_rng(0)
    values = np.array([-0.0, 0.0, 1.0, -1.0, np.nan, -np.nan, np.inf, -np.inf], np.float32)
    several = [values[:2], values[:4], values[[0, 1, 3]]]
    if order == "TOTALORDER" or shape[-1] < 100:  # with NaN the others' order of folding, which is free, shows
        several.append(values)
    drawn_values = [rng.choice(choice, shape).astype(np.float32) for choice in several]
    places = np.ascontiguousarray(np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape))
    start, text = np.float32(-np.inf if direction[0] == "G" else np.inf), arg_text(direction, order, counted, shape)
    results = yield [for_numpy(text, x, places, np.asarray(start)) for x in drawn_values]
    for x, got in zip(drawn_values, results, strict=True):
        best, where = np.full(shape[:-1], start), np.zeros(shape[:-1], np.int32)
        for k in range(shape[-1]):
            first = beyond(direction, order, best, x[..., k])
            best, where = np.where(first, best, x[..., k]), np.where(first, where, np.int32(k))
        np.testing.assert_array_equal(got[0].view(np.int32), np.asarray(best).view(np.int32))
        np.testing.assert_array_equal(got[1], where)


def beyond(direction: str, order: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    operation = {"GT": np.greater, "GE": np.greater_equal, "LT": np.less, "LE": np.less_equal}[direction]
    if order == "TOTALORDER":
        left, right = (
            bits ^ ((bits >> 31) & 0x7FFFFFFF) for bits in (np.asarray(x).view(np.int32) for x in (left, right))
        )
    return operation(left, right)
