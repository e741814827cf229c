"""Integer functions; results that the specification leaves undefined are XLA's.

Division by zero gives all ones, remainder by zero the dividend, and the smallest integer divided by -1 itself. Shift
amounts are unsigned; shifts by at least the width give 0, or the sign if arithmetic. Source: specification,
"divide", "remainder", "power", "shift_left", "shift_right_arithmetic", "shift_right_logical", "popcnt",
"count_leading_zeros"; chlo.mulhi.

Processors have no vector integer division: types of up to 32 bits are divided as floats, whose truncated quotient is
exact (a fractional quotient is further from the next integer than its rounding error).
"""

from __future__ import annotations

from spmd.analysis.scalar.build import (
    any_of,
    ashr,
    call,
    compare,
    ctlz,
    ctpop,
    like,
    lshr,
    mask,
    resize,
    sdiv,
    select,
    shift_right,
    shl,
    smax,
    srem,
    to_float,
    to_integer,
    truncate,
    udiv,
    umin,
    urem,
    zero_extend,
)
from spmd.analysis.scalar.expression import F32, F64, I32, I64, Expression, Primitive, constant_value, is_constant
from spmd.types import ElementType


def negate(x: Expression) -> Expression:
    return 0 - x


def absolute(x: Expression) -> Expression:
    """Return |x|; the smallest integer is unchanged."""
    return smax(x, negate(x))


def sign(x: Expression) -> Expression:
    positive = zero_extend(compare("sgt", x, 0), x.type)
    return positive + shift_right(x, x.type.bits - 1, signed=True)


def divide_signed(x: Expression, y: Expression) -> Expression:
    zero = _is_zero(y)
    return select(zero, -1, _quotient(x, y, signed=True))


def divide_unsigned(x: Expression, y: Expression) -> Expression:
    zero = _is_zero(y)
    return select(zero, -1, _quotient(x, y, signed=False))


def remainder_signed(x: Expression, y: Expression) -> Expression:
    return _remainder(x, y, signed=True)


def remainder_unsigned(x: Expression, y: Expression) -> Expression:
    return _remainder(x, y, signed=False)


def _is_zero(x: Expression) -> Expression:
    return compare("eq", x, 0)


def _quotient(x: Expression, y: Expression, *, signed: bool) -> Expression:
    """Return x / y truncated; undefined if y = 0."""
    if is_constant(y):
        return _by_constant(x, y, signed=signed)
    divisor = select(_is_zero(y), 1, y)
    if x.type.bits < 64:
        wide, whole = (F64, I64) if x.type.bits == 32 else (F32, I32)
        ratio = to_float(x, wide, signed=signed) / to_float(divisor, wide, signed=signed)
        return truncate(to_integer(ratio, whole), x.type)
    if not signed:
        return udiv(x, divisor)
    minus = compare("eq", y, -1)
    return select(minus, negate(x), sdiv(x, select(minus, 1, divisor)))


def _by_constant(x: Expression, y: Expression, *, signed: bool) -> Expression:
    if is_constant(y, 0):
        return x
    if not signed:
        return udiv(x, y)
    return negate(x) if constant_value(y) == -1 else sdiv(x, y)


def _remainder(x: Expression, y: Expression, *, signed: bool) -> Expression:
    if x.type.bits < 64:
        return select(_is_zero(y), x, x - _quotient(x, y, signed=signed) * y)
    unit = any_of(_is_zero(y), compare("eq", y, -1)) if signed else _is_zero(y)
    rest = (srem if signed else urem)(x, select(unit, 1, y))
    return select(_is_zero(y), x, rest)


def power_unsigned(x: Expression, y: Expression) -> Expression:
    """Return x^y, wrapping."""
    if is_constant(y):
        return power_by_squaring(x, int(constant_value(y)) & (1 << y.type.bits) - 1)
    return call(Primitive.INTEGER_POWER, x, y)


def power_signed(x: Expression, y: Expression) -> Expression:
    """Return x^y, wrapping; for negative y, x being 1 or -1 gives 1 or -1 and any other x gives 0."""
    if is_constant(y) and constant_value(y) >= 0:
        return power_unsigned(x, y)
    negative = compare("slt", y, 0)
    unit = any_of(compare("eq", x, 1), compare("eq", x, -1))
    power = power_unsigned(x, select(negative, mask(y, 1), y))
    return select(negative & ~unit, 0, power)


def power_by_squaring(x: Expression, exponent: int) -> Expression:
    """Return x to the power of a constant."""
    result, square = None, x
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return like(1, x) if result is None else result


def shift_left(x: Expression, y: Expression, element: ElementType) -> Expression:
    amount = _amount(y, element)
    return select(_within(amount), shl(x, amount), 0)


def shift_right_logical(x: Expression, y: Expression, element: ElementType) -> Expression:
    amount = _amount(y, element)
    return select(_within(amount), lshr(_own_bits(x, element), amount), 0)


def shift_right_arithmetic(x: Expression, y: Expression, element: ElementType) -> Expression:
    spare = x.type.bits - element.bits
    if spare and element.is_unsigned:
        x = ashr(shl(x, like(spare, x)), like(spare, x))
    return ashr(x, umin(_amount(y, element), like(x.type.bits - 1, y)))


def _amount(y: Expression, element: ElementType) -> Expression:
    return _own_bits(y, element)


def _own_bits(x: Expression, element: ElementType) -> Expression:
    """Return x without the extension of its sign beyond the element's width."""
    return x if element.bits == x.type.bits else mask(x, 2**element.bits - 1)


def _within(amount: Expression) -> Expression:
    return compare("ult", amount, amount.type.bits)


def population_count(x: Expression, element: ElementType) -> Expression:
    """Return the number of one bits, in two's complement for negative numbers."""
    return ctpop(_own_bits(x, element))


def count_leading_zeros(x: Expression, element: ElementType) -> Expression:
    """Return the number of zero bits above the highest one bit; the width for zero."""
    return ctlz(_own_bits(x, element)) - (x.type.bits - element.bits)


def high_product(x: Expression, y: Expression, element: ElementType) -> Expression:
    """Return the upper N bits of the 2N-bit product of two N-bit integers."""
    if element.bits == 64:
        return _high_product_64(x, y, signed=element.is_signed)
    wide = I64 if element.bits == 32 else I32
    product = resize(x, wide, signed=element.is_signed) * resize(y, wide, signed=element.is_signed)
    return truncate(shift_right(product, element.bits, signed=element.is_signed), x.type)


def _high_product_64(x: Expression, y: Expression, *, signed: bool) -> Expression:
    low = 0xFFFFFFFF
    x_low, x_high, y_low, y_high = mask(x, low), shift_right(x, 32), mask(y, low), shift_right(y, 32)
    middle = x_high * y_low + shift_right(x_low * y_low, 32)
    crossed = x_low * y_high + mask(middle, low)
    high = x_high * y_high + shift_right(middle, 32) + shift_right(crossed, 32)
    if not signed:
        return high
    return high - _if_negative(x, y) - _if_negative(y, x)


def _if_negative(x: Expression, value: Expression) -> Expression:
    """Return `value` where x < 0, else 0."""
    return shift_right(x, 63, signed=True) & value
