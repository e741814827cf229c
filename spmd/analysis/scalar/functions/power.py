"""pow and cbrt."""

from __future__ import annotations

from spmd.analysis.scalar.build import (
    abs_,
    add,
    and_,
    any_of,
    bits_of,
    call,
    compare,
    copysign,
    div,
    float_of,
    fma,
    infinity,
    like,
    mask,
    mul,
    nan,
    neg,
    or_,
    polynomial,
    rint,
    select,
    shift_left,
    shift_right,
    sqrt,
    sub,
    truncate,
    udiv,
    zero_extend,
)
from spmd.analysis.scalar.expression import I32, I64, Expression, Primitive, constant
from spmd.analysis.scalar.functions.exponential import exp_of_sum
from spmd.analysis.scalar.functions.logarithm import parts
from spmd.analysis.scalar.functions.table import define, in_double

# --- pow -------------------------------------------------------------------------------------------------------------

#: (2 atanh(s) - 2 s - 2/3 s^3) / s^5 in s^2, and 2/3 in two parts.
_SERIES = (
    0.13197008433471072, 0.1325674650394552, 0.15386760298495333, 0.18181784304864282, 0.22222222520608018,
    0.2857142857009589, 0.4000000000000226,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LOG_2 = (0.6931471803691238, 1.9082149292705877e-10)


@define(Primitive.POW, 2)
@in_double
def power(x: Expression, y: Expression, single: bool) -> Expression:
    """exp(y log|x|), with the sign and the special values of C's pow."""
    size, one = abs_(x), like(1, x)
    magnitude = _in_range_of_single(size, y) if single else _power_of_positive(size, y)
    whole = compare("oeq", rint(y), y)
    half = mul(like(0.5, y), y)
    odd = and_(whole, compare("une", rint(half), half))
    infinite = compare("oeq", abs_(y), infinity(y.type))
    always_one = any_of(
        compare("oeq", x, one), compare("oeq", y, like(0, y)), and_(compare("oeq", size, one), infinite)
    )
    negative = compare("slt", bits_of(x), like(0, bits_of(x)))
    result = select(and_(negative, odd), neg(magnitude), magnitude)
    finite_negative = and_(compare("olt", x, like(0, x)), compare("olt", size, infinity(x.type)))
    undefined = and_(finite_negative, compare("one", rint(y), y))
    result = select(undefined, nan(x.type), result)
    return select(always_one, one, _exact_power(x, y, result))


def _exact_power(x: Expression, y: Expression, otherwise: Expression) -> Expression:
    """Squares, reciprocals and square roots, which have one rounding."""
    root = abs_(sqrt(select(compare("oeq", x, neg(infinity(x.type))), infinity(x.type), x)))
    for exponent, value in ((2, mul(x, x)), (-1, div(like(1, x), x)), (0.5, root)):
        otherwise = select(compare("oeq", y, like(exponent, y)), value, otherwise)
    return otherwise


def _in_range_of_single(x: Expression, y: Expression) -> Expression:
    """Where the result is wanted as f32, the logarithm has digits enough."""
    return call(Primitive.EXP, mul(y, call(Primitive.LOG, x)))


def _power_of_positive(x: Expression, y: Expression) -> Expression:
    high, low = _long_log(x)
    product = mul(y, high)
    rest = add(fma(y, high, neg(product)), mul(y, low))
    inside = and_(compare("ogt", x, like(0, x)), compare("olt", x, infinity(x.type)))
    edge = mul(y, call(Primitive.LOG, x))
    tame = and_(inside, compare("olt", abs_(product), like(1e4, x)))
    return exp_of_sum(select(inside, product, edge), select(tame, rest, like(0, x)))


def _long_log(x: Expression) -> tuple[Expression, Expression]:
    """log(x) of a positive number as a sum of two, to about 68 bits."""
    exponent, f = parts(x)
    two = like(2, x)
    divisor = add(two, f)
    divisor_low = sub(f, sub(divisor, two))
    s = div(f, divisor)
    s_low = div(fma(neg(s), divisor_low, fma(neg(s), divisor, f)), divisor)
    square = mul(s, s)
    square_low = fma(add(s, s), s_low, fma(s, s, neg(square)))
    third, third_low = (like(part, x) for part in _TWO_THIRDS)
    head = mul(third, square)
    head_low = fma(third, square_low, fma(third_low, square, fma(third, square, neg(head))))
    tail = mul(mul(square, square), polynomial(square, _SERIES))
    ratio = add(head, tail)
    ratio_low = add(sub(tail, sub(ratio, head)), head_low)
    cubic = mul(s, ratio)
    cubic_low = fma(s_low, ratio, fma(s, ratio_low, fma(s, ratio, neg(cubic))))
    double = add(s, s)
    high = add(double, cubic)
    low = add(add(sub(cubic, sub(high, double)), cubic_low), add(s_low, s_low))
    whole = mul(exponent, like(_LOG_2[0], x))  # exact
    total = add(whole, high)
    moved = sub(total, whole)
    lost = add(sub(whole, sub(total, moved)), sub(high, moved))
    rest = add(lost, fma(exponent, like(_LOG_2[1], x), low))
    sum_ = add(total, rest)
    return sum_, sub(rest, sub(sum_, total))


# --- cbrt ------------------------------------------------------------------------------------------------------------

#: The cube root on [1/2, 1], to 16 bits.
_ROOT = (
    -0.13466398437272967, 0.5466551841524232, -0.9543929130515743, 1.1400036923202777, 0.4023888154793034,
)  # fmt: skip
_ROOT_OF_2, _ROOT_OF_4 = 1.2599210498948732, 1.5874010519681994
_THIRDS = 400  # makes exponents positive before they are divided by three


@define(Primitive.CBRT)
@in_double
def cbrt(x: Expression, single: bool) -> Expression:
    """A polynomial of the mantissa, a third of the exponent, and Newton's steps."""
    size = abs_(x)
    small = compare("olt", size, like(2.0**-1022, x))
    size = select(small, mul(size, like(2.0**54, x)), size)
    bits = bits_of(size)
    exponent = add(truncate(shift_right(bits, 52), I32), constant(3 * _THIRDS - 1022, I32))
    third = udiv(exponent, constant(3, I32))
    rest = sub(exponent, mul(third, constant(3, I32)))
    mantissa = float_of(or_(mask(bits, (1 << 52) - 1), like(1022 << 52, bits)))
    number = float_of(or_(mask(bits, (1 << 52) - 1), shift_left(zero_extend(add(rest, constant(1022, I32)), I64), 52)))
    step = select(compare("eq", rest, constant(1, I32)), like(_ROOT_OF_2, x), like(_ROOT_OF_4, x))
    root = mul(polynomial(mantissa, _ROOT), select(compare("eq", rest, constant(0, I32)), like(1, x), step))
    for _ in range(1 if single else 2):
        square = mul(root, root)
        square_low = fma(root, root, neg(square))
        error = fma(neg(square_low), root, fma(neg(square), root, number))
        root = add(root, div(error, mul(like(3, x), square)))
    scale = shift_left(zero_extend(add(third, constant(1023 - _THIRDS, I32)), I64), 52)
    result = mul(root, mul(float_of(scale), select(small, like(2.0**-18, x), like(1, x))))
    ordinary = and_(compare("one", x, like(0, x)), compare("olt", abs_(x), infinity(x.type)))
    return select(ordinary, copysign(result, x), x)
