"""Floats of at most 16 bits: represented as f32, rounded, encoded and decoded.

The register form of a narrow float is an f32 that the type represents exactly. `decode_float` and `encode_float`
convert between it and the type's bits; `round_float` rounds any f32 to the type, ties to even. Overflow and NaN follow
ml_dtypes, which defines these types in NumPy. Source: the specification's "Floating-point types" and the papers
it names; the OCP "Microscaling Formats" specification for the types with finite numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spmd.analysis.scalar.build import (
    abs_,
    bits_of,
    compare,
    copysign,
    extend,
    float_of,
    from_half,
    infinity,
    is_nan,
    mask,
    nan,
    select,
    shift_left,
    shift_right,
    shorten,
    to_half,
    truncate,
    umax,
    zero_extend,
)
from spmd.analysis.scalar.expression import F32, I8, I16, I32, Expression, constant
from spmd.types import BF16, F16, ElementType

_MANTISSA = 23
_BIAS = 127
_SIGN = 0x80000000
_INFINITY = 0x7F800000


class Beyond(Enum):
    """The encodings above the largest finite number of a type."""

    INFINITY = "infinity, and NaNs above it"
    NAN = "one NaN of either sign"
    NEGATIVE_ZERO_IS_NAN = "one NaN, in the place of -0"
    NOTHING = "no NaN: numbers saturate"


@dataclass(frozen=True)
class Format:
    """A narrow float: `bits` in total, `mantissa` bits, the exponent's `bias`, and the `largest` finite number."""

    bits: int
    mantissa: int
    bias: int
    largest: float
    beyond: Beyond

    @property
    def magnitude(self) -> int:
        """The mask of all bits but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def infinity(self) -> int:
        """The bits of infinity, if the type has one: the exponent all ones."""
        return self.magnitude >> self.mantissa << self.mantissa

    @property
    def nan(self) -> int:
        """The bits of the only NaN."""
        return 1 << (self.bits - 1) if self.beyond is Beyond.NEGATIVE_ZERO_IS_NAN else self.magnitude


#: Formats by element type, without f8E8M0FNU, which is a bare exponent.
FORMATS: dict[str, Format] = {
    "f4E2M1FN": Format(4, 1, 1, 6.0, Beyond.NOTHING),
    "f6E2M3FN": Format(6, 3, 1, 7.5, Beyond.NOTHING),
    "f6E3M2FN": Format(6, 2, 3, 28.0, Beyond.NOTHING),
    "f8E3M4": Format(8, 4, 3, 15.5, Beyond.INFINITY),
    "f8E4M3": Format(8, 3, 7, 240.0, Beyond.INFINITY),
    "f8E4M3FN": Format(8, 3, 7, 448.0, Beyond.NAN),
    "f8E4M3FNUZ": Format(8, 3, 8, 240.0, Beyond.NEGATIVE_ZERO_IS_NAN),
    "f8E4M3B11FNUZ": Format(8, 3, 11, 30.0, Beyond.NEGATIVE_ZERO_IS_NAN),
    "f8E5M2": Format(8, 2, 15, 57344.0, Beyond.INFINITY),
    "f8E5M2FNUZ": Format(8, 2, 16, 57344.0, Beyond.NEGATIVE_ZERO_IS_NAN),
}


def has_mantissa(element_type: ElementType) -> bool:
    """Return whether the type has a mantissa."""
    return element_type.name != "f8E8M0FNU"


def decode_float(code: Expression, element_type: ElementType) -> Expression:
    """Return the f32 for a narrow float's bits, an i8 or i16."""
    if element_type is F16:
        return from_half(code)
    if element_type is BF16:
        return float_of(shift_left(zero_extend(code, I32), 16))
    if not has_mantissa(element_type):
        return _decode_exponent(code)
    return _decode(code, FORMATS[element_type.name])


def encode_float(value: Expression, element_type: ElementType) -> Expression:
    """Return the bits, an i8 or i16, of an f32 that the type represents exactly."""
    if element_type is F16:
        return to_half(value)
    if element_type is BF16:
        return truncate(shift_right(bits_of(value), 16), I16)
    if not has_mantissa(element_type):
        return truncate(shift_right(bits_of(value), _MANTISSA), I8)
    return _encode(value, FORMATS[element_type.name])


def round_float(value: Expression, element_type: ElementType) -> Expression:
    """Return an f32 rounded to a narrow type."""
    if element_type is F16:
        return from_half(to_half(value))
    if element_type is BF16:
        return _round_bf16(value)
    if not has_mantissa(element_type):
        return _round_exponent(value)
    return _round(value, FORMATS[element_type.name])


def odd_single(value: Expression) -> Expression:
    """Return an f64 as f32, rounded to odd, so that rounding it again to a narrower type is correct.

    An inexact result is the neighbour whose last bit is one: neither a tie nor a value of a type with at least two
    fewer bits. Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    nearest = shorten(value)
    back = extend(nearest)
    bits = bits_of(nearest)
    inexact = compare("one", back, value)
    above = compare("ogt", abs_(back), abs_(value))
    truncated = bits - zero_extend(above, I32)
    return float_of(truncated | zero_extend(inexact, I32))


def _round_bf16(value: Expression) -> Expression:
    bits = bits_of(value)
    even = mask(shift_right(bits, 16), 1)
    rounded = bits + (even + 0x7FFF)
    return float_of(mask(select(is_nan(value), bits_of(_quiet(value)), rounded), 0xFFFF0000))


def _quiet(value: Expression) -> Expression:
    """Return a NaN made quiet, so that its truncated payload is not zero."""
    bits = bits_of(value)
    return float_of(bits | 0x400000)


def _decode(code: Expression, form: Format) -> Expression:
    wide = zero_extend(code, I32)
    magnitude = mask(wide, form.magnitude)
    # As an f32 the bits have the wrong bias, subnormals included; one exact multiplication corrects it.
    value = float_of(shift_left(magnitude, _MANTISSA - form.mantissa)) * (2.0 ** (_BIAS - form.bias))
    sign = mask(shift_left(wide, 32 - form.bits), _SIGN)
    if form.beyond is Beyond.NEGATIVE_ZERO_IS_NAN:
        value = select(compare("eq", mask(wide, 2 * form.magnitude + 1), form.nan), nan(F32), value)
    elif form.beyond is Beyond.NAN:
        value = select(compare("eq", magnitude, form.nan), nan(F32), value)
    elif form.beyond is Beyond.INFINITY:
        largest_exponent = shift_left(magnitude, _MANTISSA - form.mantissa) | _INFINITY
        value = select(compare("uge", magnitude, form.infinity), float_of(largest_exponent), value)
    return float_of(bits_of(value) | sign)


def _encode(value: Expression, form: Format) -> Expression:
    size = abs_(value)
    spare = _MANTISSA - form.mantissa
    code = shift_right(bits_of(size * (2.0 ** (form.bias - _BIAS))), spare)
    if form.beyond is Beyond.INFINITY:
        own = bits_of(size)  # infinity, and NaNs with their payload
        code = select(compare("uge", own, _INFINITY), mask(shift_right(own, spare), form.magnitude), code)
    elif form.beyond is not Beyond.NOTHING:
        code = select(is_nan(value), form.nan, code)
    sign = mask(shift_right(bits_of(value), 32 - form.bits), 1 << (form.bits - 1))
    return truncate(code | sign, I8)


def _round(value: Expression, form: Format) -> Expression:
    size = abs_(value)
    limit = constant(2 * form.largest, F32)
    limited = select(compare("olt", size, limit), size, limit)
    # Adding the anchor rounds to the spacing of the type's numbers around the value.
    smallest_exponent = (_BIAS + 1 - form.bias) << _MANTISSA
    exponent = umax(mask(bits_of(limited), _INFINITY), constant(smallest_exponent, I32))
    anchor = float_of(exponent + (((_MANTISSA - form.mantissa) << _MANTISSA) | 1 << 22))
    rounded = limited + anchor - anchor
    largest = constant(form.largest, F32)
    above = {Beyond.INFINITY: infinity(F32), Beyond.NOTHING: largest}.get(form.beyond, nan(F32))
    rounded = copysign(select(compare("ogt", rounded, largest), above, rounded), value)
    if form.beyond is Beyond.NOTHING:
        return select(is_nan(value), copysign(constant(0, F32), -value), rounded)
    if form.beyond is Beyond.NEGATIVE_ZERO_IS_NAN:
        rounded = rounded + 0.0  # there is no -0
    return select(is_nan(value), _quiet(value), rounded)


# --- f8E8M0FNU: the powers of two from 2^-127 to 2^127, and NaN -------------------------------------------------------


def _decode_exponent(code: Expression) -> Expression:
    wide = zero_extend(code, I32)
    value = select(compare("eq", wide, 0), 0x400000, shift_left(wide, _MANTISSA))
    return float_of(select(compare("eq", wide, 255), 0x7FC00000, value))


def _round_exponent(value: Expression) -> Expression:
    """Round ties up; non-positive numbers are NaN. Subnormals become 2^-127 or 2^-126, as in ml_dtypes."""
    bits = bits_of(value)
    normal = zero_extend(compare("uge", bits, 1 << _MANTISSA), I32)
    exponent = mask(bits + (0x3FFFFF + normal), _INFINITY)
    power = select(compare("eq", exponent, 0), 0x400000, exponent)
    positive = compare("ogt", value, 0)
    overflow = compare("eq", exponent, _INFINITY)
    return select(positive & ~overflow, float_of(power), nan(F32))
