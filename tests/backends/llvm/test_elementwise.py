"""Every elementwise op on every element type, native beside the NumPy back end's kernel: the same bits."""

from collections.abc import Iterable

import numpy as np
import pytest

import spmd
from spmd.analysis.scalar.expression import walk
from spmd.backends.kernels import make_kernel
from spmd.backends.numpy import chlo, elementwise
from spmd.ir import Op
from spmd.support.arrays import DType
from spmd.types import COMPLEX64, COMPLEX128, ELEMENT_TYPES, I1, ElementType, QuantizedType
from tests.backends.llvm.harness import (
    SIZE,
    Array,
    make_op,
    native_loops,
    op_form,
    same,
    scalar_form,
    values_of,
)
from tests.effort import some_slow

ELEMENTS = [element for element in ELEMENT_TYPES.values() if element.numpy is not None and not element.is_index]
FLOATS = [element for element in ELEMENTS if element.is_float]
#: Types of every way to be held in registers, for what is checked at several widths.
FEW = [
    ELEMENT_TYPES[name]
    for name in ("i1", "i4", "ui8", "i32", "i64", "f8E4M3FN", "bf16", "f16", "f32", "f64", "complex<f32>")
]
#: Lanes that are more than a register of some elements, and part of one of others. Machine code is as long as they are
#: many: more hold nothing else. Of complex functions, which are hundreds of instructions, half as many do.
LANES, OF_FUNCTIONS = 8, 4
CASES = [*((element, LANES) for element in ELEMENTS), *((element, 1) for element in FEW)]


#: Ops whose parts are single operations on parts.
COMPLEX_EXACT = ("add", "subtract", "negate", "maximum", "minimum")


#: An op, the lanes that it is computed on, and its operands where these are not to be drawn.
Case = tuple[Op, int] | tuple[Op, int, list[Array]]


def check(cases: Iterable[Case]) -> None:
    """Compares each op with its kernel; all are compiled together."""
    cases = list(cases)
    loops = native_loops([op_form(op, width) for op, width, *_ in cases])
    for (op, width, *given), loop in zip(cases, loops, strict=True):
        rng = np.random.default_rng(3)
        operands = given[0] if given else [values_of(operand.tensor.element_type, rng) for operand in op.operands]
        with np.errstate(all="ignore"):
            expected = np.asarray(make_kernel(op, None).call(*operands))  # type: ignore[arg-type]
        (got,) = loop(*operands)
        wrong = np.nonzero(~same(got, expected))[0]
        shown = [(*(str(x[at]) for x in operands), str(got[at]), str(expected[at])) for at in wrong[:5]]
        asked = f"{op.name} {op.operands} at {width} lanes"
        assert not shown, f"{asked}, {len(wrong)} differ: operands, native, NumPy: {shown}"


def is_exact(op: Op) -> bool:
    """Whether the op has a scalar form that calls no function, whose last bits are its own.

    NumPy's products and quotients of complex numbers are fused here and there.
    """
    form = scalar_form(op)
    if op.operands[0].tensor.element_type.is_complex and op.name.partition(".")[2] not in COMPLEX_EXACT:
        return False
    return form is not None and not any(node.primitive.is_function for node in walk(form))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [*elementwise.UNARY, "stablehlo.popcnt", "stablehlo.count_leading_zeros"])
def test_unary(name: str) -> None:
    ops = [
        (make_op(name, [element], element.real if name == "stablehlo.abs" else element), width)
        for element, width in CASES
    ]
    check((op, width) for op, width in ops if is_exact(op))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "name", [*elementwise.BINARY, *(f"stablehlo.shift_{way}" for way in ("left", "right_logical", "right_arithmetic"))]
)
def test_binary(name: str) -> None:
    ops = [(make_op(name, [element] * 2, element), width) for element, width in CASES]
    check((op, width) for op, width in ops if is_exact(op))


@pytest.mark.parametrize("name", ["chlo.next_after", "chlo.mulhi", "chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf"])
def test_chlo(name: str) -> None:
    arity = 1 if "is_" in name else 2
    ops = [
        (make_op(name, [element] * arity, I1 if arity == 1 else element), width)
        for element, width in CASES
        if (element.is_integer if name == "chlo.mulhi" else element.is_float)
    ]
    check((op, width) for op, width in ops if is_exact(op))


COMPLEX = [COMPLEX64, COMPLEX128]


@pytest.mark.sampled(50)
@pytest.mark.parametrize("element", COMPLEX, ids=str)
@pytest.mark.parametrize("name", [*elementwise.UNARY, *chlo.UNARY, *elementwise.BINARY])
def test_complex_functions(name: str, element: ElementType) -> None:
    """Beside the C library's, relative to the size of the result."""
    op = make_op(name, [element] * (2 if name in elementwise.BINARY else 1), element.real if "abs" in name else element)
    if scalar_form(op) is None:
        return
    rng = np.random.default_rng(4)
    parts = rng.standard_normal((4, SIZE)) * np.exp(rng.uniform(-2, 1.5, (4, SIZE)))
    operands = [(parts[at] + 1j * parts[at + 1]).astype(element.dtype) for at in (0, 2)][: len(op.operands)]
    with np.errstate(all="ignore"):
        expected = np.asarray(make_kernel(op, None).call(*operands))  # type: ignore[arg-type]
    (got,) = native_loops([op_form(op, OF_FUNCTIONS)])[0](*operands)
    errors = np.abs(got - expected) / np.abs(expected)
    place = int(np.argmax(errors))
    limit = (3e-7 if element is COMPLEX64 else 5e-15) * (4 if "remainder" in name or "power" in name else 1)
    assert errors[place] < limit, (name, *(x[place] for x in operands), got[place], expected[place])


@pytest.mark.parametrize("name", [*elementwise.UNARY, "chlo.sinh", "chlo.cosh", "chlo.tan"])
def test_complex_special_values(name: str) -> None:
    """Infinities, NaN and signed zeros in the places where the C library has them, for finite parts and most others."""
    op = make_op(name, [COMPLEX128], COMPLEX128.real if "abs" in name else COMPLEX128)
    if scalar_form(op) is None:
        return
    values = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-300, 3e200, -300.0])
    operand = np.empty(values.size**2, np.complex128)
    operand.real, operand.imag = (each.ravel() for each in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.asarray(make_kernel(op, None).call(operand))  # type: ignore[arg-type]
    (got,) = native_loops([op_form(op, OF_FUNCTIONS)])[0](operand)
    for part in ("real", "imag"):
        left, right = getattr(got, part), getattr(expected, part)
        near = np.isclose(left, right, rtol=1e-12, atol=0, equal_nan=True)
        if name not in ("stablehlo.sign", "stablehlo.logistic"):  # whose zeros come of NumPy's complex quotients
            near &= (np.signbit(left) == np.signbit(right)) | np.isnan(right)
        wrong = np.nonzero(~near)[0]
        assert not len(wrong), (part, [(operand[at], got[at], expected[at]) for at in wrong[:6]])


@pytest.mark.parametrize("source", some_slow(sorted(ELEMENTS, key=lambda each: each not in FEW), len(FEW)), ids=str)
def test_convert(source: ElementType) -> None:
    check((make_op("stablehlo.convert", [source], target), width) for target, width in CASES)


def test_compare() -> None:
    for direction in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        cases: list[Case] = []
        for element, width in CASES:
            op = make_op("stablehlo.compare", [element] * 2, I1, comparison_direction=direction)
            cases.append((op, width, pairs_of_parts(element.dtype)) if element.is_complex else (op, width))
        check(cases)


def pairs_of_parts(dtype: DType) -> list[Array]:
    """All pairs of complex numbers with parts that are alike, ordered, zeros of both signs, infinite or NaN."""
    parts = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
    numbers = np.empty((parts.size, parts.size), dtype)
    numbers.real, numbers.imag = parts[:, None], parts
    return [each.ravel() for each in np.meshgrid(numbers, numbers)]


def test_extrema_of_complex_numbers() -> None:
    check(
        (make_op(f"stablehlo.{name}", [element] * 2, element), LANES, pairs_of_parts(element.dtype))
        for name in ("maximum", "minimum")
        for element in COMPLEX
    )


def test_total_order() -> None:
    attributes = {"comparison_direction": "LT", "compare_type": "TOTALORDER"}
    check(
        (make_op("stablehlo.compare", [element] * 2, I1, **attributes), width)
        for element, width in CASES
        if element.is_float
    )


def test_select_and_clamp() -> None:
    check((make_op("stablehlo.select", [I1, element, element], element), width) for element, width in CASES)
    check(
        (make_op("stablehlo.clamp", [element] * 3, element), width)
        for element, width in CASES
        if not element.is_complex
    )


def test_is_finite() -> None:
    check((make_op("stablehlo.is_finite", [element], I1), width) for element, width in CASES if element.is_float)


def test_reduce_precision() -> None:
    ops = [
        make_op("stablehlo.reduce_precision", [element], element, exponent_bits=exponent, mantissa_bits=mantissa)
        for element in FLOATS
        for exponent, mantissa in ((5, 10), (8, 7), (2, 0), (11, 52))
    ]
    check((op, LANES) for op in ops)


def test_bitcast_convert() -> None:
    check(
        (make_op("stablehlo.bitcast_convert", [source], target), LANES)
        for source in ELEMENTS
        for target in ELEMENTS
        if source.bits == target.bits and source.is_complex == target.is_complex
    )


@pytest.mark.parametrize("width", [1, LANES])
def test_complex_parts(width: int) -> None:
    ops = []
    for element in (ELEMENT_TYPES["f32"], ELEMENT_TYPES["f64"]):
        ops.append(make_op("stablehlo.complex", [element] * 2, element.complex))
        for part in ("real", "imag"):
            ops += [make_op(f"stablehlo.{part}", [source], element) for source in (element, element.complex)]
    check((op, width) for op in ops)


def quantized(storage: str, expressed: str, scale: float, zero_point: int, low: int, high: int) -> QuantizedType:
    types = ELEMENT_TYPES[storage], ELEMENT_TYPES[expressed]
    return QuantizedType(*types, low, high, (scale,), (zero_point,))


QUANTIZED = [
    quantized("i8", "f32", 0.1, -3, -128, 127),
    quantized("ui8", "f32", 0.25, 128, 0, 255),
    quantized("i4", "f32", 0.5, 1, -8, 7),
    quantized("i16", "f32", 0.001, 0, -32768, 32767),
    quantized("i32", "f64", 0.125, 7, -(2**31), 2**31 - 1),
    quantized("i8", "f16", 0.1, -3, -100, 100),
    quantized("i8", "bf16", 0.3, 5, -128, 127),
]


@pytest.mark.parametrize("element", QUANTIZED, ids=str)
def test_quantized(element: QuantizedType) -> None:
    other = quantized("i8", element.expressed.name, 0.2, 1, -128, 127)
    ops = [
        make_op("stablehlo.uniform_quantize", [element.expressed], element),
        make_op("stablehlo.uniform_dequantize", [element], element.expressed),
        make_op("stablehlo.uniform_quantize", [element], other),
        *(make_op(f"stablehlo.{name}", [element] * 2, element) for name in ("add", "multiply", "maximum", "divide")),
        make_op("stablehlo.compare", [element] * 2, I1, comparison_direction="LT"),
        make_op("stablehlo.clamp", [element] * 3, element),
        make_op("stablehlo.is_finite", [element], I1),
    ]
    check((op, LANES) for op in ops)


def test_scales_that_depend_on_the_place_have_no_scalar_form() -> None:
    types = ELEMENT_TYPES["i8"], ELEMENT_TYPES["f32"]
    element = QuantizedType(*types, -128, 127, (0.1, 0.2), (0, 0), 0)
    assert scalar_form(make_op("stablehlo.uniform_dequantize", [element], element.expressed)) is None
    assert scalar_form(make_op("stablehlo.add", [element] * 2, element)) is None


@pytest.mark.parametrize("divisor", [255.0, 3.0, 10.0, 0.75, 65535.0, 641 / 2**30, 1 / 3, -7.0, 2.0**-41, 0.0])
@pytest.mark.parametrize(("element", "of_floats"), [("i16", "f32"), ("ui32", "f32"), ("i64", "f64")])
def test_integers_divided_as_floats(element: str, of_floats: str, divisor: float) -> None:
    """Multiplied by reciprocals, they are what they are divided, to the last bit."""
    dtype, floats = ELEMENT_TYPES[element].dtype, ELEMENT_TYPES[of_floats].dtype
    ends = np.iinfo(dtype)
    random = np.random.default_rng(9).integers(ends.min, ends.max, 1 << 16, dtype, endpoint=True)
    integers = np.arange(1 << 16).astype(dtype) if ends.bits == 16 else np.append(random, [0, 1, ends.min, ends.max])
    x, y = integers.astype(dtype), floats.type(divisor)
    whole, parts = (f"tensor<{x.size}x{name}>" for name in (element, of_floats))
    module = spmd.parse(f"""func.func @main(%x: {whole}) -> {parts} {{
      %f = stablehlo.convert %x : ({whole}) -> {parts}
      %c = stablehlo.constant dense<"0x{np.asarray(y).tobytes().hex()}"> : {parts}
      %r = stablehlo.divide %f, %c : {parts}
      return %r : {parts}
    }}""")
    with np.errstate(all="ignore"):
        expected = x.astype(floats) / y
    np.testing.assert_array_equal(spmd.compile(module)(x)[0].view(f"u{y.itemsize}"), expected.view(f"u{y.itemsize}"))
