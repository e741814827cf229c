"""convert, bitcast_convert and reduce_precision."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.backends.numpy.conversion import conversion, precision_reduction
from spmd.types import ELEMENT_TYPES, F32, F64, ElementType, element_type_of, storage_range
from tests.backends.programs import apply, constant, decoded, one_op, run_here, run_reference, tensor_type, values_of

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
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=20, deadline=None)
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
@settings(max_examples=25, deadline=None)
def test_reduce_precision_against_the_reference(seed: int, exponent: int, mantissa: int) -> None:
    rng = np.random.default_rng(seed)
    attributes = f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32"
    for name in ("f16", "bf16", "f32", "f64"):
        x = values_of(ELEMENT_TYPES[name], rng, (50,))
        x = np.where(np.isnan(x.astype(np.float64)), np.array(1, x.dtype), x)  # its NaN becomes infinity, XLA's stays
        text = one_op("stablehlo.reduce_precision", [x], (name, (50,)), attributes)
        got, want = decoded(run_here(text), name), decoded(run_reference(text), name)
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


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
