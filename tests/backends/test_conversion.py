"""convert, bitcast_convert and reduce_precision."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.backends.numpy.conversion import conversion, precision_reduction
from spmd.types import ELEMENT_TYPES, F32, F64, ElementType, element_type_of, storage_range
from tests.backends.modules import reference
from tests.backends.programs import apply, constant, decoded, one_op, run_here, tensor_type, values_of
from tests.effort import examples

INTEGERS = [element for element in ELEMENT_TYPES.values() if element.is_integer]
FLOATS = [element for element in ELEMENT_TYPES.values() if element.is_float and element.numpy is not None]


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_floats_out_of_range_saturate_and_nan_is_zero(target: ElementType) -> None:
    lowest, highest = storage_range(target)
    x = [np.nan, np.inf, -np.inf, 1e30, -1e30, -1.5, 1.9, 0.0, float(lowest), float(highest + 1)]
    for source in (F32, F64):
        got = conversion(source, target)(np.array(x, source.dtype)).astype(np.int64 if target.is_signed else np.uint64)
        small = -1 if target.is_signed else 0
        assert got.tolist() == [0, highest, lowest, highest, lowest, small, 1, 0, lowest, highest]


@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_every_float_to_integers_goes_by_way_of_the_double(source: ElementType) -> None:
    x = values_of(source, np.random.default_rng(1), (300,))
    for target in INTEGERS:
        through = conversion(F64, target)(x.astype(np.float64))
        np.testing.assert_array_equal(conversion(source, target)(x).astype(np.float64), through.astype(np.float64))


@given(st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=examples(60))
def test_integers_wrap(value: int) -> None:
    for target in INTEGERS:
        lowest, highest = storage_range(target)
        span = highest - lowest + 1
        want = (value - lowest) % span + lowest
        assert int(conversion(ELEMENT_TYPES["i64"], target)(np.int64([value]))[0]) == want


def test_booleans_and_complex_numbers() -> None:
    assert apply("stablehlo.convert", np.float32([np.nan, 0, -0.0, 0.1]), result="i1").tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert apply("stablehlo.convert", np.complex64([0, 1j, 1 + 1j]), result="i1").tolist() == [False, False, True]
    assert apply("stablehlo.convert", np.complex128([1.5 + 3j, -2.5]), result="i32").tolist() == [1, -2]
    assert apply("stablehlo.convert", np.array([True, False]), result="complex<f32>").tolist() == [1, 0]


@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("target", FLOATS, ids=str)
def test_between_floats_by_one_rounding(source: ElementType, target: ElementType) -> None:
    x = values_of(source, np.random.default_rng(2), (100,))
    if source is target:
        return
    with np.errstate(all="ignore"):
        want = x.astype(np.float64).astype(target.dtype)
        got = conversion(source, target)(x)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


NARROW = [element for element in FLOATS if element.bits <= 16]
WIDE = [ELEMENT_TYPES[name] for name in ("f32", "f64", "i32", "i64", "ui32", "ui64", "i16", "ui16", "i8")]


def finite_values(element: ElementType) -> np.ndarray:
    """Every finite value of a type of at most 16 bits, ascending, once, as f64."""
    codes = np.arange(1 << element.bits, dtype=f"u{element.dtype.itemsize}").view(element.dtype)
    with np.errstate(all="ignore"):
        values = codes.astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def nearest(x: np.ndarray, values: np.ndarray, element: ElementType) -> np.ndarray:
    """Of `values`, ascending, those nearest to exact numbers `x` within their range; of two the one of an even
    significand, which that of a power of two, an implicit 1, is not."""
    above = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    low, high = values[above - 1], values[above]
    middle = (low + high) / 2  # exact: both have few bits
    even = low.astype(element.dtype).view(f"u{element.dtype.itemsize}") % 2 == 0
    if element.name == "f8E8M0FNU":
        even[:] = False
    return np.where(x < middle, low, np.where(x > middle, high, np.where(even, low, high)))


@pytest.mark.parametrize("target", NARROW, ids=str)
def test_every_tie_and_its_neighbours(target: ElementType) -> None:
    """From f64 and f32: the nearest value to the operand itself."""
    values = finite_values(target)
    middles = (values[:-1] + values[1:]) / 2
    middles = middles[middles != 1.5 * 2.0**-127]  # ml_dtypes: f32's subnormal numbers go to the wrong f8E8M0FNU
    near = [middles, *(np.nextafter(middles, side) for side in (-np.inf, np.inf)), values]
    near += [middles * (1 + sign * 2.0**-40) for sign in (-1, 1)]
    for source, xs in (("f64", near), ("f32", [x.astype(np.float32) for x in near])):
        with np.errstate(all="ignore"):
            got = [conversion(ELEMENT_TYPES[source], target)(x).astype(np.float64) for x in xs]
        for x, rounded in zip(xs, got, strict=True):
            wide = x.astype(np.float64)
            inside = (wide >= values[0]) & (wide <= values[-1])
            np.testing.assert_array_equal(rounded[inside], nearest(wide, values, target)[inside])


@pytest.mark.sampled(21)
@pytest.mark.parametrize("source", [e for e in WIDE if e.is_integer], ids=str)
@pytest.mark.parametrize("target", [*NARROW, F32, F64], ids=str)
def test_integers_are_rounded_once(source: ElementType, target: ElementType) -> None:
    """Around every power of two, at ties of every width, and at both ends: by exact arithmetic."""
    lowest, highest = storage_range(source)
    rng = np.random.default_rng(0)
    numbers = {lowest, lowest + 1, highest, highest - 1, 0, 1, 16842753}
    for power in range(source.bits):
        for low in range(0, power, 3):
            numbers |= {s * ((1 << power) + (int(rng.integers(0, 8)) << low) + d) for d in (-1, 0, 1) for s in (1, -1)}
    whole = sorted(number for number in numbers if lowest <= number <= highest)
    with np.errstate(all="ignore"):
        got = conversion(source, target)(np.array(whole, source.dtype)).astype(np.float64)
    limits = ml_dtypes.finfo(target.dtype)
    for number, rounded in zip(whole, got.tolist(), strict=True):
        if float(limits.min) <= number <= float(limits.max) and (number > 0 or target.name != "f8E8M0FNU"):
            ulp = float(np.spacing(abs(rounded)))
            assert abs(int(rounded) - number) * 2 <= spacing(rounded, target, ulp), (number, rounded)


def spacing(value: float, element: ElementType, ulp: float) -> float:
    """The distance between neighbours of an element type at a value, of which the nearest is at most half away."""
    if element is F64:
        return ulp
    bits = {"bf16": 8, "f16": 11, "f32": 24}.get(element.name)
    if bits is None:
        values = finite_values(element)
        place = int(np.searchsorted(values, value))
        return float(max(np.diff(values[max(place - 1, 0) : place + 2]), default=0))
    return 2.0 ** (np.floor(np.log2(max(abs(value), 1))) - bits + 1)


def test_the_nearest_of_numbers_that_f32_does_not_hold() -> None:
    x = np.array([1.0625 + 2**-45, 1.0625, 1.0625 - 2**-45, 1e300, -np.inf, np.nan, -0.0])
    assert conversion(F64, ELEMENT_TYPES["f8E4M3FN"])(x).astype(np.float64)[:3].tolist() == [1.125, 1.0, 1.0]
    got = conversion(F64, ELEMENT_TYPES["bf16"])(x).astype(np.float64)
    np.testing.assert_array_equal(got[3:], [np.inf, -np.inf, np.nan, -0.0])
    assert np.signbit(got[-1])
    assert conversion(ELEMENT_TYPES["i32"], ELEMENT_TYPES["bf16"])(np.int32([16842753])).astype(int) == 16908288


# --- bitcast_convert -------------------------------------------------------------------------------------------------


def bitcast(x: np.ndarray, source: str, target: str, shape: tuple[int, ...]) -> np.ndarray:
    return decoded(run_here(one_op("stablehlo.bitcast_convert", [x], (target, shape), elements=[source])), target)


def test_bitcast_to_narrower_adds_a_dimension_lowest_first() -> None:
    assert bitcast(np.uint32([0x01020304]), "ui32", "ui8", (1, 4)).tolist() == [[4, 3, 2, 1]]
    assert bitcast(np.uint8([0x2F]), "ui8", "i4", (1, 2)).tolist() == [[-1, 2]]
    assert bitcast(np.uint8([0b11100100]), "ui8", "ui2", (1, 4)).tolist() == [[0, 1, 2, 3]]
    assert bitcast(np.array(1.0), "f64", "ui32", (2,)).tolist() == [0, 0x3FF00000]


def test_bitcast_to_wider_takes_the_last_dimension_in() -> None:
    assert bitcast(np.uint8([[4, 3, 2, 1]]), "ui8", "ui32", (1,)).tolist() == [0x01020304]
    assert bitcast(np.array([[-1, 2]], ml_dtypes.int4), "i4", "ui8", (1,)).tolist() == [0x2F]
    assert bitcast(np.uint32([0, 0x3FF00000]), "ui32", "f64", ()).tolist() == 1.0


@given(seed=st.integers(0, 2**32 - 1), shape=st.lists(st.integers(0, 3), max_size=2).map(tuple))
@settings(max_examples=examples(20))
def test_bitcast_there_and_back(seed: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    for wide in ("ui16", "i32", "f64", "bf16", "complex<f32>"):
        x = values_of(ELEMENT_TYPES[wide], rng, shape)
        bits = ELEMENT_TYPES[wide].bits
        for narrow in ("ui4", "i8", "ui2"):
            parts = bits // ELEMENT_TYPES[narrow].bits
            if wide == "complex<f32>":
                continue
            split = bitcast(x, wide, narrow, (*shape, parts))
            back = bitcast(split, narrow, wide, shape)
            assert back.tobytes() == x.tobytes()


def test_bitcast_of_a_strided_view() -> None:
    """What a transpose leaves in memory is still read in row-major order."""
    import spmd

    text = """func.func @main(%x: tensor<2x3xui32>) -> tensor<3x2x2xui16> {
      %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xui32>) -> tensor<3x2xui32>
      %b = stablehlo.bitcast_convert %t : (tensor<3x2xui32>) -> tensor<3x2x2xui16>
      return %b : tensor<3x2x2xui16>
    }"""
    x = np.arange(6, dtype=np.uint32).reshape(2, 3) + (np.uint32(7) << np.uint32(16))
    (got,) = spmd.compile(spmd.parse(text))(x)
    assert (got[..., 0] == np.arange(6).reshape(2, 3).T).all() and (got[..., 1] == 7).all()


# --- reduce_precision ------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(1, 11), mantissa=st.integers(0, 23))
@settings(max_examples=examples(25))
def test_reduce_precision_against_the_reference(seed: int, exponent: int, mantissa: int) -> None:
    rng = np.random.default_rng(seed)
    attributes = f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32"
    for name in ("f16", "bf16", "f32", "f64"):
        x = values_of(ELEMENT_TYPES[name], rng, (50,))
        x = np.where(np.isnan(x.astype(np.float64)), np.array(1, x.dtype), x)  # its NaN becomes infinity, XLA's stays
        text = one_op("stablehlo.reduce_precision", [x], (name, (50,)), attributes)
        got, want = decoded(run_here(text), name), decoded(reference(text), name)
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("backends", [("numpy",), ("llvm", "numpy")], ids=str)
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_reduce_precision_keeps_a_nan_as_it_is(name: str, backends: tuple[str, ...]) -> None:
    """With sign and payload, as the specification's example prints; none is left without a mantissa."""
    element = ELEMENT_TYPES[name]
    word = np.dtype(f"u{element.bits // 8}")
    nan = np.array(np.nan, element.dtype).view(word).item() | 5
    x = np.array([nan, nan | 1 << (element.bits - 1)] * 600, word)
    source, target = tensor_type(name, x.shape), tensor_type(f"ui{element.bits}", x.shape)
    for mantissa in (0, 1, 2):
        module = spmd.parse(f"""func.func @main(%x: {source}) -> {target} {{
          %0 = stablehlo.reduce_precision %x, format = e5m{mantissa} : {source}
          %1 = stablehlo.bitcast_convert %0 : ({source}) -> {target}
          return %1 : {target}
        }}""")
        (got,) = spmd.compile(module, backends=backends)(x.view(element.dtype))
        want = x if mantissa else np.full(x.shape, np.inf, element.dtype).view(word)
        np.testing.assert_array_equal(got, want)


def test_reduce_precision_to_bfloat16_is_its_rounding() -> None:
    x = values_of(F32, np.random.default_rng(4), (1000,))
    call = precision_reduction(F32, 8, 7)
    assert call is not None
    np.testing.assert_array_equal(call(x), x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_reduce_precision_that_keeps_everything_is_the_identity() -> None:
    assert precision_reduction(F32, 8, 23) is None
    assert precision_reduction(element_type_of(ml_dtypes.float8_e5m2), 5, 2) is None


def test_constants_hold_their_bits() -> None:
    """The tests' own constants: a signalling NaN pattern survives into the program."""
    x = np.uint32([0x7FA00001, 0xFFC00000, 1]).view(np.float32)
    text = f"""func.func @main() -> {tensor_type("ui32", (3,))} {{
      %x = {constant(x, "f32")}
      %b = stablehlo.bitcast_convert %x : (tensor<3xf32>) -> tensor<3xui32>
      return %b : tensor<3xui32>
    }}"""
    assert run_here(text)[0].tolist() == x.view(np.uint32).tolist()
