"""Dots of random dimension numbers against NumPy's einsum; integers exactly; algorithms by the types they name."""

import math
from string import ascii_letters

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

import spmd
from spmd.types import ELEMENT_TYPES
from tests.backends.modules import here, main, op, type_of
from tests.backends.together import Cases, Program, drawn, together
from tests.effort import examples


def dot_text(numbers: tuple[list[int], ...], more: str = "") -> str:
    lb, rb, lc, rc = numbers
    return f""""stablehlo.dot_general"(%0, %1) <{{dot_dimension_numbers = #stablehlo.dot<
        lhs_batching_dimensions = {lb}, rhs_batching_dimensions = {rb},
        lhs_contracting_dimensions = {lc}, rhs_contracting_dimensions = {rc}>{more}}}>"""


def draw_dot(data: st.DataObject) -> tuple[tuple[list[int], ...], tuple[int, ...], tuple[int, ...], str]:
    """Dimension numbers, both shapes, and the equation."""
    letters = iter(ascii_letters)
    groups = [[next(letters) for _ in range(data.draw(st.integers(0, 2)))] for _ in range(4)]
    batch, contracting, left, right = groups
    size = {letter: data.draw(st.integers(0, 4)) for group in groups for letter in group}
    lhs = data.draw(st.permutations(batch + contracting + left))
    rhs = data.draw(st.permutations(batch + contracting + right))
    numbers = tuple([side.index(letter) for letter in group] for group in (batch, contracting) for side in (lhs, rhs))
    lhs_free, rhs_free = ([letter for letter in side if letter in free] for side, free in ((lhs, left), (rhs, right)))
    equation = f"{''.join(lhs)},{''.join(rhs)}->{''.join(batch + lhs_free + rhs_free)}"
    return numbers, tuple(size[k] for k in lhs), tuple(size[k] for k in rhs), equation


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "f16", "complex<f32>", "i8", "i32", "ui16", "i4", "i1"])
@together
@drawn(examples(40), data=st.data())
def test_dot_general(element: str, data: st.DataObject) -> Cases:
    numbers, lhs_shape, rhs_shape, equation = draw_dot(data)
    dtype = ELEMENT_TYPES[element].dtype
    rng = np.random.default_rng(0)
    low, high = (0, 2) if element == "i1" else (0, 3) if element.startswith("ui") else (-2, 3)
    x, y = (rng.integers(low, high, shape).astype(dtype) for shape in (lhs_shape, rhs_shape))
    wide = np.complex128 if dtype.kind == "c" else np.float64
    want = np.einsum(equation, x.astype(wide), y.astype(wide))
    if element == "i1":
        want = want > 0
    elif element == "i4":
        want = (want + 8) % 16 - 8
    (got,) = yield Program(op(dot_text(numbers), [x, y], (element, want.shape)), [x, y])
    np.testing.assert_array_equal(got.astype(want.dtype), want)


MATRIX = ([], [], [1], [0])


@pytest.mark.parametrize("real", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("whole", ["i8", "ui16", "i64"])
@pytest.mark.parametrize("size", [3, 70])
@together
def test_integers_that_meet_floats_are_widened(whole: str, real: str, size: int) -> Cases:
    """As in JAX's programs for TPUs, on either side."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (size, size)).astype(ELEMENT_TYPES[whole].dtype)
    y = (rng.integers(-4, 5, (size, size)) / 4).astype(ELEMENT_TYPES[real].dtype)
    sides = [(x, y), (y, x)]
    products = [Program(op(dot_text(MATRIX), operands, (real, (size, size))), operands) for operands in sides]
    for operands, (got,) in zip(sides, (yield products), strict=True):
        exact = operands[0].astype(np.float64) @ operands[1].astype(np.float64)
        np.testing.assert_array_equal(got.astype(np.float64), exact.astype(y.dtype).astype(np.float64))


@pytest.mark.parametrize(
    ("operand", "result"),
    [("i8", "i32"), ("i16", "i32"), ("i32", "i32"), ("ui8", "ui8"), ("i64", "i64"), ("i8", "i8"), ("ui32", "ui32"),
     ("i32", "i64"), ("i4", "i32")],
)  # fmt: skip
@pytest.mark.parametrize("size", [3, 70])
@together
def test_integers_wrap_in_the_width_of_the_result(operand: str, result: str, size: int) -> Cases:
    """Of all bit patterns, small products and ones large enough for other ways."""
    rng = np.random.default_rng(0)
    bits = ELEMENT_TYPES[operand].bits
    lowest = 0 if operand.startswith("ui") else -(2 ** (bits - 1))
    x, y = (rng.integers(lowest, lowest + 2**bits - 1, (size, size), endpoint=True, dtype=np.int64) for _ in range(2))
    exact = x.astype(object) @ y.astype(object)
    width, start = (
        2 ** ELEMENT_TYPES[result].bits,
        0 if result.startswith("ui") else -(2 ** (ELEMENT_TYPES[result].bits - 1)),
    )
    want = (exact - start) % width + start
    arrays = [array.astype(ELEMENT_TYPES[operand].dtype) for array in (x, y)]
    (got,) = yield Program(op(dot_text(MATRIX), arrays, (result, (size, size))), arrays)
    assert (got.astype(object) == want).all()


def test_the_preferred_type_is_what_sums_are_kept_in() -> None:
    x = np.full((1, 4096), 1, ml_dtypes.bfloat16)
    for result, want in (("f32", 4096.0), ("bf16", 4096.0), ("f64", 4096.0)):
        (got,) = here(op(dot_text(([], [], [1], [1])), [x, x], (result, (1, 1))), x, x)
        assert float(got[0, 0]) == want
    x = np.full((1, 3), 1 / 3, np.float32)
    (got,) = here(op(dot_text(([], [], [1], [1])), [x, x], ("f64", (1, 1))), x, x)
    assert float(got[0, 0]) == float(np.float64(np.float32(1 / 3)) ** 2 * 3)


@pytest.mark.parametrize(
    ("precision", "operations", "want"),
    [("bf16", 1, 1.0), ("tf32", 1, (1 + 2**-10) ** 2), ("bf16", 6, (1 + 2**-10 + 2**-12) ** 2)],
)
def test_an_algorithm_rounds_operands_to_its_precision(precision: str, operations: int, want: float) -> None:
    """Of 1 + 2**-10 + 2**-12 bf16 keeps 1, tf32 (10 bits) 1 + 2**-10, six products of bf16 all of it."""
    x = np.full((1, 1), 1 + 2**-10 + 2**-12, np.float32)
    algorithm = f""", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = {precision},
        rhs_precision_type = {precision}, accumulation_type = f32, lhs_component_count = 1,
        rhs_component_count = 1, num_primitive_operations = {operations},
        allow_imprecise_accumulation = false>"""
    text = op(dot_text(MATRIX, algorithm), [x, x], ("f32", (1, 1)))
    (got,) = here(text, x, x)
    assert float(got[0, 0]) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [((3,), (3,), ()), ((2, 3), (3,), (2,)), ((3,), (3, 4), (4,)), ((2, 3), (3, 4), (2, 4))],
)
def test_dot(lhs: tuple[int, ...], rhs: tuple[int, ...], result: tuple[int, ...]) -> None:
    x, y = (np.arange(math.prod(shape), dtype=np.float32).reshape(shape) for shape in (lhs, rhs))
    np.testing.assert_array_equal(here(op('"stablehlo.dot"(%0, %1)', [x, y], ("f32", result)), x, y)[0], x @ y)


def test_operands_that_are_views() -> None:
    """Transposed, reversed, strided and broadcast operands of a batched product."""
    x = np.random.default_rng(0).standard_normal((6, 5, 4)).astype(np.float32)
    lines = f"""
      %t = stablehlo.transpose %0, dims = [1, 2, 0] : ({type_of(x)}) -> tensor<5x4x6xf32>
      %s = stablehlo.slice %0 [0:6:2, 0:5, 0:4] : ({type_of(x)}) -> tensor<3x5x4xf32>
      %v = stablehlo.reverse %s, dims = [0, 2] : tensor<3x5x4xf32>
      %d = stablehlo.dot_general %t, %v, batching_dims = [0] x [1], contracting_dims = [1] x [2]
        : (tensor<5x4x6xf32>, tensor<3x5x4xf32>) -> tensor<5x6x3xf32>"""
    (got,) = here(main(lines, [x], "%d : tensor<5x6x3xf32>"), x)
    want = np.einsum("bcn,kbc->bnk", x.transpose(1, 2, 0), x[::2][::-1, :, ::-1])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"), [("ab,bc->ac", ((2, 3), (3, 4))), ("abc,dc->dab", ((2, 3, 4), (5, 4)))]
)
def test_einsum(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = (np.random.default_rng(k).standard_normal(shape).astype(np.float32) for k, shape in enumerate(shapes))
    want = np.einsum(equation, x, y)
    text = op(f'"stablehlo.einsum"(%0, %1) {{einsum_config = "{equation}"}}', [x, y], ("f32", want.shape))
    np.testing.assert_allclose(here(text, x, y)[0], want, rtol=1e-5)
    text = op('"stablehlo.unary_einsum"(%0) {einsum_config = "ab->b"}', [x], ("f32", x.shape[1:]))
    if x.ndim == 2:
        np.testing.assert_allclose(here(text, x)[0], x.sum(0), rtol=1e-5)


@pytest.mark.parametrize("size", [3, 16, 90])
@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
def test_complex_outer_products_have_the_zeros_of_multiply(element: str, size: int) -> None:
    """Of nothing that is summed over, and of one: in native code, by NumPy, and stacked."""
    parts = np.resize([0.0, -0.0, 1.0, -2.0, 0.0], size), np.resize([-0.0, 3.0, 0.0, -0.0, -1.0, 0.0, 2.0], size)
    x = np.empty(size, np.complex64 if element == "complex<f32>" else np.complex128)
    x.real, x.imag = parts
    y = np.roll(x, 2).conj()
    n, square = f"tensor<{size}x{element}>", f"tensor<{size}x{size}x{element}>"
    column, row = f"tensor<{size}x1x{element}>", f"tensor<1x{size}x{element}>"
    text = f"""func.func @main(%x: {n}, %y: {n}) -> ({square}, {square}, {n}) {{
      %o = stablehlo.dot_general %x, %y, contracting_dims = [] x [] : ({n}, {n}) -> {square}
      %c = stablehlo.reshape %x : ({n}) -> {column}
      %r = stablehlo.reshape %y : ({n}) -> {row}
      %p = stablehlo.dot_general %c, %r, contracting_dims = [1] x [0] : ({column}, {row}) -> {square}
      %b = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [] x [] : ({n}, {n}) -> {n}
      return %o, %p, %b : {square}, {square}, {n}
    }}"""
    left, right = x[:, None], y[None, :]
    want = np.empty((size, size), x.dtype)
    want.real = left.real * right.real - left.imag * right.imag
    want.imag = left.real * right.imag + left.imag * right.real
    module = spmd.parse(text)
    results = [spmd.compile(module, backends=each)(x, y) for each in (("llvm", "numpy"), ("numpy",))]
    simulation = spmd.simulate(module, spmd.ProcessGrid(num_replicas=2, num_partitions=1))
    results.append([part[1] for part in simulation(np.stack([x, x]), np.stack([y, y]))])
    for outer, product, batch in results:
        for got, expected in ((outer, want), (product, want), (batch, np.diagonal(want))):
            assert got.tobytes() == np.ascontiguousarray(expected).tobytes()
