"""Argument reduction of angles: x = k pi/2 + r with |r| <= pi/4, to full precision of r.

Up to some size k pi/2 is subtracted in three parts (Cody and Waite): the first product differs from x exactly, and
where the two nearly cancel, so does the second. Above, 2/pi is split into pieces short enough that each product with x
is exact, multiples of a full turn are dropped from each, and the rest is summed with its errors (Payne and Hanek).
"""

from __future__ import annotations

from dataclasses import dataclass

from spmd.analysis.scalar.build import (
    bits_of,
    extend,
    float_of,
    fma,
    like,
    mask,
    rint,
    shift_left,
    shift_right,
    shorten,
    smax,
    table,
    truncate,
    udiv,
    zero_extend,
)
from spmd.analysis.scalar.expression import F32, F64, I32, I64, Expression, constant

_TWO_OVER_PI = 0.6366197723675814
_SINGLE_PARTS = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_DOUBLE_PARTS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)


@dataclass(frozen=True)
class Angle:
    """A quadrant (an integer modulo 4) and the angle within it, in f64 with its rounding error `low`."""

    quadrant: Expression
    rest: Expression
    low: Expression | None


def largest_small(x: Expression) -> float:
    """Return the largest |x| that `small_angle` accepts."""
    return 3e4 if x.type is F32 else 1e5


def _rounded(x: Expression) -> tuple[Expression, Expression]:
    """Return the integer nearest to a small float, as an integer and as a float."""
    rounder = like(1.5 * 2.0 ** (23 if x.type is F32 else 52), x)
    shifted = x + rounder
    return bits_of(shifted) - bits_of(rounder), shifted - rounder


def small_angle(x: Expression) -> Angle:
    quadrant, turns = _rounded(x * _TWO_OVER_PI)
    first, second, third = (like(-part, x) for part in (_SINGLE_PARTS if x.type is F32 else _DOUBLE_PARTS))
    exact = fma(turns, first, x)
    if x.type is F32:
        return Angle(quadrant, fma(turns, third, fma(turns, second, exact)), None)
    product = turns * second
    near, error = _two_sum(exact, product)
    low = error + fma(turns, third, fma(turns, second, -product))
    rest = near + low
    return Angle(quadrant, rest, near - rest + low)


def large_angle(x: Expression) -> Angle:
    if x.type is F32:
        wide = extend(x)
        pieces = _pieces(24, 9)
        terms = [wide * (piece * 2.0 ** (-24 * (at + 1))) for at, piece in enumerate(pieces)]
    else:
        terms = _double_terms(x)
    high, middle, low = _sum_of_parts(terms)
    quadrant, turns = _rounded(high)
    fraction = high - turns
    rest = fraction + middle
    lost = middle - (rest - fraction) + low
    right_angle, right_angle_low = (constant(part, F64) for part in _DOUBLE_PARTS[:2])
    angle = rest * right_angle
    angle_low = fma(rest, right_angle, -angle)
    angle_low = angle_low + fma(rest, right_angle_low, lost * right_angle)
    if x.type is F64:
        return Angle(quadrant, angle, angle_low)
    return Angle(truncate(quadrant, I32), shorten(angle), None)


def _sum_of_parts(terms: list[Expression]) -> tuple[Expression, Expression, Expression]:
    """Return the sum of `terms`, each modulo 4, as a sum of three floats of decreasing size."""
    high = middle = low = constant(0, F64)
    quarter = constant(0.25, F64)
    for term in terms:
        part = fma(-4, rint(term * quarter), term)
        high, error = _two_sum(high, part)
        middle, error = _two_sum(middle, error)
        low = low + error
    high, error = _two_sum(high, middle)
    return high, error, low


def _two_sum(x: Expression, y: Expression) -> tuple[Expression, Expression]:
    """Return x + y rounded, and its rounding error."""
    total = x + y
    part = total - x
    return total, x - (total - part) + (y - part)


#: Bits of a piece of 2/pi that is multiplied by half an f64, and the number of pieces that matter to one x.
_PIECE, _WINDOW = 26, 8


def _double_terms(x: Expression) -> list[Expression]:
    """Return products of x with the pieces of 2/pi that are neither full turns nor negligible."""
    exponent = truncate(mask(shift_right(bits_of(x), 52), 0x7FF) - (1023 + 54), I32)
    first = udiv(smax(exponent, constant(0, I32)), constant(_PIECE, I32))
    power = 1023 - first * _PIECE
    scaled = x * float_of(shift_left(zero_extend(power, I64), 52))
    head = float_of(mask(bits_of(scaled), ~((1 << 27) - 1) & (1 << 64) - 1))
    tail = scaled - head
    pieces = tuple(float(piece) for piece in _pieces(_PIECE, 1024 // _PIECE + _WINDOW))
    terms = []
    for at in range(_WINDOW):
        piece = table(first + at, pieces, F64) * (2.0 ** (-_PIECE * (at + 1)))
        terms += [head * piece, tail * piece]
    return terms


def _pieces(bits: int, count: int) -> list[int]:
    """Return 2/pi cut into `count` integers of `bits` bits."""
    total = bits * count
    whole = _two_over_pi(total)
    return [whole >> (total - bits * (at + 1)) & (1 << bits) - 1 for at in range(count)]


def _two_over_pi(bits: int) -> int:
    """Return 2/pi 2^bits, rounded down; pi is computed by Machin's formula."""
    guard = bits + 64

    def arctangent_of_inverse(n: int) -> int:
        power = total = (1 << guard) // n
        sign, divisor = -1, 3
        while power:
            power //= n * n
            total += sign * (power // divisor)
            sign, divisor = -sign, divisor + 2
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return (2 << (guard + bits)) // pi
