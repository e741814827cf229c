"""lgamma and digamma, in f64 (f32 by way of it).

Right of zero lgamma is t P(t) about its roots 1 and 2, so that its relative accuracy holds there; up to 8 it is moved
to [2, 3] by the recurrence, whose terms have one sign; beyond it is Stirling's series. Left of zero both functions are
reflected. Source of digamma's expansion about its root: Boost.Math, "Digamma".
"""

from __future__ import annotations

from spmd.analysis.scalar.build import (
    abs_,
    add,
    and_,
    call,
    compare,
    div,
    floor,
    infinity,
    like,
    mul,
    nan,
    neg,
    polynomial,
    rarely,
    rint,
    select,
    sub,
)
from spmd.analysis.scalar.expression import Expression, Primitive
from spmd.analysis.scalar.functions.table import define, in_double

#: lgamma(1 + t) / t on [-1/4, 1/2], and lgamma(2 + t) / t on [-1/2, 1].
_ABOUT_1 = (
    -0.0077212679057181415, 0.028816450266805134, -0.050729792075914826, 0.06023389451769384, -0.06117731688604786,
    0.06250228723392112, -0.06637041268144861, 0.07137410601102968, -0.07694734712870438, 0.08335946137961364,
    -0.09095380956989764, 0.10009921360290933, -0.11133425772690639, 0.12550967511454741, -0.14404989711431304,
    0.16955717693077507, -0.20738555102421868, 0.2705808084281461, -0.4006856343865504, 0.8224670334241126,
    -0.5772156649015329,
)  # fmt: skip
_ABOUT_2 = (
    1.912592025656065e-09, -1.3928402211432647e-08, 4.768325237884942e-08, -1.1017657910586452e-07,
    2.19969661304999e-07, -4.4764667211640426e-07, 9.502249020260176e-07, -2.0380466500473888e-06,
    4.376182357138873e-06, -9.44011284707898e-06, 2.050703901116482e-05, -4.492610224017563e-05,
    9.945752220321233e-05, -0.0002231547739992222, 0.0005096695249020374, -0.0011927539107132524,
    0.0028905103307048483, -0.007385551028705934, 0.020580808427785653, -0.06735230105319769, 0.3224670334241132,
    0.42278433509846713,
)  # fmt: skip
#: Stirling's series times x, in 1 / x^2, for x >= 8.
_STIRLING = (
    0.00506926112515916, -0.0018905405178893575, 0.0008414728591042865, -0.0005952366070307577, 0.0007936507898351699,
    -0.0027777777777741, 0.08333333333333333,
)  # fmt: skip
_HALF_LOG_TAU = 0.9189385332046728
_LOG_PI = 1.1447298858494002


def _log(x: Expression) -> Expression:
    return call(Primitive.LOG, x)


@define(Primitive.LGAMMA)
@in_double
def lgamma(x: Expression, single: bool) -> Expression:
    """log |gamma(x)|; infinity at both infinities and at the poles."""
    size = abs_(x)
    positive = _lgamma_right(size)
    reflected = sub(like(_LOG_PI, x), add(_log(mul(size, _sine_of_pi(size))), positive))
    left = compare("olt", x, like(0, x))
    value = rarely(left, reflected, positive)
    tiny = compare("olt", size, like(2.0**-70, x))
    value = select(tiny, neg(_log(size)), value)
    return select(compare("oeq", size, infinity(x.type)), size, value)


def _lgamma_right(x: Expression) -> Expression:
    one, two = like(1, x), like(2, x)
    small = compare("olt", x, like(0.75, x))
    moved = select(small, add(x, one), x)
    factor = one  # what the recurrence takes from x in [3, 8)
    for step in range(3, 8):
        above = compare("oge", x, like(step, x))
        factor = select(above, mul(factor, sub(x, like(step - 2, x))), factor)
        moved = select(above, sub(x, like(step - 2, x)), moved)
    about_1 = compare("olt", moved, like(1.5, x))
    t = sub(moved, select(about_1, one, two))
    near = mul(t, select(about_1, polynomial(t, _ABOUT_1), polynomial(t, _ABOUT_2)))
    # one logarithm serves the recurrence on either side and Stirling's series
    far = compare("oge", x, like(8, x))
    logarithm = _log(select(far, x, select(small, x, factor)))
    near = select(small, sub(near, logarithm), add(near, logarithm))
    inverse = div(one, x)
    tail = add(like(_HALF_LOG_TAU - 0.5, x), mul(inverse, polynomial(mul(inverse, inverse), _STIRLING)))
    stirling = add(mul(sub(x, like(0.5, x)), sub(logarithm, one)), tail)
    return select(far, stirling, near)


def _sine_of_pi(x: Expression) -> Expression:
    """|sin(pi x)|, zero at whole numbers."""
    distance = abs_(sub(x, rint(x)))
    pi = like(3.141592653589793, x)
    near = call(Primitive.SIN, mul(pi, distance))
    return select(
        compare("ole", distance, like(0.25, x)), near, call(Primitive.COS, mul(pi, sub(like(0.5, x), distance)))
    )


# --- digamma ---------------------------------------------------------------------------------------------------------

#: B(2k) / 2k of the asymptotic series, highest order first.
DIGAMMA_SERIES = (-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
#: The root in three parts, and digamma / (x - root) on [1, 2] as a constant and P(x - 1) / Q(x - 1).
DIGAMMA_ROOT = (1569415565 / 2**30, 381566830 / 2**60, 0.9016312093258695918615325266959189453125e-19)
DIGAMMA_SLOPE = 0.99558162689208984
DIGAMMA_P = (
    -0.0020713321167745952, -0.045251321448739056, -0.28919126444774784, -0.65031853770896507, -0.32555031186804491,
    0.25479851061131551,
)  # fmt: skip
DIGAMMA_Q = (
    -0.55789841321675513e-6, 0.0021284987017821144, 0.054151797245674225, 0.43593529692665969, 1.4606242909763515,
    2.0767117023730469, 1.0,
)  # fmt: skip


@define(Primitive.DIGAMMA)
@in_double
def digamma(x: Expression, single: bool) -> Expression:
    """The derivative of lgamma; NaN at the poles 0, -1, -2, ..."""
    left = compare("olt", x, like(0.5, x))
    positive = select(left, sub(like(1, x), x), x)
    value = select(compare("olt", positive, like(4, x)), _digamma_below_4(positive), _digamma_from_4(positive))
    fraction = sub(x, rint(x))  # exact, and tan has its period
    pi = like(3.141592653589793, x)
    reflected = sub(value, div(pi, call(Primitive.TAN, mul(pi, fraction))))
    pole = and_(compare("ole", x, like(0, x)), compare("oeq", x, floor(x)))
    return select(pole, nan(x.type), rarely(left, reflected, value))


def _digamma_below_4(x: Expression) -> Expression:
    """Moved into [1, 2] by the recurrence."""
    one, zero = like(1, x), like(0, x)
    below = compare("olt", x, one)
    moved = select(below, neg(div(one, x)), zero)
    x = select(below, add(x, one), x)
    for _ in range(2):
        above = compare("ogt", x, like(2, x))
        x = select(above, sub(x, one), x)
        moved = add(moved, select(above, div(one, x), zero))
    distance = x
    for part in DIGAMMA_ROOT:
        distance = sub(distance, like(part, x))
    t = sub(x, one)
    ratio = div(polynomial(t, DIGAMMA_P), polynomial(t, DIGAMMA_Q))
    return add(add(mul(distance, like(DIGAMMA_SLOPE, x)), mul(distance, ratio)), moved)


def _digamma_from_4(x: Expression) -> Expression:
    """Moved beyond 10, to the asymptotic series."""
    one = like(1, x)
    steps = div(one, x)
    for step in range(1, 6):
        steps = add(steps, div(one, add(x, like(step, x))))
    x = add(x, like(6, x))
    inverse = div(one, x)
    square = mul(inverse, inverse)
    series = mul(square, polynomial(square, DIGAMMA_SERIES))
    return sub(sub(sub(_log(x), mul(like(0.5, x), inverse)), series), steps)
