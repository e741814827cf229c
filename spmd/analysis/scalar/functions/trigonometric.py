"""sin, cos, tan: minimax polynomials on |r| <= pi/4 of the reduced angle (functions/reduction.py)."""

from __future__ import annotations

from spmd.analysis.scalar.build import (
    abs_,
    bits_of,
    compare,
    extend,
    float_of,
    fma,
    mask,
    polynomial,
    rarely,
    select,
    shift_left,
    shorten,
)
from spmd.analysis.scalar.expression import F32, Expression, Primitive
from spmd.analysis.scalar.functions.reduction import Angle, large_angle, largest_small, small_angle
from spmd.analysis.scalar.functions.table import define

#: (sin r - r) / r^3 and (cos r - 1 + r^2 / 2) / r^4 in r^2.
_SINGLE_SIN = (2.826228865160374e-06, -0.00019852556579280645, 0.008333378471434116, -0.1666666716337204)
_SINGLE_COS = (2.4430086341453716e-05, -0.0013887297827750444, 0.04166664555668831)
_DOUBLE_SIN = (
    1.589296658860715e-10, -2.505069256241366e-08, 2.7557313276596222e-06, -0.00019841269828620511,
    0.008333333333320942, -0.16666666666666627,
)  # fmt: skip
_DOUBLE_COS = (
    -1.1356265509010669e-11, 2.0875657554460744e-09, -2.755731386545134e-07, 2.480158728778281e-05,
    -0.0013888888888871375, 0.04166666666666658,
)  # fmt: skip


def _sine(angle: Angle) -> Expression:
    r = angle.rest
    square = r * r
    cubic = r * square * polynomial(square, _SINGLE_SIN if r.type is F32 else _DOUBLE_SIN)
    return r + (cubic if angle.low is None else cubic + angle.low)


def _cosine(angle: Angle) -> Expression:
    r = angle.rest
    square = r * r
    quartic = square * square * polynomial(square, _SINGLE_COS if r.type is F32 else _DOUBLE_COS)
    if angle.low is not None:
        quartic = fma(-r, angle.low, quartic)
    half = 0.5 * square
    head = 1 - half
    return head + (1 - head - half + quartic)


def _of_angle(angle: Angle, quarter: int) -> Expression:
    """Return sin(angle + quarter pi/2)."""
    quadrant = angle.quadrant + quarter if quarter else angle.quadrant
    odd = compare("ne", mask(quadrant, 1), 0)
    value = select(odd, _cosine(angle), _sine(angle))
    sign = shift_left(mask(quadrant, 2), quadrant.type.bits - 2)
    return float_of(bits_of(value) ^ sign)


def _large(x: Expression) -> Expression:
    """Return whether x is too large for `small_angle`; infinity is."""
    return compare("ogt", abs_(x), largest_small(x))


@define(Primitive.SIN)
def sin(x: Expression) -> Expression:
    value = rarely(_large(x), _of_angle(large_angle(x), 0), _of_angle(small_angle(x), 0))
    return select(compare("oeq", x, 0), x, value)


@define(Primitive.COS)
def cos(x: Expression) -> Expression:
    return rarely(_large(x), _of_angle(large_angle(x), 1), _of_angle(small_angle(x), 1))


def _tangent(angle: Angle) -> Expression:
    odd = compare("ne", mask(angle.quadrant, 1), 0)
    sine, cosine = _sine(angle), _cosine(angle)
    return select(odd, -cosine, sine) / select(odd, sine, cosine)


@define(Primitive.TAN)
def tan(x: Expression) -> Expression:
    """Return tan(x), for f32 computed in f64."""
    wide = extend(x)
    value = rarely(_large(wide), _tangent(large_angle(wide)), _tangent(small_angle(wide)))
    return select(compare("oeq", x, 0), x, shorten(value) if x.type is F32 else value)
