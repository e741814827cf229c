"""Complex functions of elements, with C99's branch cuts and special values (Annex G) and NumPy's association.

Where the standard leaves a sign unspecified, the result is glibc's, which the NumPy back end calls.

An element is (real part, imaginary part). Sums and products are computed in the parts' type; every other function of
complex<f32> is computed in f64, which avoids overflow, and rounds each part once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import reduce

from spmd.analysis.scalar.build import (
    abs_,
    all_of,
    any_of,
    call,
    compare,
    copysign,
    extend,
    infinity,
    is_nan,
    like,
    nan,
    select,
    shorten,
    sqrt,
    trunc,
)
from spmd.analysis.scalar.complex_range import (
    hypot,
    log_hypot,
    quotient,
    quotient_in_range,
    reduced_exponent,
    scaled,
    smith_quotient,
)
from spmd.analysis.scalar.elements import Element
from spmd.analysis.scalar.expression import F32, Expression, Primitive

Function = Callable[..., Element]

P = Primitive


def in_double(function: Function) -> Function:
    """Return `function` with complex<f32> computed in f64."""

    def inner(*operands: Element) -> Element:
        if operands[0][0].type is not F32:
            return function(*operands)
        return tuple(map(shorten, function(*(tuple(map(extend, operand)) for operand in operands))))

    return inner


# --- arithmetic ------------------------------------------------------------------------------------------------------


def plus(z: Element, w: Element) -> Element:
    return z[0] + w[0], z[1] + w[1]


def minus(z: Element, w: Element) -> Element:
    return z[0] - w[0], z[1] - w[1]


def times(z: Element, w: Element) -> Element:
    return z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]


def negative(z: Element) -> Element:
    return -z[0], -z[1]


def conjugate(z: Element) -> Element:
    return z[0], -z[1]


def square(z: Element) -> Element:
    """Return z^2 as ((x - y)(x + y), 2xy)."""
    x, y = z
    return (x - y) * (x + y), 2 * (x * y)


def divide(z: Element, w: Element) -> Element:
    """Return z / w, with infinities, zeros and intermediate overflow handled as in C99's Annex G."""
    return in_double(quotient_in_range)(z, w) if z[0].type is F32 else quotient(z, w)


@in_double
def remainder(z: Element, w: Element) -> Element:
    """Return z - w q, where q is z / w with both parts truncated."""
    real, imaginary = smith_quotient(z, w)
    return minus(z, times(w, (trunc(real), trunc(imaginary))))


def maximum(z: Element, w: Element) -> Element:
    """Return the lexicographically larger (real part first); if there are NaNs, the first operand with one."""
    return _extremum("G", z, w)


def minimum(z: Element, w: Element) -> Element:
    """Return the lexicographically smaller (real part first); if there are NaNs, the first operand with one."""
    return _extremum("L", z, w)


def compared(direction: str, z: Element, w: Element) -> Expression:
    """Return the comparison as an i1: EQ and NE of both parts, LT, LE, GT and GE lexicographic, the real part first.

    A number with a NaN part compares unequal and unordered, as in NumPy. Source: StableHLO specification,
    "compare": complex elements are ordered lexicographically.
    """
    if direction in ("EQ", "NE"):
        parts = [compare("une" if direction == "NE" else "oeq", x, y) for x, y in zip(z, w, strict=True)]
        return parts[0] | parts[1] if direction == "NE" else parts[0] & parts[1]
    beyond = compare(f"o{direction[0].lower()}t", z[0], w[0]) & compare("ord", z[1], w[1])
    return beyond | (compare("oeq", z[0], w[0]) & compare(f"o{direction.lower()}", z[1], w[1]))


def _extremum(way: str, z: Element, w: Element) -> Element:
    first = compared(f"{way}E", z, w) | (is_nan(z[0]) | is_nan(z[1]))
    return select(first, z[0], w[0]), select(first, z[1], w[1])


# --- size and angle --------------------------------------------------------------------------------------------------


def absolute(z: Element) -> Expression:
    return hypot(*z)


@in_double
def sign(z: Element) -> Element:
    """Return z / |z|; 0 for 0, NaN in both parts if either is NaN or infinite."""
    unordered = any_of(*(~compare("olt", abs_(part), infinity(part.type)) for part in z))
    z, *_ = scaled(z)
    size = hypot(*z)
    zero = compare("oeq", size, 0)
    parts = [select(zero, 0, part / size) for part in z]
    return tuple(select(unordered, nan(size.type), part) for part in parts)


# --- exponentials and logarithms -------------------------------------------------------------------------------------


def _polar(size: Expression, angle: Expression) -> Element:
    return size * call(P.COS, angle), size * call(P.SIN, angle)


def _exp(z: Element) -> Element:
    x, y = z
    exponent, *factors = reduced_exponent(x)
    size = call(P.EXP, exponent)
    real, imaginary = _polar(size, y)
    size, real, imaginary = (_product(part, factors) for part in (size, real, imaginary))
    flat, wild = compare("oeq", y, 0), _is_wild(y)
    gone = compare("oeq", x, -infinity(x.type)) & wild
    real = select(gone, 0, select(flat, size, real))
    imaginary = select(gone, copysign(like(0, y), y), select(flat, y, imaginary))
    endless = compare("oeq", x, infinity(x.type)) & wild
    return select(endless, infinity(x.type), real), imaginary


def _product(x: Expression, factors: Iterable[Expression]) -> Expression:
    return reduce(operator.mul, factors, x)


def _is_wild(angle: Expression) -> Expression:
    """Return whether an angle is infinite or NaN."""
    return ~compare("olt", abs_(angle), infinity(angle.type))


def _is_infinite(part: Expression) -> Expression:
    return compare("oeq", abs_(part), infinity(part.type))


exp = in_double(_exp)


@in_double
def expm1(z: Element) -> Element:
    """Return exp(z) - 1, accurate near zero; real if z is real, infinities included."""
    x, y = z
    exponent, *factors = reduced_exponent(x)
    half = select(compare("oeq", exponent, x), call(P.SIN, 0.5 * y), 0)
    real = _product(call(P.EXPM1, exponent) * call(P.COS, y) - 2 * half * half, factors)
    flat, wild = compare("oeq", y, 0), _is_wild(y)
    real = select(flat | (wild & _is_infinite(x)), call(P.EXPM1, x), real)
    imaginary = select(flat, y, _product(call(P.EXP, exponent) * call(P.SIN, y), factors))
    gone = wild & compare("oeq", x, -infinity(x.type))
    return real, select(gone, copysign(like(0, y), y), imaginary)


def _log(z: Element) -> Element:
    """Return log z; near |z| = 1 the real part is computed from |z|^2 - 1."""
    x, y = z
    size_x, size_y = abs_(x), abs_(y)
    steep = compare("ogt", size_y, size_x)
    large, small = select(steep, size_y, size_x), select(steep, size_x, size_y)
    one = like(1, x)
    excess = (large - one) * (large + one) + small * small
    near = compare("olt", abs_(excess), 0.5)
    real = select(near, 0.5 * call(P.LOG1P, excess), log_hypot(x, y))
    return real, call(P.ATAN2, y, x)


log = in_double(_log)


@in_double
def log1p(z: Element) -> Element:
    """Return log(1 + z), accurate in the real part near z = 0 and near the circle |1 + z| = 1."""
    x, y = z
    one = like(1, x)
    squares = x * (2 + x) + y * y
    near = compare("olt", abs_(squares), 0.5)
    far = log_hypot(one + x, y)
    real = select(near, 0.5 * call(P.LOG1P, squares), far)
    return real, call(P.ATAN2, y, one + x)


@in_double
def logistic(z: Element) -> Element:
    """Return 1 / (1 + exp(-z)), computed from the exponential that does not overflow.

    Re(1 + exp(x + iy)) is computed as the sum of 1 - exp(x) and 2 exp(x) cos(y/2)^2, both non-negative.
    """
    left = compare("olt", z[0], 0)
    x, y = select(left, z[0], -z[0]), select(left, z[1], -z[1])
    small = _exp((x, y))
    one, zero = like(1, x), like(0, x)
    half, size = call(P.COS, 0.5 * y), call(P.EXP, x)
    divisor = select(compare("olt", size, 2.0**-60), one + small[0], 2 * size * half * half - call(P.EXPM1, x))
    numerator = (select(left, small[0], one), select(left, small[1], zero))
    return smith_quotient(numerator, (divisor, zero + small[1]))


@in_double
def power(z: Element, w: Element) -> Element:
    """Return exp(w log z); 1 if w = 0, and 0 if z = 0 and Re w > 0."""
    size, angle = _log(z)
    exponent = times(w, (size, angle))
    real, imaginary = _exp(exponent)
    one, zero = like(1, size), like(0, size)
    no_power = all_of(*(compare("oeq", part, zero) for part in w))
    no_number = all_of(*(compare("oeq", part, zero) for part in z)) & compare("ogt", w[0], zero)
    real = select(no_power, one, select(no_number, zero, real))
    return real, select(no_power | no_number, zero, imaginary)


# --- roots -----------------------------------------------------------------------------------------------------------


def _sqrt(z: Element) -> Element:
    x, y = z
    size_x, size_y = abs_(x), abs_(y)
    huge = compare("ogt", size_x, 2.0**1000) | compare("ogt", size_y, 2.0**1000)
    tiny = compare("olt", size_x, 2.0**-900) & compare("olt", size_y, 2.0**-900)
    scale = select(huge, 2.0**-40, select(tiny, like(2.0**100, x), 1))
    back = select(huge, 2.0**20, select(tiny, like(2.0**-50, x), 1))
    p, q = size_x * scale, size_y * scale
    root = sqrt(0.5 * (p + hypot(p, q)))
    other = q / (root + root)
    root, other = root * back, other * back
    right = ~compare("olt", x, 0)
    real, imaginary = select(right, root, other), copysign(select(right, other, root), y)
    zero = compare("oeq", x, 0) & compare("oeq", y, 0)
    real, imaginary = select(zero, 0, real), select(zero, y, imaginary)
    sideways = compare("oeq", size_y, infinity(y.type))
    endless = compare("oeq", size_x, infinity(x.type))
    bare = select(is_nan(y), y, 0)
    real = select(endless, select(right, infinity(x.type), bare), real)
    imaginary = select(endless, copysign(select(right, bare, infinity(x.type)), y), imaginary)
    return select(sideways, infinity(x.type), real), select(sideways, y, imaginary)


sqrt_ = in_double(_sqrt)


@in_double
def rsqrt(z: Element) -> Element:
    """Return 1 / sqrt(z); zero for infinities."""
    real, imaginary = _sqrt(z)
    infinite = any_of(*(compare("oeq", abs_(part), infinity(part.type)) for part in (real, imaginary)))
    inverse = smith_quotient((like(1, real), like(0, real)), (real, imaginary))
    zero = copysign(like(0, real), real), copysign(like(0, real), -imaginary)
    return select(infinite, zero[0], inverse[0]), select(infinite, zero[1], inverse[1])


@in_double
def cbrt(z: Element) -> Element:
    """Return the principal cube root; huge and tiny numbers are scaled by 1/8 and 2^60."""
    size = abs_(z[0]) + abs_(z[1])
    huge, tiny = compare("ogt", size, 2.0**1000), compare("olt", size, 2.0**-900)
    scale, back = (select(huge, a, select(tiny, like(b, size), 1)) for a, b in ((0.125, 2.0**60), (2.0, 2.0**-20)))
    root = call(P.CBRT, hypot(z[0] * scale, z[1] * scale)) * back
    return _polar(root, call(P.ATAN2, z[1], z[0]) / 3)


# --- trigonometric and hyperbolic functions --------------------------------------------------------------------------


def _sinh(z: Element) -> Element:
    x, y = z
    exponent, *factors = reduced_exponent(abs_(x))
    real = _product(call(P.SINH, copysign(exponent, x)) * call(P.COS, y), factors)
    imaginary = _product(call(P.COSH, exponent) * call(P.SIN, y), factors)
    flat, wild = compare("oeq", y, 0), _is_wild(y)
    real = select(wild & compare("oeq", x, 0), x, select(wild & _is_infinite(x), infinity(x.type), real))
    return select(flat, call(P.SINH, x), real), select(flat, y, imaginary)


def _cosh(z: Element) -> Element:
    x, y = z
    exponent, *factors = reduced_exponent(abs_(x))
    real = _product(call(P.COSH, exponent) * call(P.COS, y), factors)
    imaginary = _product(call(P.SINH, copysign(exponent, x)) * call(P.SIN, y), factors)
    flat, wild = compare("oeq", y, 0), _is_wild(y)
    side = select(is_nan(x), 1, copysign(like(1, x), x))
    zero = copysign(like(0, x), side * copysign(like(1, y), y))
    real = select(wild & _is_infinite(x), infinity(x.type), real)
    imaginary = select(wild & compare("oeq", x, 0), 0, imaginary)
    return select(flat, call(P.COSH, x), real), select(flat, zero, imaginary)


def _tanh(z: Element) -> Element:
    """Return tanh z = (beta rho s + i t) / (1 + beta s^2), t = tan y, s = sinh x (Kahan, "Branch cuts")."""
    x, y = z
    one = like(1, x)
    t, s = call(P.TAN, y), call(P.SINH, x)
    beta, rho = one + t * t, sqrt(one + s * s)
    divisor = one + beta * s * s
    steep = compare("oeq", abs_(t), infinity(t.type))
    real, imaginary = beta * rho * s / divisor, t / divisor
    real, imaginary = select(steep, rho / s, real), select(steep, one / t, imaginary)
    size = abs_(x)
    far, wild, infinite = compare("ogt", size, 22), _is_wild(y), _is_infinite(x)
    product = 4 * call(P.SIN, y) * call(P.COS, y)
    faint = product * call(P.EXP, -2 * size)
    faint = select(infinite, copysign(like(0, x), select(wild, y, product)), faint)
    real, imaginary = select(far, copysign(one, x), real), select(far, faint, imaginary)
    known = infinite | compare("oeq", x, 0)  # the real part, whatever the angle
    real = select(wild, select(known, select(infinite, real, x), nan(x.type)), real)
    return real, select(compare("oeq", y, 0), y, imaginary)


def _turned(function: Function) -> Function:
    """Return z -> -i f(i z)."""

    def inner(z: Element) -> Element:
        real, imaginary = function((-z[1], z[0]))
        return imaginary, -real

    return inner


sinh, cosh, tanh = in_double(_sinh), in_double(_cosh), in_double(_tanh)
tan = in_double(_turned(_tanh))
cos = in_double(lambda z: _cosh((-z[1], z[0])))


@in_double
def sin(z: Element) -> Element:
    """Return -i sinh(i z); the imaginary part of an infinite result is positive."""
    real, imaginary = _turned(_sinh)(z)
    return real, select(_is_wild(z[0]) & _is_infinite(z[1]), infinity(real.type), imaginary)


@in_double
def atan2(y: Element, x: Element) -> Element:
    """Return -i log((x + iy) / sqrt(x^2 + y^2)), as StableHLO's reference interpreter does; unspecified otherwise."""
    turned = (x[0] - y[1], x[1] + y[0])
    real, imaginary = _log(smith_quotient(turned, _sqrt(plus(times(x, x), times(y, y)))))
    return imaginary, -real
