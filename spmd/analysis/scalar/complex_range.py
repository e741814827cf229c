"""Building blocks of complex functions of f64 whose intermediate results may leave the range of f64.

Functions of complex<f32> are computed in f64, where none does. Source: C99, Annex G.5.1, for quotients of infinities
by zero.
"""

from __future__ import annotations

import math

from spmd.analysis.scalar.build import (
    abs_,
    any_of,
    call,
    compare,
    copysign,
    infinity,
    is_nan,
    like,
    rarely,
    select,
    sqrt,
)
from spmd.analysis.scalar.elements import Element
from spmd.analysis.scalar.expression import F32, Expression, Primitive

#: Exponents above the limit are reduced by a step, at most twice.
EXPONENT_LIMIT, EXPONENT_STEP = 709.5, 640.0
#: Numbers beyond these are scaled by a power of two.
HUGE, TINY = 2.0**1000, 2.0**-900
SHRINK, GROW = 2.0**-100, 2.0**200


def reduced_exponent(x: Expression) -> tuple[Expression, Expression, Expression]:
    """Return (y, p, q) with exp(x) = exp(y) p q, where y is x or at least 69."""
    factors = []
    for _ in range(2):
        beyond = compare("ogt", x, EXPONENT_LIMIT)
        x = x - select(beyond, like(EXPONENT_STEP, x), 0)
        factors.append(select(beyond, like(math.exp(EXPONENT_STEP), x), 1))
    return x, factors[0], factors[1]


def hypot(x: Expression, y: Expression) -> Expression:
    """Return sqrt(x^2 + y^2) without overflow, within an ULP; infinity if either is infinite."""
    x, y = abs_(x), abs_(y)
    swapped = compare("ogt", y, x)
    large, small = select(swapped, y, x), select(swapped, x, y)
    high, low, by = (2.0**60, 2.0**-50, 2.0**80) if x.type is F32 else (2.0**500, 2.0**-450, 2.0**600)
    is_high, is_low = compare("ogt", large, high), compare("olt", large, low)
    scale = select(is_low, by, select(is_high, like(1 / by, x), 1))
    back = select(is_low, 1 / by, select(is_high, like(by, x), 1))
    p, q = large * scale, small * scale
    length = sqrt(p * p + q * q) * back
    infinite = compare("oeq", x, infinity(x.type)) | compare("oeq", y, infinity(x.type))
    return select(infinite, infinity(x.type), length)


def scaled(z: Element) -> tuple[Element, Expression, Expression]:
    """Return (w, huge, tiny), where w is z times SHRINK if it is huge, times GROW if it is tiny, else z.

    |w| is a normal number if z is finite and not zero.
    """
    size = _larger(z)
    huge, tiny = compare("ogt", size, HUGE), compare("olt", size, TINY)
    scale = select(huge, SHRINK, select(tiny, like(GROW, size), 1))
    return (z[0] * scale, z[1] * scale), huge, tiny


def log_hypot(x: Expression, y: Expression) -> Expression:
    """Return log sqrt(x^2 + y^2) without overflow or underflow."""
    (p, q), huge, tiny = scaled((x, y))
    back = select(huge, -math.log(SHRINK), select(tiny, like(-math.log(GROW), x), 0))
    return call(Primitive.LOG, hypot(p, q)) + back


def smith_quotient(z: Element, w: Element) -> Element:
    """Return z / w by Smith's algorithm, which divides by the larger part of w."""
    (a, b), (c, d) = z, w
    steep = ~compare("oge", abs_(c), abs_(d))
    large, small = select(steep, d, c), select(steep, c, d)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    real = select(steep, a * ratio + b, a + b * ratio) * scale
    imaginary = select(steep, b * ratio - a, b - a * ratio) * scale
    zero = compare("oeq", c, 0) & compare("oeq", d, 0)
    return select(zero, a / c, real), select(zero, b / c, imaginary)


def quotient(z: Element, w: Element) -> Element:
    """Return z / w without intermediate overflow, with C99's infinities and zeros."""
    plain = smith_quotient(z, w)
    (p, huge_p, tiny_p), (q, huge_q, tiny_q) = scaled(z), scaled(w)
    by_q = select(huge_q, SHRINK, select(tiny_q, like(GROW, q[0]), 1))
    by_p = select(huge_p, 1 / SHRINK, select(tiny_p, like(1 / GROW, p[0]), 1))
    steps = tuple(part * by_q * by_p for part in smith_quotient(p, q))
    careful = with_infinities(z, w, (steps[0], steps[1]))
    odd = any_of(huge_p, tiny_p, huge_q, tiny_q, *map(is_nan, plain))
    return rarely(odd, careful[0], plain[0]), rarely(odd, careful[1], plain[1])


def quotient_in_range(z: Element, w: Element) -> Element:
    """Return `quotient` for operands whose intermediate results are in range."""
    plain = smith_quotient(z, w)
    careful = with_infinities(z, w, plain)
    odd = any_of(*map(is_nan, plain))
    return rarely(odd, careful[0], plain[0]), rarely(odd, careful[1], plain[1])


def with_infinities(z: Element, w: Element, result: Element) -> Element:
    """Return `result`, the quotient z / w, corrected to infinity or zero if both its parts are NaN.

    Applies if one of z and w is infinite or w is zero.
    """
    lost = is_nan(result[0]) & is_nan(result[1])
    endless_z, endless_w = (any_of(*map(_is_infinite, each)) for each in (z, w))
    finite_z, finite_w = ((_is_finite(each[0]) & _is_finite(each[1])) for each in (z, w))
    parts = result
    for chosen, (e, f), (g, h), size in (
        (endless_z & finite_w, _corner(z), w, math.inf),
        (finite_z & endless_w, z, _corner(w), 0.0),
    ):
        limits = (e * g + f * h) * size, (f * g - e * h) * size
        parts = tuple(select(lost & chosen, limit, part) for limit, part in zip(limits, parts, strict=True))
    return parts


def _corner(z: Element) -> Element:
    """Return 1 for an infinite part and 0 for any other, with its sign."""
    return tuple(copysign(select(_is_infinite(part), like(1, part), 0), part) for part in z)


def _is_infinite(part: Expression) -> Expression:
    return compare("oeq", abs_(part), infinity(part.type))


def _is_finite(part: Expression) -> Expression:
    return compare("olt", abs_(part), infinity(part.type))


def _larger(z: Element) -> Expression:
    """Return the size of the larger part; if both are NaN, of the first."""
    sizes = abs_(z[0]), abs_(z[1])
    return select(compare("ogt", sizes[1], sizes[0]), sizes[1], sizes[0])
