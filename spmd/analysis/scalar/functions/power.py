"""pow and cbrt."""

from __future__ import annotations

from spmd.analysis.scalar import build as b
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
    """Return exp(y log|x|), with the sign and the special values of C's pow."""
    size, one = b.abs_(x), b.like(1, x)
    magnitude = _in_range_of_single(size, y) if single else _power_of_positive(size, y)
    whole = b.compare("oeq", b.rint(y), y)
    half = 0.5 * y
    odd = whole & b.compare("une", b.rint(half), half)
    infinite = b.compare("oeq", b.abs_(y), b.infinity(y.type))
    always_one = b.any_of(b.compare("oeq", x, one), b.compare("oeq", y, 0), b.compare("oeq", size, one) & infinite)
    negative = b.compare("slt", b.bits_of(x), 0)
    result = b.select(negative & odd, -magnitude, magnitude)
    finite_negative = b.compare("olt", x, 0) & b.compare("olt", size, b.infinity(x.type))
    undefined = finite_negative & b.compare("one", b.rint(y), y)
    result = b.select(undefined, b.nan(x.type), result)
    return b.select(always_one, one, _exact_power(x, y, result))


def _exact_power(x: Expression, y: Expression, otherwise: Expression) -> Expression:
    """Return squares, reciprocals and square roots with a single rounding, and `otherwise` for other exponents."""
    root = b.abs_(b.sqrt(b.select(b.compare("oeq", x, -b.infinity(x.type)), b.infinity(x.type), x)))
    for exponent, value in ((2, x * x), (-1, 1 / x), (0.5, root)):
        otherwise = b.select(b.compare("oeq", y, exponent), value, otherwise)
    return otherwise


def _in_range_of_single(x: Expression, y: Expression) -> Expression:
    """Return x^y for f32 results, for which an f64 logarithm is accurate enough."""
    return b.call(Primitive.EXP, y * b.call(Primitive.LOG, x))


def _power_of_positive(x: Expression, y: Expression) -> Expression:
    high, low = _long_log(x)
    product = y * high
    rest = b.fma(y, high, -product) + y * low
    inside = b.compare("ogt", x, 0) & b.compare("olt", x, b.infinity(x.type))
    edge = y * b.call(Primitive.LOG, x)
    tame = inside & b.compare("olt", b.abs_(product), 1e4)
    return exp_of_sum(b.select(inside, product, edge), b.select(tame, rest, 0))


def _long_log(x: Expression) -> tuple[Expression, Expression]:
    """Return log(x) of a positive number as a sum of two floats, to about 68 bits."""
    exponent, f = parts(x)
    two = b.like(2, x)
    divisor = two + f
    divisor_low = f - (divisor - two)
    s = f / divisor
    s_low = b.fma(-s, divisor_low, b.fma(-s, divisor, f)) / divisor
    square = s * s
    square_low = b.fma(s + s, s_low, b.fma(s, s, -square))
    third, third_low = (b.like(part, x) for part in _TWO_THIRDS)
    head = third * square
    head_low = b.fma(third, square_low, b.fma(third_low, square, b.fma(third, square, -head)))
    tail = square * square * b.polynomial(square, _SERIES)
    ratio = head + tail
    ratio_low = tail - (ratio - head) + head_low
    cubic = s * ratio
    cubic_low = b.fma(s_low, ratio, b.fma(s, ratio_low, b.fma(s, ratio, -cubic)))
    double = s + s
    high = double + cubic
    low = cubic - (high - double) + cubic_low + (s_low + s_low)
    whole = exponent * _LOG_2[0]  # exact
    total = whole + high
    moved = total - whole
    lost = whole - (total - moved) + (high - moved)
    rest = lost + b.fma(exponent, b.like(_LOG_2[1], x), low)
    sum_ = total + rest
    return sum_, rest - (sum_ - total)


# --- cbrt ------------------------------------------------------------------------------------------------------------

#: The cube root on [1/2, 1], to 16 bits.
_ROOT = (
    -0.13466398437272967, 0.5466551841524232, -0.9543929130515743, 1.1400036923202777, 0.4023888154793034,
)  # fmt: skip
_ROOT_OF_2, _ROOT_OF_4 = 1.2599210498948732, 1.5874010519681994
_THIRDS = 400  # makes exponents positive before the division by three


@define(Primitive.CBRT)
@in_double
def cbrt(x: Expression, single: bool) -> Expression:
    """Return the cube root by a polynomial of the mantissa, a third of the exponent, and Newton's method."""
    size = b.abs_(x)
    small = b.compare("olt", size, 2.0**-1022)
    size = b.select(small, size * 2.0**54, size)
    bits = b.bits_of(size)
    exponent = b.truncate(b.shift_right(bits, 52), I32) + (3 * _THIRDS - 1022)
    third = b.udiv(exponent, constant(3, I32))
    rest = exponent - third * 3
    mantissa = b.float_of(b.mask(bits, (1 << 52) - 1) | (1022 << 52))
    number = b.float_of(b.mask(bits, (1 << 52) - 1) | b.shift_left(b.zero_extend(rest + 1022, I64), 52))
    step = b.select(b.compare("eq", rest, 1), b.like(_ROOT_OF_2, x), _ROOT_OF_4)
    root = b.polynomial(mantissa, _ROOT) * b.select(b.compare("eq", rest, 0), 1, step)
    for _ in range(1 if single else 2):
        square = root * root
        square_low = b.fma(root, root, -square)
        error = b.fma(-square_low, root, b.fma(-square, root, number))
        root = root + error / (3 * square)
    scale = b.shift_left(b.zero_extend(third + (1023 - _THIRDS), I64), 52)
    result = root * (b.float_of(scale) * b.select(small, b.like(2.0**-18, x), 1))
    ordinary = b.compare("one", x, 0) & b.compare("olt", b.abs_(x), b.infinity(x.type))
    return b.select(ordinary, b.copysign(result, x), x)
