"""lgamma and digamma, in f64 (also for f32).

For positive x, lgamma is t P(t) around its roots 1 and 2, which keeps the relative error small there; up to 8 it is
reduced to [2, 3] by the recurrence, whose terms have one sign; above, it is Stirling's series. Both functions are
reflected for negative x. Source of digamma's expansion around its root: Boost.Math, "Digamma".
"""

from __future__ import annotations

from spmd.analysis.scalar.build import (
    abs_,
    call,
    compare,
    floor,
    infinity,
    like,
    nan,
    polynomial,
    rarely,
    rint,
    select,
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
    """Return log |gamma(x)|; infinity at infinities and poles."""
    size = abs_(x)
    positive = _lgamma_right(size)
    sine = _sine_of_pi(size)
    reflected = _LOG_PI - (_log(size * sine) + positive)
    reflected = select(compare("oeq", sine, 0), infinity(x.type), reflected)  # a pole, even if `positive` overflows
    left = compare("olt", x, 0)
    value = rarely(left, reflected, positive)
    tiny = compare("olt", size, 2.0**-70)
    value = select(tiny, -_log(size), value)
    return select(compare("oeq", size, infinity(x.type)), size, value)


def _lgamma_right(x: Expression) -> Expression:
    one, two = like(1, x), like(2, x)
    small = compare("olt", x, 0.75)
    moved = select(small, x + one, x)
    factor = one  # accumulates the recurrence for x in [3, 8)
    for step in range(3, 8):
        above = compare("oge", x, step)
        factor = select(above, factor * (x - (step - 2)), factor)
        moved = select(above, x - (step - 2), moved)
    about_1 = compare("olt", moved, 1.5)
    t = moved - select(about_1, one, two)
    near = t * select(about_1, polynomial(t, _ABOUT_1), polynomial(t, _ABOUT_2))
    # One logarithm serves the recurrence in either direction and Stirling's series.
    far = compare("oge", x, 8)
    logarithm = _log(select(far, x, select(small, x, factor)))
    near = select(small, near - logarithm, near + logarithm)
    inverse = one / x
    tail = _HALF_LOG_TAU - 0.5 + inverse * polynomial(inverse * inverse, _STIRLING)
    stirling = (x - 0.5) * (logarithm - one) + tail
    return select(far, stirling, near)


def _sine_of_pi(x: Expression) -> Expression:
    """Return |sin(pi x)|, exactly zero at integers."""
    distance = abs_(x - rint(x))
    pi = like(3.141592653589793, x)
    near = call(Primitive.SIN, pi * distance)
    return select(compare("ole", distance, 0.25), near, call(Primitive.COS, pi * (0.5 - distance)))


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
    """Return the derivative of lgamma; NaN at the poles 0, -1, -2, ..."""
    left = compare("olt", x, 0.5)
    positive = select(left, 1 - x, x)
    value = select(compare("olt", positive, 4), _digamma_below_4(positive), _digamma_from_4(positive))
    fraction = x - rint(x)  # exact; tan has this period
    pi = like(3.141592653589793, x)
    reflected = value - pi / call(Primitive.TAN, pi * fraction)
    pole = compare("ole", x, 0) & compare("oeq", x, floor(x))
    return select(pole, nan(x.type), rarely(left, reflected, value))


def _digamma_below_4(x: Expression) -> Expression:
    """Return digamma, reduced to [1, 2] by the recurrence."""
    one, zero = like(1, x), like(0, x)
    below = compare("olt", x, one)
    moved = select(below, -(one / x), zero)
    x = select(below, x + one, x)
    for _ in range(2):
        above = compare("ogt", x, 2)
        x = select(above, x - one, x)
        moved = moved + select(above, one / x, zero)
    distance = x
    for part in DIGAMMA_ROOT:
        distance = distance - part
    t = x - one
    ratio = polynomial(t, DIGAMMA_P) / polynomial(t, DIGAMMA_Q)
    return distance * DIGAMMA_SLOPE + distance * ratio + moved


def _digamma_from_4(x: Expression) -> Expression:
    """Return digamma, raised above 10 by the recurrence, for the asymptotic series."""
    one = like(1, x)
    steps = one / x
    for step in range(1, 6):
        steps = steps + one / (x + step)
    x = x + 6
    inverse = one / x
    square = inverse * inverse
    series = square * polynomial(square, DIGAMMA_SERIES)
    return _log(x) - 0.5 * inverse - series - steps
