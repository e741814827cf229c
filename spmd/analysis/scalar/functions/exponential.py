"""exp, expm1 and functions based on them: logistic, tanh, sinh, cosh.

With k the integer nearest to x / log 2 and r = x - k log 2, exp(x) is 2^k exp(r). exp(r) - 1 is r + r^2 Q(r), Q
the minimax polynomial on |r| <= log(2) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from spmd.analysis.scalar.build import (
    abs_,
    bits_of,
    compare,
    copysign,
    float_of,
    fma,
    infinity,
    like,
    polynomial,
    rarely,
    rint,
    select,
    shift_left,
    shift_right,
    to_integer,
)
from spmd.analysis.scalar.expression import F32, Expression, MachineType, Primitive
from spmd.analysis.scalar.functions.table import by_width, define

_LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class _Format:
    """Constants of the exponential of a float type.

    `rounder` has an ULP of 1, so that adding it rounds to integers; log 2 is the sum of `log_2`. `lowest` and `highest`
    are just beyond where the result is zero and infinity, `normal` just within where it is a normal number,
    `minus_one` is where exp(x) - 1 is -1. `infinite` holds the least numbers whose exponential, and half of it,
    overflow.
    """

    rounder: float
    log_2: tuple[float, float]
    coefficients: tuple[float, ...]
    mantissa: int
    bias: int
    lowest: float
    normal: float
    highest: float
    minus_one: float
    infinite: tuple[float, float]


_SINGLE = _Format(
    1.5 * 2**23,
    (0.693145751953125, 1.428606765330187e-06),
    (
        0.0001502597879152745, 0.0013929979177191854, 0.008341511711478233, 0.041666511446237564, 0.16666635870933533,
        0.5,
    ),
    23,
    127,
    -104.0,
    -87.25,
    89.0,
    -18.0,
    (88.72283935546875, 89.4159927368164),
)  # fmt: skip
_DOUBLE = _Format(
    1.5 * 2**52,
    (0.6931471805599453, 2.3190468138462996e-17),
    (
        2.5052829680674778e-08, 2.7626173254127036e-07, 2.755741076945525e-06, 2.4801504950061895e-05,
        0.00019841269715298044, 0.001388888893181689, 0.008333333333391198, 0.04166666666657606, 0.16666666666666588,
        0.5000000000000006,
    ),
    52,
    1023,
    -746.0,
    -708.25,
    710.0,
    -38.0,
    (709.7827128933841, 710.475860073944),
)  # fmt: skip


def _format(type: MachineType) -> _Format:
    return _SINGLE if type is F32 else _DOUBLE


def _reduced(x: Expression, *, parts: int = 2) -> tuple[Expression, Expression]:
    """Return a float whose last bits are k, and exp(r) - 1, with log 2 as one or two parts."""
    form = _format(x.type)
    rounder = like(form.rounder, x)
    shifted = fma(x, like(_LOG2_E, x), rounder)
    k = shifted - rounder
    if parts == 1:
        r = fma(k, like(-log(2), x), x)
    else:
        r = fma(k, like(-form.log_2[1], x), fma(k, like(-form.log_2[0], x), x))
    excess = fma(r * r, polynomial(r, form.coefficients), r)
    return shifted, excess


def _whole(shifted: Expression) -> Expression:
    """Return k as an integer."""
    return bits_of(shifted) - bits_of(like(_format(shifted.type).rounder, shifted))


def _in_exponent(shifted: Expression, less: int = 0) -> Expression:
    """Return k - `less` shifted to a float's exponent field; the rounder's own bits are shifted out."""
    return shift_left(bits_of(shifted) - less if less else bits_of(shifted), _format(shifted.type).mantissa)


def _power_of_two(exponent: Expression, type: MachineType) -> Expression:
    """Return 2^exponent, which must be a normal number."""
    form = _format(type)
    return float_of(shift_left(exponent + form.bias, form.mantissa))


def _at_least(x: Expression, limit: float) -> Expression:
    """Return max(x, limit), NaN included."""
    return select(compare("olt", x, limit), limit, x)


def at_most(x: Expression, limit: float) -> Expression:
    """Return min(x, limit), NaN included."""
    return select(compare("ogt", x, limit), limit, x)


def scaled_exp(x: Expression, halvings: int = 0) -> Expression:
    """Return exp(x) / 2^halvings for at most one halving, even if exp(x) overflows.

    Subnormal results, as of masked attention scores, are computed as the integer of their bits: processors take many
    times as long for products that underflow. For normal results k is added to the exponent bits.
    """
    form = _format(x.type)
    shifted, excess = _reduced(_at_least(x, form.lowest))
    mantissa = excess + 1
    value = float_of(bits_of(mantissa) + _in_exponent(shifted, halvings))
    value = select(compare("olt", x, form.infinite[halvings]), value, x + infinity(x.type))  # keeps NaN
    small = compare("olt", x, form.normal)
    return rarely(small, _small_multiple(mantissa, _whole(shifted) - halvings), value)


def exp_of_sum(x: Expression, low: Expression) -> Expression:
    """Return exp(x + low), where |low| is a few ULPs of x at most."""
    form = _format(x.type)
    shifted, excess = _reduced(at_most(_at_least(x, form.lowest), form.highest))
    return _times_power_of_two(fma(excess + 1, low, excess) + 1, _whole(shifted))


def _times_power_of_two(mantissa: Expression, exponent: Expression) -> Expression:
    """Return mantissa 2^exponent in two steps, since the power may not be a normal number."""
    half = shift_right(exponent, 1, signed=True)
    return mantissa * _power_of_two(half, mantissa.type) * _power_of_two(exponent - half, mantissa.type)


def _small_multiple(mantissa: Expression, exponent: Expression) -> Expression:
    """Return mantissa 2^exponent below twice the least normal number: a multiple of the least subnormal."""
    form = _format(mantissa.type)
    scaled = mantissa * _power_of_two(exponent + (form.bias + form.mantissa - 1), mantissa.type)
    return float_of(to_integer(rint(scaled), exponent.type))


@define(Primitive.EXP)
def exp(x: Expression) -> Expression:
    return scaled_exp(x)


@define(Primitive.EXPM1)
def expm1(x: Expression) -> Expression:
    """Return exp(x) - 1; for the least numbers x itself, -0 and subnormals included."""
    form = _format(x.type)
    shifted, excess = _reduced(at_most(_at_least(x, form.minus_one), form.highest))
    half = _power_of_two(_whole(shifted) - 1, x.type)  # of 2^k, which may overflow
    result = fma(half, excess, half - 0.5)
    tiny = compare("olt", abs_(x), 2.0**-25 if x.type is F32 else 2.0**-54)
    return select(tiny, x, result + result)


@define(Primitive.LOGISTIC)
def logistic(x: Expression) -> Expression:
    """Return 1 / (1 + exp(-x)), computed from the exponential that does not overflow."""
    small = scaled_exp(-abs_(x))
    one = like(1, x)
    return _quotient(select(compare("olt", x, 0), small, one), one, small)


def _tanh_single(x: Expression) -> Expression:
    """Return (1 - e) / (1 + e) with e = exp(-2|x|) <= 1, whose divisor has a smaller rounding error.

    log 2 is one float: k is small, so that a second part would not improve the product.
    """
    size = at_most(abs_(x), 10.0)
    shifted, excess = _reduced(-(size + size), parts=1)
    power = float_of(_in_exponent(shifted) + bits_of(like(1, x)))
    return copysign(fma(-power, excess, 1 - power) / fma(power, excess, 1 + power), x)


def _tanh_double(x: Expression) -> Expression:
    """Return e / (e + 2) with e = exp(2|x|) - 1."""
    size = at_most(abs_(x), 20.0)
    shifted, excess = _reduced(size + size)
    power = float_of(_in_exponent(shifted) + bits_of(like(1, x)))
    excess = fma(power, excess, power - 1)
    return copysign(_quotient(excess, like(2, x), excess), x)


define(Primitive.TANH)(by_width(_tanh_single, _tanh_double))


def _quotient(numerator: Expression, x: Expression, y: Expression) -> Expression:
    """Return numerator / (x + y) with nearly a single rounding."""
    total = x + y
    error = y - (total - x)
    inverse = 1 / total
    quotient = numerator * inverse
    rest = fma(-quotient, error, fma(-quotient, total, numerator))
    return fma(rest, inverse, quotient)
