"""Elementwise ops against the reference interpreter, and the edges that the specification leaves to XLA."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.backends.numpy.elementwise import BINARY, COMPARISONS, UNARY, ElementwiseKernels
from spmd.backends.numpy.elementwise_integer import divide_signed, remainder, truncated_quotient
from spmd.types import ELEMENT_TYPES, ElementType
from tests.backends.modules import reference
from tests.backends.programs import (
    Case,
    apply,
    decoded_each,
    program_of,
    run_here,
    steps_apart,
    values_of,
)
from tests.effort import examples

#: The reference interpreter's arithmetic is unsound on the first two; numbers of 2 to 6 bits it does not have.
_NOT_IN_REFERENCE = {"f8E3M4", "f8E8M0FNU"}
ELEMENTS = [
    element
    for element in ELEMENT_TYPES.values()
    if element.numpy is not None
    and not element.is_index
    and element.name not in _NOT_IN_REFERENCE
    and (element.bits >= 8 or element.is_boolean)
]
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
#: Where the reference interpreter's own error is larger than what is tested: its complex functions by the naive
#: formula, and logistic step by step in narrow types.
_LOOSE = {"stablehlo.atan2", "stablehlo.exponential_minus_one", "stablehlo.log_plus_one", "stablehlo.logistic"}


def comparable(name: str, element: ElementType) -> bool:
    if name in _LOOSE and (element.is_complex or element.bits < 16 or element.name == "f16"):
        return False
    # The reference interpreter has no remainder of complex numbers, and no maximum of NaN among them.
    return not (element.is_complex and name in ("stablehlo.remainder", "stablehlo.maximum", "stablehlo.minimum"))


def assert_close(got: np.ndarray, want: np.ndarray, ulps: int) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.kind == "c":
        # Right as a whole: either part may be the small difference of large numbers.
        np.testing.assert_allclose(got, want, rtol=2 * ulps * np.finfo(got.dtype).eps, atol=0)
    elif got.dtype.kind in "biu" or got.dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        np.testing.assert_array_equal(got, want)
    else:
        apart = steps_apart(got, want)
        assert (apart <= ulps).all(), f"{apart.max()} ULP apart: {got[apart > ulps]} and {want[apart > ulps]}"


def check_against_reference(cases: Sequence[Case], ulps: int | Callable[[Case], int] = 0) -> None:
    """Compares what ops give; one program has them all."""
    text = program_of(cases)
    results, wanted = (decoded_each(run(text), cases) for run in (run_here, reference))
    for case, got, want in zip(cases, results, wanted, strict=True):
        assert_close(got, want, ulps if isinstance(ulps, int) else ulps(case))


def like(name: str, *operands: np.ndarray, element: ElementType) -> Case:
    """An op whose result is of the type of its last operand's shape, and of `element`."""
    return Case(name, operands, (element.name, operands[-1].shape))


def drawn(test: Callable[..., None]) -> Callable[..., None]:
    """Decorator: a test of a few shapes, and of the values that a seed gives."""
    return settings(max_examples=3)(given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))(test))


def elements_of(kernels: Mapping[str, ElementwiseKernels], name: str, arity: int) -> Iterator[ElementType]:
    """The element types that `name` is defined on, and on which the reference can be compared with."""
    return (each for each in ELEMENTS if kernels[name].call(each, arity) is not None and comparable(name, each))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", UNARY)
@drawn
def test_unary_against_reference(name: str, shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = []
    for element in elements_of(UNARY, name, 1):
        operand = values_of(element, rng, shape)
        if element.is_complex:
            operand = np.where(np.isfinite(operand), operand, 1)  # C99 and the reference differ at infinities
        cases.append(like(name, operand, element=element))
    check_against_reference(cases, 3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BINARY)
@drawn
def test_binary_against_reference(name: str, shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = []
    for element in elements_of(BINARY, name, 2):
        operands = [values_of(element, rng, shape) for _ in range(2)]
        if element.is_integer and name in ("stablehlo.divide", "stablehlo.remainder"):
            operands[1] = np.where((operands[1] == 0) | (operands[1] == -1), 3, operands[1]).astype(element.dtype)
        if element.is_complex:
            operands = [np.where(np.isfinite(x) & (x != 0), x, 2) for x in operands]
        cases.append(like(name, *operands, element=element))
    check_against_reference(cases, _ulps)


def _ulps(case: Case) -> int:
    """A complex power is the exponential of a product, whose error grows with its size."""
    element = ELEMENT_TYPES[case.result[0]]
    if element.is_complex and case.name == "stablehlo.power":
        return 500
    return 3 if element.is_float or element.is_complex else 0


@pytest.mark.parametrize("direction", COMPARISONS)
@drawn
def test_compare_against_reference(direction: str, shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    attribute = f"comparison_direction = #stablehlo<comparison_direction {direction}>"
    cases = []
    for element in ELEMENTS:
        if element.is_complex and direction not in ("EQ", "NE"):
            continue
        operands = [values_of(element, rng, shape) for _ in range(2)]
        operands[1] = np.where(rng.random(shape) < 0.5, *operands)
        cases.append(Case("stablehlo.compare", operands, ("i1", shape), attribute))
    check_against_reference(cases)


@settings(max_examples=5)
@given(shape=SHAPES, seed=st.integers(0, 2**32 - 1), scalar=st.booleans())
def test_select_and_clamp_against_reference(shape: tuple[int, ...], seed: int, scalar: bool) -> None:
    rng = np.random.default_rng(seed)
    small = () if scalar else shape
    cases = []
    for element in ELEMENTS:
        chosen = rng.integers(0, 2, small).astype(np.bool_)
        operands = [chosen, *(values_of(element, rng, shape) for _ in range(2))]
        cases.append(like("stablehlo.select", *operands, element=element))
        if not element.is_complex:
            operands = [values_of(element, rng, size) for size in (small, shape, small)]
            cases.append(Case("stablehlo.clamp", operands, (element.name, shape)))
    check_against_reference(cases)


@settings(max_examples=5)
@given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
def test_bits_against_reference(shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = []
    for element in ELEMENTS:
        if not element.is_integer:
            continue
        operand, amount = (values_of(element, rng, shape) for _ in range(2))
        within = (amount.astype(np.int64) % element.bits).astype(element.dtype)
        shifts = (f"stablehlo.shift_{way}" for way in ("left", "right_logical", "right_arithmetic"))
        cases += [like(name, operand, within, element=element) for name in shifts]
        cases.append(like("stablehlo.popcnt", operand, element=element))
    check_against_reference(cases)


# --- integers at their edges -----------------------------------------------------------------------------------------


def test_integer_division_by_zero_gives_all_ones() -> None:
    assert apply("stablehlo.divide", np.int32([5, -5, 0]), np.int32([0, 0, 0])).tolist() == [-1, -1, -1]
    assert apply("stablehlo.divide", np.uint8([5, 0]), np.uint8([0, 0])).tolist() == [255, 255]
    assert apply("stablehlo.divide", np.array([3], ml_dtypes.int4), np.array([0], ml_dtypes.int4)) == -1


def test_integer_remainder_by_zero_gives_the_dividend() -> None:
    assert apply("stablehlo.remainder", np.int32([5, -5]), np.int32([0, 0])).tolist() == [5, -5]
    assert apply("stablehlo.remainder", np.uint64([7]), np.uint64([0])).tolist() == [7]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_smallest_integer_divided_by_minus_one_is_itself(dtype: type) -> None:
    smallest = np.iinfo(dtype).min
    assert apply("stablehlo.divide", dtype([smallest]), dtype([-1])).tolist() == [smallest]
    assert apply("stablehlo.remainder", dtype([smallest]), dtype([-1])).tolist() == [0]


@given(st.integers(-128, 127), st.integers(-128, 127).filter(bool))
@settings(max_examples=examples(50))
def test_division_rounds_towards_zero(x: int, y: int) -> None:
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    wrapped = (quotient + 128) % 256 - 128
    assert divide_signed(np.int8([x]), np.int8([y])) == truncated_quotient(np.int8([x]), np.int8([y])) == wrapped
    assert remainder(np.int8([x]), np.int8([y])) == x - y * quotient


def test_division_by_a_constant_is_the_same_division() -> None:
    text = """func.func @main(%x: tensor<6xi32>) -> (tensor<6xi32>, tensor<6xi32>) {
      %c = stablehlo.constant dense<-3> : tensor<i32>
      %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<6xi32>
      %q = stablehlo.divide %x, %b : tensor<6xi32>
      %r = stablehlo.remainder %x, %b : tensor<6xi32>
      return %q, %r : tensor<6xi32>, tensor<6xi32>
    }"""
    quotient, remainder = spmd.compile(spmd.parse(text))(np.int32([-7, -6, -1, 1, 6, 7]))
    assert quotient.tolist() == [2, 2, 0, 0, -2, -2]
    assert remainder.tolist() == [-1, 0, -1, 1, 0, 1]


def test_shifts_past_the_width() -> None:
    amounts = np.int32([32, -1, 31, 0])
    assert apply("stablehlo.shift_left", np.int32([1, 1, 1, 1]), amounts).tolist() == [0, 0, -(2**31), 1]
    assert apply("stablehlo.shift_right_logical", np.int32([-1, -1, -1, -1]), amounts).tolist() == [0, 0, 1, -1]
    assert apply("stablehlo.shift_right_arithmetic", np.int32([-5, 5, -5, -5]), amounts).tolist() == [-1, 0, -1, -5]
    four = lambda *values: np.array(values, ml_dtypes.int4)  # noqa: E731
    assert apply("stablehlo.shift_left", four(1, 1, 3), four(3, 4, 2)).tolist() == [-8, 0, -4]
    assert apply("stablehlo.shift_right_logical", four(-1, -8, -1), four(1, 3, -1)).tolist() == [7, 1, 0]
    assert apply("stablehlo.shift_right_arithmetic", four(-8, -8, 7), four(1, 5, -1)).tolist() == [-4, -1, 0]


def test_integer_power() -> None:
    base, exponent = np.int32([2, -1, -1, 1, 0, 3, 2, 0]), np.int32([-1, -3, -2, -1, 0, 40, 31, -1])
    wrapped = (3**40 + 2**31) % 2**32 - 2**31
    assert apply("stablehlo.power", base, exponent).tolist() == [0, -1, 1, 1, 1, wrapped, -(2**31), 0]


def test_two_and_four_bit_integers_wrap() -> None:
    assert apply("stablehlo.add", np.array([7, -8], ml_dtypes.int4), np.array([1, -1], ml_dtypes.int4)).tolist() == [
        -8,
        7,
    ]
    assert apply("stablehlo.multiply", np.array([3], ml_dtypes.uint2), np.array([3], ml_dtypes.uint2)).tolist() == [1]
    assert apply("stablehlo.negate", np.array([-8, 3], ml_dtypes.int4)).tolist() == [-8, -3]


def test_bit_counts() -> None:
    assert apply("stablehlo.popcnt", np.int8([-1, 0, 7])).tolist() == [8, 0, 3]
    assert apply("stablehlo.count_leading_zeros", np.int16([-1, 0, 1, 255])).tolist() == [0, 16, 15, 8]
    assert apply("stablehlo.count_leading_zeros", np.uint64([0, 2**63, 2**40])).tolist() == [64, 0, 23]
    assert apply("stablehlo.popcnt", np.array([-1, 5], ml_dtypes.int4)).tolist() == [4, 2]
    assert apply("stablehlo.count_leading_zeros", np.array([0, 1, -1], ml_dtypes.int4)).tolist() == [4, 3, 0]


# --- floats at their edges -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_maximum_and_minimum_are_those_of_ieee_754(dtype: type) -> None:
    x, y = np.array([-0.0, 0.0, np.nan, 1, -np.inf], dtype), np.array([0.0, -0.0, 1, np.nan, np.inf], dtype)
    high, low = apply("stablehlo.maximum", x, y), apply("stablehlo.minimum", x, y)
    assert np.signbit(high[:2].astype(np.float64)).tolist() == [False, False]
    assert np.signbit(low[:2].astype(np.float64)).tolist() == [True, True]
    assert np.isnan(high[2:4].astype(np.float64)).all() and np.isnan(low[2:4].astype(np.float64)).all()
    assert float(high[4]) == np.inf and float(low[4]) == -np.inf


def test_maximum_with_a_constant_zero_is_never_negative_zero() -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<3xf32>
      %r = stablehlo.maximum %x, %c : tensor<3xf32>
      return %r : tensor<3xf32>
    }"""
    (result,) = spmd.compile(spmd.parse(text))(np.float32([-0.0, -1, np.nan]))
    assert not np.signbit(result[:2]).any() and np.isnan(result[2])


def test_sign_and_rounding_keep_signed_zeros_and_nan() -> None:
    x = np.float32([-0.0, 0.0, np.nan, -3, 5])
    signs = apply("stablehlo.sign", x)
    assert np.signbit(signs).tolist() == [True, False, False, True, False] and np.isnan(signs[2])
    assert signs[3:].tolist() == [-1, 1]
    halves = np.float32([0.5, -0.5, 0.49999997, 2.5, -2.5, 8388609.0, 1.5, -0.2])
    assert apply("stablehlo.round_nearest_afz", halves).tolist() == [1, -1, 0, 3, -3, 8388609, 2, 0]
    assert apply("stablehlo.round_nearest_even", halves).tolist() == [0, 0, 0, 2, -2, 8388609, 2, 0]
    assert np.signbit(apply("stablehlo.round_nearest_afz", halves)[-1])


def test_reciprocal_root_of_zeros() -> None:
    assert apply("stablehlo.rsqrt", np.float32([-0.0, 0.0, np.inf])).tolist() == [-np.inf, np.inf, 0]


def test_subnormals_are_kept() -> None:
    tiny = np.float32([1e-40, 1.4e-45])
    assert apply("stablehlo.multiply", tiny, np.float32([2, 1])).tolist() == (tiny * np.float32([2, 1])).tolist()
    assert apply("stablehlo.exponential", np.float32([-100.0]))[0] > 0


def test_total_order_tells_zeros_and_nans_apart() -> None:
    x = np.float32([-0.0, np.nan, -np.nan, 1])
    y = np.float32([0.0, np.inf, -np.inf, 1])
    attributes = (
        "comparison_direction = #stablehlo<comparison_direction {}>, compare_type = #stablehlo<comparison_type {}>"
    )
    less = apply("stablehlo.compare", x, y, attributes=attributes.format("LT", "TOTALORDER"), result="i1")
    assert less.tolist() == [True, False, True, False]
    plain = apply("stablehlo.compare", x, y, attributes=attributes.format("LT", "FLOAT"), result="i1")
    assert plain.tolist() == [False, False, False, False]


@pytest.mark.parametrize("element", ["f8E4M3B11FNUZ", "f8E4M3FNUZ", "f8E5M2FNUZ"])
def test_the_nan_without_payload_is_below_all_numbers_in_total_order(element: str) -> None:
    """Its bits are those of a negative zero, its sign is minus: as for -NaN of other types."""
    x = np.arange(256, dtype=np.uint8).view(ELEMENT_TYPES[element].dtype)
    nan = np.full(256, 0x80, np.uint8).view(x.dtype)
    attributes = (
        "comparison_direction = #stablehlo<comparison_direction LT>,"
        " compare_type = #stablehlo<comparison_type TOTALORDER>"
    )
    less = apply("stablehlo.compare", nan, x, attributes=attributes, result="i1")
    assert np.flatnonzero(~less).tolist() == [0x80]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_rsqrt_of_complex_infinities_is_zero(dtype: type) -> None:
    parts = [np.inf, -np.inf, 2.5, 0.0, -2.5]
    z = np.array([complex(x, y) for x in parts for y in (np.inf, -np.inf)], dtype)
    root = apply("stablehlo.rsqrt", z)
    assert not root.any()
    np.testing.assert_array_equal(np.signbit(root.imag), z.imag > 0)


@pytest.mark.filterwarnings("error")
def test_constants_are_looked_at_without_a_warning() -> None:
    """A signaling NaN in a constant, which the processor flags whatever is done with it."""
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %c = stablehlo.constant dense<"0x0100807F0000803F"> : tensor<2xf32>
      %r = stablehlo.maximum %x, %c : tensor<2xf32>
      return %r : tensor<2xf32>
    }"""
    (quotient,) = spmd.compile(spmd.parse(text))(np.float32([5, 0]))
    assert np.isnan(quotient[0]) and quotient[1] == 1


def test_clamp_propagates_nan() -> None:
    clamped = apply("stablehlo.clamp", np.float32([0, np.nan, 1]), np.float32([5, 1, np.nan]), np.float32([2, 2, 2]))
    assert clamped[0] == 2 and np.isnan(clamped[1:]).all()


@pytest.mark.parametrize("name", ["log", "sqrt", "log_plus_one"])
def test_branch_cuts_follow_the_sign_of_zero(name: str) -> None:
    """On the cut along the negative real axis, the sign of the imaginary zero chooses the side."""
    for dtype in (np.complex64, np.complex128):
        above, below = apply("stablehlo." + name, np.array([complex(-4, 0.0), complex(-4, -0.0)], dtype))
        assert above.imag > 1 and below.imag == -above.imag and below.real == above.real


def test_narrow_floats_round_once() -> None:
    """Each result is the double-precision one, rounded."""
    for element in ELEMENT_TYPES.values():
        if not element.is_float or element.numpy is None or element.bits > 16:
            continue
        rng = np.random.default_rng(3)
        x, y = (values_of(element, rng, (200,)) for _ in range(2))
        for name, function in (("add", np.add), ("multiply", np.multiply), ("divide", np.divide)):
            with np.errstate(all="ignore"):
                exact = function(x.astype(np.float64), y.astype(np.float64)).astype(element.dtype)
            got = (
                apply("stablehlo." + name, x, y)
                if element.bits >= 8
                else BINARY["stablehlo." + name].call(element, 2)(x, y)
            )
            np.testing.assert_array_equal(got.astype(np.float64), exact.astype(np.float64))


@pytest.mark.parametrize("element", ["f32", "bf16", "i1", "i64", "i4", "complex<f32>"])
@pytest.mark.parametrize("zero_when", ["true", "false"])
def test_select_between_values_and_zero_keeps_their_bits(element: str, zero_when: str) -> None:
    choices = "%z, %x" if zero_when == "true" else "%x, %z"
    tensor = f"tensor<5x1000x{element}>"
    zero = {"f32": "0.0", "bf16": "0.0", "i1": "false", "complex<f32>": "(0.0, 0.0)"}.get(element, "0")
    module = spmd.parse(f"""
func.func @main(%p: tensor<5x1000xi1>, %x: {tensor}) -> {tensor} {{
  %z = stablehlo.constant dense<{zero}> : {tensor}
  %r = stablehlo.select %p, {choices} : tensor<5x1000xi1>, {tensor}
  return %r : {tensor}
}}""")
    rng = np.random.default_rng(0)
    dtype = module.function("main").type.inputs[1].dtype  # type: ignore[attr-defined]
    x = rng.integers(-5, 5, (5, 1000)).astype(np.float32).astype(dtype)
    if element == "f32":
        x[0, :3] = np.nan, -0.0, np.inf
    p = rng.random((5, 1000)) < 0.5
    zeros = np.zeros_like(x)
    expected = np.where(p, zeros, x) if zero_when == "true" else np.where(p, x, zeros)
    assert spmd.compile(module)(p, x)[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("element", ["f32", "f64", "i32", "ui8"])
@pytest.mark.parametrize("size", [100, 8192, 3 * 8192 + 77])
@pytest.mark.parametrize("first", [True, False])
def test_extremum_of_an_array_and_a_scalar_of_any_size(name: str, element: str, size: int, first: bool) -> None:
    dtype = np.dtype({"f32": "f4", "f64": "f8", "i32": "i4", "ui8": "u1"}[element])
    random = np.random.default_rng(size)
    x = random.integers(0, 200, size).astype(dtype)
    scalar = dtype.type(100)
    if dtype.kind == "f":
        x[::7], x[1::7], x[2::7], scalar = np.nan, -0.0, 0.0, dtype.type(0)
    tensor, both = f"tensor<{size}x{element}>", "%b, %x" if first else "%x, %b"
    text = f"""func.func @main(%x: {tensor}, %s: tensor<{element}>) -> {tensor} {{
  %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<{element}>) -> {tensor}
  %r = stablehlo.{name} {both} : {tensor}
  return %r : {tensor}
}}"""
    (result,) = spmd.compile(spmd.parse(text))(x, scalar)
    np.testing.assert_array_equal(result, getattr(np, name)(x, scalar))
    if dtype.kind == "f":  # IEEE 754: -0 is below +0
        zeros = result[x == 0]
        assert np.array_equal(np.signbit(zeros), np.signbit(x[x == 0]) & (name == "minimum"))
