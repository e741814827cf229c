"""Complex functions at one point, with C99's branch cuts and NumPy's association.

An element is (real part, imaginary part). Sums and products are those of the parts; every other function of
complex<f32> computes in f64 and rounds each part once, which also keeps it from overflowing on the way.
"""

from __future__ import annotations

from collections.abc import Callable

from spmd.analysis.scalar.build import (
    abs_,
    add,
    all_of,
    and_,
    any_of,
    call,
    compare,
    copysign,
    div,
    extend,
    infinity,
    is_nan,
    like,
    mul,
    nan,
    neg,
    not_,
    or_,
    select,
    shorten,
    sqrt,
    sub,
    trunc,
)
from spmd.analysis.scalar.elements import Element
from spmd.analysis.scalar.expression import F32, Expression, Primitive

Function = Callable[..., Element]

P = Primitive


def in_double(function: Function) -> Function:
    """A function that computes complex<f32> in f64."""

    def made(*operands: Element) -> Element:
        if operands[0][0].type is not F32:
            return function(*operands)
        return tuple(map(shorten, function(*(tuple(map(extend, operand)) for operand in operands))))

    return made


# --- arithmetic ------------------------------------------------------------------------------------------------------


def plus(z: Element, w: Element) -> Element:
    return add(z[0], w[0]), add(z[1], w[1])


def minus(z: Element, w: Element) -> Element:
    return sub(z[0], w[0]), sub(z[1], w[1])


def times(z: Element, w: Element) -> Element:
    return sub(mul(z[0], w[0]), mul(z[1], w[1])), add(mul(z[0], w[1]), mul(z[1], w[0]))


def negative(z: Element) -> Element:
    return neg(z[0]), neg(z[1])


def conjugate(z: Element) -> Element:
    return z[0], neg(z[1])


def square(z: Element) -> Element:
    """((x - y)(x + y), 2xy)."""
    x, y = z
    return mul(sub(x, y), add(x, y)), mul(like(2, x), mul(x, y))


def _quotient(z: Element, w: Element) -> Element:
    """By the larger part of the divisor (Smith's algorithm)."""
    (a, b), (c, d) = z, w
    steep = not_(compare("oge", abs_(c), abs_(d)))
    large, small = select(steep, d, c), select(steep, c, d)
    ratio = div(small, large)
    scale = div(like(1, c), add(large, mul(small, ratio)))
    real = mul(select(steep, add(mul(a, ratio), b), add(a, mul(b, ratio))), scale)
    imaginary = mul(select(steep, sub(mul(b, ratio), a), sub(b, mul(a, ratio))), scale)
    zero = and_(compare("oeq", c, like(0, c)), compare("oeq", d, like(0, d)))
    return select(zero, div(a, abs_(c)), real), select(zero, div(b, abs_(c)), imaginary)


divide = in_double(_quotient)


@in_double
def remainder(z: Element, w: Element) -> Element:
    """z - w q, where q is z / w with both parts rounded towards zero."""
    real, imaginary = _quotient(z, w)
    return minus(z, times(w, (trunc(real), trunc(imaginary))))


def maximum(z: Element, w: Element) -> Element:
    """The larger by the real part, then by the imaginary part; an operand with NaN, the first one before."""
    return _extremum("g", z, w)


def minimum(z: Element, w: Element) -> Element:
    """The smaller by the real part, then by the imaginary part; an operand with NaN, the first one before."""
    return _extremum("l", z, w)


def _extremum(way: str, z: Element, w: Element) -> Element:
    beyond = and_(compare(f"o{way}t", z[0], w[0]), compare("ord", z[1], w[1]))
    tied = and_(compare("oeq", z[0], w[0]), compare(f"o{way}e", z[1], w[1]))
    first = or_(or_(beyond, tied), or_(is_nan(z[0]), is_nan(z[1])))
    return select(first, z[0], w[0]), select(first, z[1], w[1])


# --- size and angle --------------------------------------------------------------------------------------------------


def hypot(x: Expression, y: Expression) -> Expression:
    """sqrt(x^2 + y^2) without overflow, within an ULP; infinity wherever a part is."""
    x, y = abs_(x), abs_(y)
    swapped = compare("ogt", y, x)
    large, small = select(swapped, y, x), select(swapped, x, y)
    high, low, by = (2.0**60, 2.0**-50, 2.0**80) if x.type is F32 else (2.0**500, 2.0**-450, 2.0**600)
    is_high, is_low = compare("ogt", large, like(high, x)), compare("olt", large, like(low, x))
    scale = select(is_low, like(by, x), select(is_high, like(1 / by, x), like(1, x)))
    back = select(is_low, like(1 / by, x), select(is_high, like(by, x), like(1, x)))
    p, q = mul(large, scale), mul(small, scale)
    length = mul(sqrt(add(mul(p, p), mul(q, q))), back)
    infinite = or_(compare("oeq", x, infinity(x.type)), compare("oeq", y, infinity(x.type)))
    return select(infinite, infinity(x.type), length)


def absolute(z: Element) -> Expression:
    return hypot(*z)


@in_double
def sign(z: Element) -> Element:
    """z / |z|; 0 for 0, NaN in both parts if either is NaN or infinite."""
    size = hypot(*z)
    unordered = any_of(is_nan(z[0]), is_nan(z[1]), compare("oeq", size, infinity(size.type)))
    zero = compare("oeq", size, like(0, size))
    parts = [select(zero, like(0, part), div(part, size)) for part in z]
    return tuple(select(unordered, nan(size.type), part) for part in parts)


# --- exponentials and logarithms -------------------------------------------------------------------------------------


def _polar(size: Expression, angle: Expression) -> Element:
    return mul(size, call(P.COS, angle)), mul(size, call(P.SIN, angle))


def _exp(z: Element) -> Element:
    x, y = z
    size = call(P.EXP, x)
    real, imaginary = _polar(size, y)
    none = compare("oeq", size, like(0, x))  # whatever the angle
    flat = compare("oeq", y, like(0, y))
    finite_angle = compare("olt", abs_(y), infinity(y.type))
    gone = and_(none, not_(finite_angle))
    real = select(gone, like(0, x), select(flat, size, real))
    imaginary = select(gone, like(0, x), select(flat, y, imaginary))
    endless = and_(compare("oeq", x, infinity(x.type)), not_(finite_angle))
    return select(endless, infinity(x.type), real), imaginary


exp = in_double(_exp)


@in_double
def expm1(z: Element) -> Element:
    """exp(z) - 1, accurate near zero; real where z is, infinity included."""
    x, y = z
    half = call(P.SIN, mul(like(0.5, y), y))
    real = sub(mul(call(P.EXPM1, x), call(P.COS, y)), mul(mul(like(2, x), half), half))
    flat = compare("oeq", y, like(0, y))
    real = select(flat, call(P.EXPM1, x), real)
    return real, select(flat, y, mul(call(P.EXP, x), call(P.SIN, y)))


def _log(z: Element) -> Element:
    """log |z|, which near |z| = 1 is taken from |z|^2 - 1."""
    x, y = z
    size_x, size_y = abs_(x), abs_(y)
    steep = compare("ogt", size_y, size_x)
    large, small = select(steep, size_y, size_x), select(steep, size_x, size_y)
    one = like(1, x)
    excess = add(mul(sub(large, one), add(large, one)), mul(small, small))
    near = compare("olt", abs_(excess), like(0.5, x))
    real = select(near, mul(like(0.5, x), call(P.LOG1P, excess)), call(P.LOG, hypot(x, y)))
    return real, call(P.ATAN2, y, x)


log = in_double(_log)


@in_double
def log1p(z: Element) -> Element:
    """log(1 + z); the real part keeps its accuracy near z = 0 and on the circle |1 + z| = 1."""
    x, y = z
    one = like(1, x)
    squares = add(mul(x, add(like(2, x), x)), mul(y, y))
    near = compare("olt", abs_(squares), like(0.5, x))
    far = call(P.LOG, hypot(add(one, x), y))
    real = select(near, mul(like(0.5, x), call(P.LOG1P, squares)), far)
    return real, call(P.ATAN2, y, add(one, x))


@in_double
def logistic(z: Element) -> Element:
    """1 / (1 + exp(-z)), from the side on which the exponential stays small."""
    left = compare("olt", z[0], like(0, z[0]))
    small = _exp((select(left, z[0], neg(z[0])), select(left, z[1], neg(z[1]))))
    one, zero = like(1, z[0]), like(0, z[0])
    numerator = (select(left, small[0], one), select(left, small[1], zero))
    return _quotient(numerator, (add(one, small[0]), small[1]))


@in_double
def power(z: Element, w: Element) -> Element:
    """exp(w log z); 1 for w = 0, and 0 for z = 0 where Re w > 0."""
    size, angle = _log(z)
    exponent = times(w, (size, angle))
    real, imaginary = _exp(exponent)
    one, zero = like(1, size), like(0, size)
    no_power = all_of(*(compare("oeq", part, zero) for part in w))
    no_number = and_(all_of(*(compare("oeq", part, zero) for part in z)), compare("ogt", w[0], zero))
    real = select(no_power, one, select(no_number, zero, real))
    return real, select(or_(no_power, no_number), zero, imaginary)


# --- roots -----------------------------------------------------------------------------------------------------------


def _sqrt(z: Element) -> Element:
    x, y = z
    size_x, size_y = abs_(x), abs_(y)
    huge = or_(compare("ogt", size_x, like(2.0**1000, x)), compare("ogt", size_y, like(2.0**1000, x)))
    tiny = and_(compare("olt", size_x, like(2.0**-900, x)), compare("olt", size_y, like(2.0**-900, x)))
    scale = select(huge, like(2.0**-40, x), select(tiny, like(2.0**100, x), like(1, x)))
    back = select(huge, like(2.0**20, x), select(tiny, like(2.0**-50, x), like(1, x)))
    p, q = mul(size_x, scale), mul(size_y, scale)
    root = sqrt(mul(like(0.5, x), add(p, hypot(p, q))))
    other = div(q, add(root, root))
    root, other = mul(root, back), mul(other, back)
    right = not_(compare("olt", x, like(0, x)))
    real, imaginary = select(right, root, other), copysign(select(right, other, root), y)
    zero = and_(compare("oeq", x, like(0, x)), compare("oeq", y, like(0, y)))
    real, imaginary = select(zero, like(0, x), real), select(zero, y, imaginary)
    sideways = compare("oeq", size_y, infinity(y.type))
    endless = compare("oeq", size_x, infinity(x.type))
    bare = select(is_nan(y), y, like(0, x))
    real = select(endless, select(right, infinity(x.type), bare), real)
    imaginary = select(endless, copysign(select(right, bare, infinity(x.type)), y), imaginary)
    return select(sideways, infinity(x.type), real), select(sideways, y, imaginary)


sqrt_ = in_double(_sqrt)


@in_double
def rsqrt(z: Element) -> Element:
    """1 / sqrt(z); a zero for all infinities."""
    real, imaginary = _sqrt(z)
    infinite = any_of(*(compare("oeq", abs_(part), infinity(part.type)) for part in (real, imaginary)))
    inverse = _quotient((like(1, real), like(0, real)), (real, imaginary))
    zero = copysign(like(0, real), real), copysign(like(0, real), neg(imaginary))
    return select(infinite, zero[0], inverse[0]), select(infinite, zero[1], inverse[1])


@in_double
def cbrt(z: Element) -> Element:
    """The principal cube root."""
    size = call(P.CBRT, hypot(*z))
    return _polar(size, div(call(P.ATAN2, z[1], z[0]), like(3, size)))


# --- trigonometric and hyperbolic functions --------------------------------------------------------------------------


def _sinh(z: Element) -> Element:
    x, y = z
    real, imaginary = mul(call(P.SINH, x), call(P.COS, y)), mul(call(P.COSH, x), call(P.SIN, y))
    flat = compare("oeq", y, like(0, y))
    return select(flat, call(P.SINH, x), real), select(flat, y, imaginary)


def _cosh(z: Element) -> Element:
    x, y = z
    real, imaginary = mul(call(P.COSH, x), call(P.COS, y)), mul(call(P.SINH, x), call(P.SIN, y))
    flat = compare("oeq", y, like(0, y))
    zero = copysign(like(0, x), mul(copysign(like(1, x), x), copysign(like(1, y), y)))
    return select(flat, call(P.COSH, x), real), select(flat, zero, imaginary)


def _tanh(z: Element) -> Element:
    """(beta rho s + i t) / (1 + beta s^2) with t = tan y, s = sinh x (Kahan, "Branch cuts")."""
    x, y = z
    one = like(1, x)
    t, s = call(P.TAN, y), call(P.SINH, x)
    beta, rho = add(one, mul(t, t)), sqrt(add(one, mul(s, s)))
    divisor = add(one, mul(mul(beta, s), s))
    steep = compare("oeq", abs_(t), infinity(t.type))
    real, imaginary = div(mul(mul(beta, rho), s), divisor), div(t, divisor)
    real, imaginary = select(steep, div(rho, s), real), select(steep, div(one, t), imaginary)
    size = abs_(x)
    far = compare("ogt", size, like(22, x))
    product = mul(mul(like(4, x), call(P.SIN, y)), call(P.COS, y))
    faint = mul(product, call(P.EXP, mul(like(-2, x), size)))
    faint = select(compare("oeq", size, infinity(x.type)), copysign(like(0, x), product), faint)
    return select(far, copysign(one, x), real), select(far, faint, imaginary)


def _turned(function: Function) -> Function:
    """-i f(i z)."""

    def made(z: Element) -> Element:
        real, imaginary = function((neg(z[1]), z[0]))
        return imaginary, neg(real)

    return made


sinh, cosh, tanh = in_double(_sinh), in_double(_cosh), in_double(_tanh)
sin, tan = in_double(_turned(_sinh)), in_double(_turned(_tanh))
cos = in_double(lambda z: _cosh((neg(z[1]), z[0])))


@in_double
def atan2(y: Element, x: Element) -> Element:
    """-i log((x + iy) / sqrt(x^2 + y^2)) (reference interpreter; the specification leaves complex atan2 open)."""
    turned = (sub(x[0], y[1]), add(x[1], y[0]))
    real, imaginary = _log(_quotient(turned, _sqrt(plus(times(x, x), times(y, y)))))
    return imaginary, neg(real)
