"""Scalar rules of convert, bitcast_convert and reduce_precision.

Source: specification, "convert", "bitcast_convert", "reduce_precision". Unspecified results are those of XLA's CPU
backend: floats outside an integer's range saturate, NaN converts to 0, integers wrap, and a complex number converts to
a real type by its real part.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd import types as t
from spmd.analysis.float_formats import FLOAT_FORMATS
from spmd.analysis.scalar.build import (
    compare,
    extend,
    infinity,
    is_nan,
    like,
    mask,
    resize,
    select,
    shift_left,
    shift_right,
    to_float,
    to_integer,
    truncate,
    zero_extend,
)
from spmd.analysis.scalar.elements import Element, decode, encode, memory_types, normalize, register_types, round_to
from spmd.analysis.scalar.expression import F32, F64, I32, I64, Expression, MachineType, Primitive, expression
from spmd.analysis.scalar.rules import element_of, result_element, rule
from spmd.ir import Op
from spmd.types import ElementType


@rule("stablehlo.convert")
def convert(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    return [converted(operands[0], element_of(op), result_element(op))]


def converted(element: Element, source: ElementType, target: ElementType) -> Element:
    """Return an element of type `source` converted to `target`, rounded once."""
    if source is target:
        return element
    if source.is_complex and not target.is_complex:
        return converted(element[:1], source.real, target)
    if target.is_complex:
        real = target.real
        parts = [converted((part,), source.real, real)[0] for part in element]
        return (parts[0], parts[1] if len(parts) == 2 else like(0, parts[0]))
    value = element[0]
    if target.is_boolean:
        return (compare("une" if source.is_float else "ne", value, 0),)
    if target.is_float:
        return _to_float(value, source, target)
    if source.is_float:
        return (_saturated(value, target),)
    return (normalize(resize(value, register_types(target)[0], signed=source.is_signed), target),)


def _to_float(value: Expression, source: ElementType, target: ElementType) -> Element:
    if source.is_float:
        if target.bits == 64:
            return (extend(value),)
        return (value,) if target.bits == 32 and source.bits < 32 else round_to((value,), target)
    signed = source.is_signed or source.is_index
    if target.bits >= 32:
        return (to_float(value, register_types(target)[0], signed=signed),)
    if value.type.bits <= 16:
        return round_to((to_float(value, F32, signed=signed),), target)
    if value.type is I64:
        value = _odd_53_bits(value, signed=signed)
    return round_to((to_float(value, F64, signed=signed),), target)


def _odd_53_bits(value: Expression, *, signed: bool) -> Expression:
    """Return an i64 rounded to odd, to 53 bits, so that rounding it again to a narrow float is correct."""
    high = shift_right(value, 11, signed=signed)
    sticky = zero_extend(compare("ne", mask(value, 2047), 0), I64)
    odd = shift_left(high | sticky, 11)
    exact = 1 << 53
    small = compare("ult", value + exact, 2 * exact) if signed else None
    return select(small or compare("ult", value, exact), value, odd)


def _saturated(value: Expression, target: ElementType) -> Expression:
    """Return a float truncated to an integer of type `target`, saturating; 0 for NaN."""
    register = register_types(target)[0]
    whole = I64 if register is I64 else I32
    lowest, highest = t.storage_range(target)
    above, below = like(float(highest + 1), value), like(float(lowest), value)
    inside = compare("oge", value, below) & compare("olt", value, above)
    wide_unsigned = target.is_unsigned and whole.bits == target.bits
    result = to_integer(select(inside, value, 0), whole, signed=not wide_unsigned)
    result = select(compare("oge", value, above), highest, result)
    result = select(compare("olt", value, below), lowest, result)
    return truncate(result, register)


@rule("stablehlo.bitcast_convert")
def bitcast_convert(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Return None for types of different widths, which change the shape."""
    source, target = element_of(op), result_element(op)
    if source.bits != target.bits:
        return None
    if source is target:
        return [operands[0]]
    codes = encode(operands[0], source)
    if len(codes) != len(register_types(target)):
        return None
    types = memory_types(target)
    return [decode(tuple(_as_type(code, type) for code, type in zip(codes, types, strict=True)), target)]


def _as_type(value: Expression, type: MachineType) -> Expression:
    return value if value.type is type else expression(Primitive.BITCAST, type, (value,))


# --- reduce_precision ------------------------------------------------------------------------------------------------


@rule("stablehlo.reduce_precision")
def reduce_precision(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Round to `mantissa_bits` (ties to even) and `exponent_bits`; overflow is infinity, underflow zero."""
    return [precision_reduced(operands[0], element_of(op), op["exponent_bits"], op["mantissa_bits"])]


def precision_reduced(element: Element, element_type: ElementType, exponent_bits: int, mantissa_bits: int) -> Element:
    """Return an element of `element_type` rounded to a float with that many exponent and mantissa bits."""
    if element_type.name not in FLOAT_FORMATS:
        return round_to(precision_reduced(element, t.F32, exponent_bits, mantissa_bits), element_type)
    own_exponent, own_mantissa = FLOAT_FORMATS[element_type.name]
    if own_mantissa <= mantissa_bits and exponent_bits >= own_exponent:
        return element
    code = encode(element, element_type)[0]
    bits = _as_type(code, code.type.integer)
    reduced = _reduced_bits(bits, own_exponent, own_mantissa, exponent_bits, mantissa_bits)
    value = decode((_as_type(reduced, code.type),), element_type)[0]
    unordered = element[0] if mantissa_bits > 0 else infinity(value.type)  # no NaN without a mantissa
    return (select(is_nan(element[0]), unordered, value),)


def _reduced_bits(
    raw: Expression, own_exponent: int, own_mantissa: int, exponent_bits: int, mantissa_bits: int
) -> Expression:
    sign_mask = 1 << (own_exponent + own_mantissa)
    all_ones = ((1 << own_exponent) - 1) << own_mantissa
    spare = own_mantissa - mantissa_bits
    if spare > 0:
        odd = mask(shift_right(raw, spare), 1)
        raw = raw + (odd + ((1 << (spare - 1)) - 1))
        raw = raw & ~like((1 << spare) - 1, raw)
    if exponent_bits >= own_exponent:
        return raw
    bias, kept_bias = (1 << (own_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
    largest, smallest = (bias + kept_bias) << own_mantissa, max(0, bias - kept_bias) << own_mantissa
    exponent, zero = mask(raw, all_ones), mask(raw, sign_mask)
    over = compare("ugt", exponent, largest)
    under = compare("ule", exponent, smallest)
    return select(under, zero, select(over, zero | all_ones, raw))
