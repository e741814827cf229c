"""atan2, atan, asin, acos, and the inverse hyperbolic functions.

f32 is computed in f64, since quotients and roots in between would cost too much accuracy in f32.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.scalar.build import (
    abs_,
    bits_of,
    call,
    compare,
    copysign,
    fma,
    infinity,
    is_nan,
    like,
    nan,
    polynomial,
    select,
    sqrt,
)
from spmd.analysis.scalar.expression import Expression, Primitive
from spmd.analysis.scalar.functions.table import define, in_double

#: (atan t - t) / t^3 in t^2, for t up to tan(pi / 8); for f32, and for f64.
_SHORT_ATAN = (
    0.047396946410100844, -0.08474248690700692, 0.11044345680229817, -0.1428198113944646, 0.1999990302473042,
    -0.3333333248973074,
)  # fmt: skip
_LONG_ATAN = (
    0.015166928588345091, -0.03344609750528634, 0.045023043244337986, -0.05218090842395847, 0.05876971824881718,
    -0.06666221510586866, 0.07692282392547932, -0.09090908127805059, 0.11111111087697911, -0.1428571428538002,
    0.19999999999997603, -0.33333333333333326,
)  # fmt: skip
#: (asin t - t) / t^3 in t^2, for t up to 1/2.
_SHORT_ASIN = (
    0.037580762071725206, 0.014395083067695687, 0.03181857902406736, 0.044515738213164215, 0.07500510056733853,
    0.16666659900607186,
)  # fmt: skip
_LONG_ASIN = (
    0.03275715710103959, -0.021199852033817735, 0.02184590369205373, 0.0036509490652592543, 0.010794541014931859,
    0.011396435874793717, 0.013981113916437513, 0.01735158835647533, 0.022372216256473083, 0.03038194266458096,
    0.04464285717547122, 0.07499999999969945, 0.16666666666666763,
)  # fmt: skip
#: The multiples of pi / 4 from 1 to 4, each as a sum of two floats.
_EIGHTHS = (
    (0.7853981633974483, 3.061616997868383e-17),
    (1.5707963267948966, 6.123233995736766e-17),
    (2.356194490192345, 9.184850993605148e-17),
    (3.141592653589793, 1.2246467991473532e-16),
)
_TAN_EIGHTH = 0.41421356237309503
_LOG_2 = 0.6931471805599453


def _cubic(t: Expression, coefficients: Sequence[float]) -> Expression:
    """Return t^3 P(t^2), the term to add to t."""
    square = t * t
    return t * square * polynomial(square, coefficients)


def _atan2(y: Expression, x: Expression, coefficients: Sequence[float]) -> Expression:
    """Reduce to the ratio of the smaller to the larger of |x| and |y|, and by pi / 4 above tan(pi / 8)."""
    size_x, size_y = abs_(x), abs_(y)
    steep = compare("ogt", size_y, size_x)
    small, large = select(steep, size_x, size_y), select(steep, size_y, size_x)
    huge = compare("ogt", large, 2.0**1000)
    scale = select(huge, like(2.0**-30, x), 1)
    small, large = small * scale, large * scale
    infinite = compare("oeq", small, infinity(x.type))
    none = compare("oeq", large, 0)
    diagonal = infinite & compare("oeq", large, infinity(x.type))
    small = select(diagonal, 1, small)
    large = select(diagonal ^ none, 1, large)
    turned = compare("ogt", small, large * _TAN_EIGHTH)
    t = select(turned, small - large, small) / select(turned, small + large, large)
    left = compare("slt", bits_of(x), 0)
    high, low = (_corner(turned, steep, left, part, x) for part in (0, 1))
    backwards = steep ^ left
    sign = select(backwards, like(-1, x), 1)
    rest = fma(sign, _cubic(t, coefficients), low)
    return copysign(high + fma(sign, t, rest), y)


def _corner(turned: Expression, steep: Expression, left: Expression, part: int, x: Expression) -> Expression:
    """Return a part of the multiple of pi / 4 to which the reduced angle is relative."""
    one, two, three, four = (like(eighth[part], x) for eighth in _EIGHTHS)
    return select(turned, select(left, three, one), select(steep, two, select(left, four, 0)))


@define(Primitive.ATAN2, 2)
@in_double
def atan2(y: Expression, x: Expression, single: bool) -> Expression:
    return _atan2(y, x, _SHORT_ATAN if single else _LONG_ATAN)


@define(Primitive.ATAN)
@in_double
def atan(x: Expression, single: bool) -> Expression:
    return _atan2(x, like(1, x), _SHORT_ATAN if single else _LONG_ATAN)


# --- asin and acos ---------------------------------------------------------------------------------------------------


def _half_angle(x: Expression, single: bool) -> tuple[Expression, Expression, Expression, Expression]:
    """Return (is |x| <= 1/2, t, asin(t) - t, root), where t is x or root = sqrt((1 - |x|) / 2)."""
    size = abs_(x)
    near = compare("ole", size, 0.5)
    half = 0.5 * (1 - size)
    t = select(near, x, sqrt(half))
    square = select(near, x * x, half)
    return near, t, t * square * polynomial(square, _SHORT_ASIN if single else _LONG_ASIN), half


@define(Primitive.ASIN)
@in_double
def asin(x: Expression, single: bool) -> Expression:
    near, t, rest, _ = _half_angle(x, single)
    high, low = (like(part, x) for part in _EIGHTHS[1])
    far = high - fma(2, t, fma(2, rest, -low))
    return select(near, t + rest, copysign(far, x))


@define(Primitive.ACOS)
@in_double
def acos(x: Expression, single: bool) -> Expression:
    near, t, rest, half = _half_angle(x, single)
    right, right_low = (like(part, x) for part in _EIGHTHS[1])
    straight, straight_low = (like(part, x) for part in _EIGHTHS[3])
    middle = right - (t + (rest - right_low))
    # The rounding error of the root, which no larger term hides here.
    lost = fma(-t, t, half) / (t + t)
    lost = select(compare("oeq", t, 0), 0, lost)
    end = 2 * (t + (rest + lost))
    other_end = straight - fma(2, t, fma(2, rest, -straight_low))
    far = select(compare("olt", x, 0), other_end, end)
    return select(near, middle, select(is_nan(x), x, far))


# --- inverse hyperbolic functions ------------------------------------------------------------------------------------


def _log(x: Expression) -> Expression:
    return call(Primitive.LOG, x)


def _log1p(x: Expression) -> Expression:
    return call(Primitive.LOG1P, x)


@define(Primitive.ASINH)
@in_double
def asinh(x: Expression, single: bool) -> Expression:
    """Return log(|x| + sqrt(x^2 + 1)) as log1p of the excess over one."""
    size, one = abs_(x), like(1, x)
    square = size * size
    excess = size + square / (one + sqrt(square + one))
    return copysign(_unless_large(size, _log1p(excess)), x)


@define(Primitive.ACOSH)
@in_double
def acosh(x: Expression, single: bool) -> Expression:
    """Return log(x + sqrt(x^2 - 1)) as log1p of the excess over one."""
    excess = x - 1
    value = _unless_large(x, _log1p(excess + sqrt(excess * (excess + 2))))
    return select(compare("olt", x, 1), nan(x.type), value)


def _unless_large(size: Expression, value: Expression) -> Expression:
    """Return `value`, or log(2 size) if the square of `size` could overflow; the one is negligible there."""
    return select(compare("ogt", size, 2.0**28), _log(size) + _LOG_2, value)


@define(Primitive.ATANH)
@in_double
def atanh(x: Expression, single: bool) -> Expression:
    """Return log1p(2|x| / (1 - |x|)) / 2."""
    size = abs_(x)
    ratio = (size + size) / (1 - size)
    return copysign(0.5 * _log1p(ratio), x)
