"""Constants: each literal is the element the specification says, rounded once, and prints back to the same bits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import spmd
from spmd import types as t
from spmd.compiler.pipeline.verify import warnings
from spmd.ir.attributes import DenseAttr, is_splat, same_bits
from spmd.syntax import parse
from spmd.syntax.attribute_printer import format_dense
from tests.effort import examples

FLOATS = [e for e in t.ELEMENT_TYPES.values() if e.is_float and e.numpy is not None]
NUMBERS = [e for e in t.ELEMENT_TYPES.values() if e.numpy is not None and not e.is_index]


def constant(text: str) -> DenseAttr:
    module = parse(f"func.func @f() {{\n %0 = stablehlo.constant {text}\n return }}")
    value = module.functions[0].body.ops[0]["value"]
    assert isinstance(value, DenseAttr)
    return value


def array(literal: str, type: str) -> np.ndarray:
    return constant(f"{literal} : {type}").array


@pytest.mark.parametrize(
    ("literal", "type", "expected"),
    [
        ("dense<1>", "tensor<i8>", 1),
        ("dense<-128>", "tensor<i8>", -128),
        ("dense<255>", "tensor<i8>", -1),
        ("dense<0xFF>", "tensor<i8>", -1),
        ("dense<255>", "tensor<ui8>", 255),
        ("dense<18446744073709551615>", "tensor<ui64>", 2**64 - 1),
        ("dense<-8>", "tensor<i4>", -8),
        ("dense<- 8>", "tensor<i4>", -8),
        ("dense<0x1>", "tensor<i1>", True),
        ("dense<3>", "tensor<ui2>", 3),
        ("dense<true>", "tensor<i1>", True),
        ("dense<1.5>", "tensor<f32>", 1.5),
        ("dense<0x7F800000>", "tensor<f32>", np.inf),
        ("dense<0xC000>", "tensor<f16>", -2.0),
        ("dense<0x3F80>", "tensor<bf16>", 1.0),
        ("dense<1.0e400>", "tensor<f64>", np.inf),
        ("dense<0.0>", "tensor<f8E8M0FNU>", 2.0**-127),
        ("dense<(1.5, -2.0)>", "tensor<complex<f32>>", 1.5 - 2j),
    ],
)
def test_a_scalar(literal: str, type: str, expected: object) -> None:
    assert array(literal, type)[()] == expected


@pytest.mark.parametrize(
    ("literal", "type", "expected"),
    [
        ("dense<[[1, 2], [3, 4]]>", "tensor<2x2xi32>", [[1, 2], [3, 4]]),
        ("dense<[1, // a comment\n 2]>", "tensor<2xi32>", [1, 2]),
        ("dense<1, 2>", "tensor<2xf32>", [1, 2]),
        ("dense<(1.0, 2.0), (3.0, -0.5)>", "tensor<2xcomplex<f64>>", [1 + 2j, 3 - 0.5j]),
        ("dense<true, false>", "tensor<2xi1>", [True, False]),
        ("dense<[]>", "tensor<0xf32>", []),
        ("dense<>", "tensor<0x3xf32>", np.empty((0, 3))),
        ("dense<[[], []]>", "tensor<2x0xi8>", np.empty((2, 0))),
        ("dense<[true, false, true]>", "tensor<3xi1>", [True, False, True]),
        ("dense<[(1.0, 2.0), (3.0, -0.5)]>", "tensor<2xcomplex<f64>>", [1 + 2j, 3 - 0.5j]),
        ('dense<"0x0100FEFF">', "tensor<2xi16>", [1, -2]),
        ('dense<"0x05">', "tensor<3xi1>", [True, False, True]),
        ('dense<"0x0000803F">', "tensor<2x2xf32>", [[1, 1], [1, 1]]),
        ('dense<"0x0F08">', "tensor<2xi4>", [-1, -8]),
    ],
)
def test_an_array(literal: str, type: str, expected: object) -> None:
    actual = array(literal, type)
    assert actual.shape == np.shape(expected)
    np.testing.assert_array_equal(actual.astype(np.asarray(expected).dtype), expected)
    assert not actual.flags.writeable


def test_a_splat_of_any_size_takes_no_memory() -> None:
    splat = constant("dense<1.0> : tensor<100000x100000x1000xf32>")
    assert is_splat(splat.array)
    assert format_dense(splat) == "dense<1.000000e+00> : tensor<100000x100000x1000xf32>"


#: What is no constant, by what is told of it.
REFUSED = {
    "out of range": ["dense<256> : tensor<i8>", "dense<-1> : tensor<ui8>", "dense<0x1FF> : tensor<i8>"],
    "1.5": ["dense<1.5> : tensor<i32>"],
    "elements of type i1": ["dense<2> : tensor<i1>"],
    "more than the 32 bits": ["dense<0x7F8000000> : tensor<f32>"],
    "does not match": [
        "dense<[1, 2]> : tensor<3xi32>",
        "dense<1, 2> : tensor<3xi32>",
        "dense<1, 2> : tensor<1x2xi32>",
        "dense<1, [2]> : tensor<2xi32>",
        "dense<[[1], [2, 3]]> : tensor<2x1xi32>",
        "dense<[1, [2]]> : tensor<2xi32>",
        "dense<[1, ]2> : tensor<2xi32>",
        "dense<[[1, 2], 3[, 4]]> : tensor<2x2xi32>",
    ],
    "expected elements": [
        "dense<[1 2, 3]> : tensor<2xi32>",
        "dense<[1_0]> : tensor<1xi32>",
        "dense<nan> : tensor<f32>",
    ],
    "static shape": ["dense<1.0> : tensor<?xf32>"],
    "expected 2 elements": ["dense<> : tensor<2xf32>"],
    "pair": ["dense<(1.0, 2.0, 3.0)> : tensor<complex<f32>>"],
    "odd number": ['dense<"0x000"> : tensor<2xf32>'],
    "2 bytes of data": ['dense<"0x0000"> : tensor<2xf32>'],
    "'G'": ['dense<"0x0G"> : tensor<1xi8>'],
    "larger than any array": ["dense<1> : tensor<9223372036854775807x9223372036854775807xi8>"],
}


@pytest.mark.parametrize(("text", "message"), [(text, message) for message, texts in REFUSED.items() for text in texts])
def test_a_constant_that_is_none(text: str, message: str) -> None:
    with pytest.raises(spmd.ParseError) as caught:
        constant(text)
    assert message in str(caught.value)
    assert caught.value.diagnostics[0].location.line == 2


#: Decimal places enough to write any element narrower than f64, and the middle of any two.
_PLACES = 400


def exact(value: object) -> Fraction:
    return Fraction(float(value))  # type: ignore[arg-type]


@settings(max_examples=examples(200))
@given(st.sampled_from(FLOATS), st.integers(0, 2**64 - 1), st.sampled_from([-1, 0, 1]), st.integers(60, 300))
def test_a_decimal_is_rounded_once(element: t.ElementType, seed: int, side: int, digits: int) -> None:
    """Decimals beside the middle of two neighbours, nearer to it than float64 can tell, go to the right one."""
    width = np.dtype(f"u{element.dtype.itemsize}")
    bits = np.array([seed & ((1 << (element.bits - 1)) - 1)], dtype=width)
    low, high = bits.view(element.dtype)[0], (bits + width.type(1)).view(element.dtype)[0]
    assume(element.bits < 64 and np.isfinite(float(low)) and np.isfinite(float(high)) and low < high)
    middle = (exact(low) + exact(high)) / 2 + side * Fraction(1, 10**digits)
    scaled = middle * 10**_PLACES
    assert scaled.denominator == 1
    text = str(scaled.numerator).zfill(_PLACES + 1)
    literal = f"{text[:-_PLACES]}.{text[-_PLACES:]}"
    actual = array(f"dense<{literal}>", f"tensor<{element}>").reshape(1)[0]
    if side:
        assert exact(actual) == exact(high if side > 0 else low)
    else:
        assert exact(actual) in (exact(low), exact(high))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("element", NUMBERS, ids=str)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_any_bits_print_and_read_back(element: t.ElementType, data: st.DataObject) -> None:
    """Short arrays as decimals, long ones as bytes; NaN payloads, infinities and signed zeros keep their bits."""
    shape = data.draw(st.sampled_from([(), (1,), (3,), (2, 3), (0, 2), (7, 20), (101,)]))
    if element.is_boolean:
        drawn_array = data.draw(hnp.arrays(np.bool_, shape))
    elif element.bits < 8 and element.is_integer:
        low, high = t.storage_range(element)
        drawn_array = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(low, high))).astype(element.dtype)
    else:
        limit = min(element.bits, 8 * element.dtype.itemsize)
        width = np.dtype(f"u{min(8, element.dtype.itemsize)}")
        parts = 2 if element.is_complex and element.dtype.itemsize == 16 else 1
        bits = st.integers(0, (1 << min(limit, 8 * width.itemsize)) - 1)
        raw = data.draw(hnp.arrays(width, (*shape, parts), elements=bits))
        drawn_array = np.ascontiguousarray(raw).view(element.dtype).reshape(shape)
    type = t.TensorType(shape, element)
    text = format_dense(DenseAttr(drawn_array, type))
    again = constant(text).array
    assert same_bits(np.asarray(again), np.asarray(drawn_array)), text


def test_long_lists_are_read_like_short_ones() -> None:
    values = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    listed = ", ".join(repr(float(v)) for v in values)
    np.testing.assert_array_equal(array(f"dense<[{listed}]>", "tensor<5000xf32>"), values)
    integers = list(range(-2500, 2500))
    assert array(f"dense<{integers}>", "tensor<5000xi16>").tolist() == integers
    with pytest.raises(spmd.ParseError, match="out of range"):
        array(f"dense<{[*integers, 40000, 70000]}>", "tensor<5002xi16>")


def test_a_resource_of_the_file_is_a_constant() -> None:
    text = """
    func.func @f() {
      %0 = stablehlo.constant dense_resource<key> : tensor<2xf32>
      return
    }
    {-#
      dialect_resources: { builtin: { key: "0x040000000000803F000000C0" } }
    #-}
    """
    assert parse(text).functions[0].body.ops[0]["value"].array.tolist() == [1.0, -2.0]
    with pytest.raises(spmd.ParseError, match="odd number"):
        parse(text.replace("00C0", "00C"))


@pytest.mark.parametrize(
    ("literal", "label", "same"),
    [
        ("128 : i8", "C1", "-128 : i8"),
        ("0xFF : i8", "C1", "-1 : i8"),
        ("15 : i4", "C1", "-1 : i4"),
        ("18446744073709551615 : i64", "C1", "-1 : i64"),
        ("18446744073709551615", "C1", "-1 : i64"),
        ("array<i16: 1, 65535>", "C1", "array<i16: 1, -1>"),
        ("dense<255> : tensor<i8>", "C1", "dense<-1> : tensor<i8>"),
        ("dense<[0xFF, 1]> : tensor<2xi8>", "C1", "dense<[-1, 1]> : tensor<2xi8>"),
        ("dense<200> : tensor<!quant.uniform<i8:f32, 1.0>>", "C1", "dense<-56> : tensor<!quant.uniform<i8:f32, 1.0>>"),
        ("1e39 : f32", "C1", "0x7F800000 : f32"),
        ("-65520.0 : f16", "C1", "0xFC00 : f16"),
        ("1e400", "C1", "0x7FF0000000000000 : f64"),
        ("dense<[1.0, 1e39]> : tensor<2xf32>", "C1", "dense<[1.0, 0x7F800000]> : tensor<2xf32>"),
        ("dense<(0.0, -1e39)> : tensor<complex<f32>>", "C1", "dense<(0.0, 0xFF800000)> : tensor<complex<f32>>"),
        ("dense<500.0> : tensor<f8E4M3FN>", "C1", "dense<0x7F> : tensor<f8E4M3FN>"),
        ("0x7F8 : f32", "C2", "0x000007F8 : f32"),
        ("0x0 : f64", "C2", "0.0 : f64"),
        ("dense<[1.0, 0x7F8]> : tensor<2xf32>", "C2", "dense<[1.0, 0x000007F8]> : tensor<2xf32>"),
        ("dense<1> : tensor<i1>", "C1", "dense<true> : tensor<i1>"),
        ("dense<[-1, false]> : tensor<2xi1>", "C1", "dense<[true, false]> : tensor<2xi1>"),
    ],
)
def test_a_literal_that_only_mlir_takes_is_a_warning(literal: str, label: str, same: str) -> None:
    """It is out of its type, or has fewer digits than the type's bits: what it means has another spelling."""
    module = spmd.parse(f"module attributes {{\n  x.a = {literal}}} {{}}")
    (warning,) = warnings(module)
    assert warning.label == label
    assert (warning.location.line, warning.location.column) == (2, 9)
    plain = spmd.parse(f"module attributes {{x.a = {same}}} {{}}")
    assert warnings(plain) == []
    assert str(module) == str(plain)


@pytest.mark.parametrize(("count", "at"), [(65, 0), (65, 64), (3000, 1234)])
@pytest.mark.parametrize(
    ("element", "good", "bad"), [("i8", "-128", "128"), ("f32", "-3.4e38", "3.5e38"), ("i1", "true", "1")]
)
def test_one_literal_out_of_its_type_among_many_is_found(
    count: int, at: int, element: str, good: str, bad: str
) -> None:
    literals = [good] * count
    text = "module attributes {{x.a = dense<[{}]> : tensor<{}x{}>}} {{}}"
    assert warnings(spmd.parse(text.format(", ".join(literals), count, element))) == []
    literals[at] = bad
    (warning,) = warnings(spmd.parse(text.format(", ".join(literals), count, element)))
    assert f"got {bad}" in warning.message


@given(st.sampled_from(["i4", "i8", "i16", "i32", "i64", "ui4", "ui8", "ui16", "ui32", "ui64"]), st.data())
def test_no_integer_of_its_type_is_warned_of(name: str, data: st.DataObject) -> None:
    low, high = t.storage_range(t.ELEMENT_TYPES[name])
    value = data.draw(st.integers(low, high))
    spelled = data.draw(st.sampled_from([str(value), hex(value)] if value >= 0 else [str(value)]))
    assert warnings(spmd.parse(f"module attributes {{x.a = dense<{spelled}> : tensor<{name}>}} {{}}")) == []


@pytest.mark.parametrize("text", ["0.0", "1.0e-45", "3.5e38", "0x7FC00000", "[1.0e-310, 0.0]"])
def test_constants_are_read_whatever_numpy_is_set_to_raise(text: str) -> None:
    """As users have it who look for NaN in their results."""
    type = f"tensor<{'2x' if text[0] == '[' else ''}f32>"
    program = f"func.func @main() -> {type} {{ %c = stablehlo.constant dense<{text}> : {type} return %c : {type} }}"
    plain = spmd.parse(program)
    with np.errstate(all="raise"):
        read = spmd.parse(program)
    assert str(read) == str(plain)
