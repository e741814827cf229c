"""log and log1p.

x is 2^e m with m within a factor of sqrt(2) of one. log(m), of f = m - 1, is f - f^2/2 + f^3 P(f) in f32; in f64,
with s = f / (2 + f), it is 2 atanh(s) = 2 s + s R(s^2), arranged so that f, which is exact, comes last (fdlibm's
`log`). P and R are minimax polynomials.
"""

from __future__ import annotations

from spmd.analysis.scalar.build import (
    bits_of,
    compare,
    copysign,
    float_of,
    fma,
    infinity,
    like,
    mask,
    nan,
    polynomial,
    select,
    shift_right,
)
from spmd.analysis.scalar.expression import F32, Expression, Primitive
from spmd.analysis.scalar.functions.table import define

_SINGLE_P = (
    0.06685048341751099, -0.11605114489793777, 0.11886287480592728, -0.12420085817575455, 0.1422097384929657,
    -0.1666700839996338, 0.2000204622745514, -0.2500002980232239, 0.3333331346511841,
)  # fmt: skip
_DOUBLE_R = (
    0.1479677983798193, 0.15313972024680667, 0.18183567210939744, 0.22222198521499656, 0.2857142874285027,
    0.3999999999941281, 0.6666666666666735,
)  # fmt: skip
#: log 2 as a sum of two floats; the first times any exponent is exact.
_SINGLE_LOG_2 = (0.693145751953125, 1.428606765330187e-06)
_DOUBLE_LOG_2 = (0.6931471803691238, 1.9082149292705877e-10)


def parts(x: Expression) -> tuple[Expression, Expression]:
    """Return the exponent e, as a float, and m - 1 of a positive number, possibly subnormal."""
    single = x.type is F32
    mantissa, root_half = (23, 0x3F3504F3) if single else (52, 0x3FE6A09E667F3BCD)
    rounder = like(1.5 * 2.0**mantissa, x)
    small = compare("olt", x, 2.0 ** (-126 if single else -1022))
    bits = bits_of(select(small, x * 2.0**mantissa, x)) - root_half
    exponent = float_of(shift_right(bits, mantissa, signed=True) + bits_of(rounder)) - rounder
    exponent = exponent - select(small, like(mantissa, x), 0)
    m = float_of(mask(bits, (1 << mantissa) - 1) + root_half)
    return exponent, m - 1


def log_of_positive(x: Expression, correction: Expression | None = None) -> Expression:
    """Return log(x) of a positive number, plus a small `correction` added before the last rounding."""
    exponent, f = parts(x)
    square = f * f
    if x.type is F32:
        high, low = (like(part, x) for part in _SINGLE_LOG_2)
        rest = fma(exponent, low, f * square * polynomial(f, _SINGLE_P))
        if correction is not None:
            rest = rest + correction
        return fma(exponent, high, f + fma(-0.5, square, rest))
    high, low = (like(part, x) for part in _DOUBLE_LOG_2)
    s = f / (2 + f)
    z = s * s
    half_square = 0.5 * square
    small = exponent * low if correction is None else fma(exponent, low, correction)
    rest = fma(s, fma(z, polynomial(z, _DOUBLE_R), half_square), small)
    return fma(exponent, high, f - (half_square - rest))


def _outside(x: Expression, root: float) -> Expression:
    """Return the logarithm at its pole `root`, below it, at infinity and at NaN."""
    left = select(compare("olt", x, root), nan(x.type), x)
    return select(compare("oeq", x, root), -infinity(x.type), left)


@define(Primitive.LOG)
def log(x: Expression) -> Expression:
    inside = compare("ogt", x, 0) & compare("olt", x, infinity(x.type))
    return select(inside, log_of_positive(x), _outside(x, 0))


@define(Primitive.LOG1P)
def log1p(x: Expression) -> Expression:
    """Return log(1 + x), corrected for the rounding error of the sum."""
    one = like(1, x)
    total = one + x
    lost = select(compare("ogt", x, one), one - (total - x), x - (total - one))
    inside = compare("ogt", x, -1) & compare("olt", x, infinity(x.type))
    result = copysign(log_of_positive(total, lost / total), x)
    return select(inside, result, _outside(x, -1))
