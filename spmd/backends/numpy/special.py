"""Special functions of real arguments, on f32 and f64 arrays.

Three ways, by function and type:
- computed in f64 and rounded to f32, where that costs no more than the f32 loop (`rounded`);
- SciPy's, in f64;
- for f32 erf, erfc, erf_inv, sinh and cosh the formulas that XLA compiles CHLO's ops to, step by step: programs are
checked against their results, whose errors (erfc's from rounding x^2 in its tail, cosh's and sinh's from x + log 1/2)
exceed the three ULP that such checks allow.

Every function takes `out=`, which may be an operand. Source of the coefficients: Cephes (erf, erfc), Giles,
"Approximating the erfinv function" (GPU Computing Gems, 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from spmd.analysis.scalar.functions.error import (
    ERF_ALPHA,
    ERF_BELOW_1,
    ERF_BETA,
    ERF_INV_CENTER,
    ERF_INV_TAIL,
    ERF_LINEAR,
    ERFC_BELOW_2,
    ERFC_FROM_2,
    LARGEST_EXPONENT,
    TWO_OVER_ROOT_PI,
)
from spmd.analysis.scalar.functions.gamma import (
    DIGAMMA_P,
    DIGAMMA_Q,
    DIGAMMA_ROOT,
    DIGAMMA_SERIES,
    DIGAMMA_SLOPE,
)
from spmd.backends.kernels import Call
from spmd.backends.numpy.elementwise_float import power as power_of
from spmd.backends.numpy.elementwise_selection import selection
from spmd.backends.numpy.late import Late
from spmd.backends.numpy.pointwise import keep, write
from spmd.support.arrays import Array

scipy_special = Late("scipy.special")
_F32 = np.dtype(np.float32)
_F32_ONE = np.float32(1)
#: np.where without branches.
_choose = selection(_F32)


@cache
def rounded(function: Call) -> Call:
    """Return a ufunc of f32 operands computed in f64 and rounded once."""

    def call(*operands: Array, out: Array | None = None) -> Array:
        return write(function(*operands, dtype=np.float64), _F32, out)

    return call


def by_width(single: Call, double: Call) -> Call:
    """Return `single` for f32, `double` for f64."""

    def call(*operands: Array, out: Array | None = None) -> Array:
        return (single if operands[0].dtype == _F32 else double)(*operands, out=out)

    return call


def polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Return the polynomial with `coefficients`, highest power first, by Horner's rule in x's type."""
    result = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        result += coefficient
        result *= x
    result += coefficients[-1]
    return result


# --- error functions -------------------------------------------------------------------------------------------------


def erf_single(x: Array, out: Array | None = None) -> Array:
    """Return erf in f32 as an odd rational function on [-4, 4]."""
    inside = np.minimum(np.maximum(x, -4), 4)
    square = inside * inside
    ratio = polynomial(square, ERF_ALPHA)
    ratio *= inside
    ratio /= polynomial(square, ERF_BETA)
    bounded = np.minimum(np.maximum(ratio, -1), 1)
    return keep(_choose(np.abs(x) < ERF_LINEAR, x * TWO_OVER_ROOT_PI, bounded), out)


def erfc_single(x: Array, out: Array | None = None) -> Array:
    """Return erfc in f32: 1 - erf(x) within (-1, 1), exp(-x^2) P(1 / x^2) / |x| outside."""
    inside = 1 - x * polynomial(x * x, ERF_BELOW_1)
    return keep(_choose(np.abs(x) < 1, inside, _erfc_outside(x)), out)


def _erfc_outside(x: Array) -> Array:
    square, size = x * x, np.abs(x)
    reciprocal = 1 / square
    series = polynomial(reciprocal, ERFC_BELOW_2)
    series = _choose(size < 2, series, polynomial(reciprocal, ERFC_FROM_2))
    tail = np.exp(-square, dtype=np.float64).astype(_F32) * (1 / size) * series
    tail = _choose(square > LARGEST_EXPONENT, np.float32(0), tail)
    return _choose(x < 0, 2 - tail, tail)


def erfc_double(x: Array, out: Array | None = None) -> Array:
    """Return erfc in f64: beyond 1 the scaled function times exp(-x^2), with the square split to be exact."""
    tail = x > 1
    result = np.asarray(scipy_special.erfc(x))
    if np.count_nonzero(tail):
        beyond = np.minimum(np.asarray(x)[tail], 30.0)  # zero from 27.3 on
        head = beyond.astype(_F32).astype(np.float64)
        scale = np.exp(-head * head) * np.exp((head - beyond) * (head + beyond))
        result[tail] = scipy_special.erfcx(beyond) * scale
    return keep(result, out)


def erf_inv_single(x: Array, out: Array | None = None) -> Array:
    """Return the inverse of erf in f32: x P(w) with w = -log(1 - x^2), with polynomials for the center and the tails.

    P is nearly flat for small x, so w need not be as accurate there as log1p.
    """
    w = np.negative(np.log(_F32_ONE - x * x))
    inner = polynomial(w - 2.5, ERF_INV_CENTER)
    inner = _choose(w < 5, inner, polynomial(np.sqrt(w) - 3, ERF_INV_TAIL))
    return keep(_choose(np.abs(x) == 1, x * np.float32(np.inf), inner * x), out)


def erf_inv_double(x: Array, out: Array | None = None) -> Array:
    """Return the inverse of erf in f64; SciPy is not called outside of the domain, where its error handling is slow."""
    inside = np.abs(x) < 1
    edge = np.where(np.abs(x) == 1, np.inf, np.nan)
    return np.copysign(np.where(inside, scipy_special.erfinv(np.where(inside, x, 0)), edge), x, out=out)


erf = by_width(erf_single, lambda x, out=None: scipy_special.erf(x, out=out))
erfc = by_width(erfc_single, erfc_double)
erf_inv = by_width(erf_inv_single, erf_inv_double)


# --- hyperbolic functions as XLA computes them in f32 ----------------------------------------------------------------

_LOG_HALF = np.log(np.float32(0.5))


def cosh_single(x: Array, out: Array | None = None) -> Array:
    """Return exp(x + log 1/2) + exp(-x + log 1/2), which overflows only if the result does."""
    return np.add(_exponential(x + _LOG_HALF), _exponential(_LOG_HALF - x), out=out)


def sinh_single(x: Array, out: Array | None = None) -> Array:
    """Return exp(x + log 1/2) - exp(-x + log 1/2); near zero (e + e / (e + 1)) / 2 with e = expm1(x)."""
    large = _exponential(x + _LOG_HALF) - _exponential(_LOG_HALF - x)
    excess = np.expm1(x, dtype=np.float64).astype(_F32)
    small = np.float32(0.5) * (excess + excess / (excess + 1))
    return keep(np.where(np.abs(x) < 1, small, large), out)


def _exponential(x: Array) -> Array:
    return np.exp(x, dtype=np.float64).astype(_F32)


cosh = by_width(cosh_single, np.cosh)
sinh = by_width(sinh_single, np.sinh)


# --- gamma functions and related ones, in f64 ------------------------------------------------------------------------


def lgamma(x: Array, out: Array | None = None) -> Array:
    """Return log |gamma(x)|; +infinity at both infinities and at the poles."""
    size = np.abs(x)
    result = np.where(np.isinf(x), size, scipy_special.gammaln(x))
    near = size < 1e-300  # gamma(x) is 1 / x, which overflows for subnormal numbers
    return keep(np.where(near, -np.log(size), result) if np.count_nonzero(near) else result, out)


def digamma(x: Array, out: Array | None = None) -> Array:
    """Return the derivative of lgamma; NaN at the poles 0, -1, -2, ...

    Reflected for x < 1/2; below 4 shifted into [1, 2] and computed from the expansion about the root at 1.46; above
    shifted past 10 and computed from the asymptotic series. Source of the expansion: Boost.Math, "Digamma".
    """
    left = x < 0.5
    positive = np.asarray(np.where(left, 1 - x, x))
    small = positive < 4
    result = np.empty_like(positive)
    result[small] = _digamma_below_4(positive[small])
    result[~small] = _digamma_from_4(positive[~small])
    if np.count_nonzero(left):
        fraction = x - np.rint(x)  # exact; tan is periodic
        result = np.where(left, result - np.pi / np.tan(np.pi * fraction), result)
    return keep(np.where((x <= 0) & (x == np.floor(x)), np.nan, result), out)


def _digamma_below_4(x: Array) -> Array:
    moved = np.where(x < 1, -1 / x, 0.0)
    x = np.where(x < 1, x + 1, x)
    for _ in range(2):
        above = x > 2
        x = np.where(above, x - 1, x)
        moved += np.where(above, 1 / x, 0.0)
    distance = x - DIGAMMA_ROOT[0] - DIGAMMA_ROOT[1] - DIGAMMA_ROOT[2]
    ratio = polynomial(x - 1, DIGAMMA_P) / polynomial(x - 1, DIGAMMA_Q)
    return np.asarray(distance * DIGAMMA_SLOPE + distance * ratio + moved)


def _digamma_from_4(x: Array) -> Array:
    steps = sum(np.reciprocal(x + step) for step in range(1, 6)) + np.reciprocal(x)
    x = x + 6
    inverse_square = np.reciprocal(x * x)
    series = inverse_square * polynomial(inverse_square, DIGAMMA_SERIES)
    return np.asarray(np.log(x) - 0.5 / x - series - steps)


#: (2j)! / B(2j) of the tail of the zeta function, highest order first.
_ZETA_TAIL = (
    -7.1661652561756670113e18, 1.8152105401943546773e17, -4.5979787224074726105e15, 1.1646782814350067249e14,
    -2.950130727918164224e12, 7.47242496e10, -1.8924375803183791606e9, 47900160.0, -1209600.0, 30240.0, -720.0, 12.0,
)  # fmt: skip
_ZETA_TERMS = 10


def zeta(x: Array, q: Array, out: Array | None = None) -> Array:
    """Return the Hurwitz zeta function, the sum of (k + q)^-x over k >= 0.

    Infinity for x = 1; NaN for x < 1, and for q <= 0 unless x is an integer; at the poles q = 0, -1, ... infinity for
    even x, NaN for odd. SciPy's for negative q.
    """
    right = (x > 1) & (q > 0)
    result = _zeta_right_of_zero(np.where(right, x, 2.0), np.where(right, q, 1.0))
    if np.count_nonzero(right) != right.size:
        x, q = np.broadcast_arrays(x, q)
        pole = (x > 1) & (q <= 0) & (q == np.floor(q)) & (np.fmod(x, 2) == 0)
        result = np.where(right, result, np.where((x == 1) | pole, np.inf, np.nan))
        left = (x > 1) & (q < 0) & (x == np.floor(x)) & (q != np.floor(q))
        result[left] = scipy_special.zeta(x[left], q[left])
    return keep(result, out)


def _zeta_right_of_zero(x: Array, q: Array) -> Array:
    """Return ten terms and the Euler-Maclaurin formula for the rest (Johansson, arXiv:1309.2877, formula 5)."""
    power = np.negative(x)
    total = power_of(q, power)
    for term in range(1, _ZETA_TERMS):
        total += power_of(q + term, power)
    end = q + _ZETA_TERMS
    last = power_of(end, power)
    inverse_square = np.reciprocal(end * end)
    tail = np.full_like(total, 1 / _ZETA_TAIL[0])
    for order, coefficient in enumerate(_ZETA_TAIL[1:], start=1):
        step = 2 * (len(_ZETA_TAIL) - order)
        tail *= (x + step) * inverse_square * (x + (step - 1))
        tail += 1 / coefficient
    rest = last * (end / (x - 1) + 0.5 + tail * (x / end))
    return np.asarray(np.where(last > total * 1e-30, total + rest, total))


def polygamma(n: Array, x: Array, out: Array | None = None) -> Array:
    """Return the n-th derivative of digamma; NaN unless n is a natural number."""
    factor = np.where(np.fmod(n, 2) == 0, -1.0, 1.0) * scipy_special.gamma(n + 1)
    result = factor * zeta(n + 1, x)
    if np.count_nonzero(n == 0):
        result = np.where(n == 0, digamma(x), result)
    return keep(np.where((n < 0) | (n != np.floor(n)), np.nan, result), out)


def bessel_i1e(x: Array, out: Array | None = None) -> Array:
    """Return exp(-|x|) I1(x), the exponentially scaled modified Bessel function; odd, also for zeros.

    Near zero it is x / 2 - x |x| / 2: less than x / 2, which may be a tie between two narrower floats.
    """
    below_half = np.nextafter(0.5 * x, 0)
    signed: Array = np.copysign(np.where(np.abs(x) < 2.0**-60, below_half, scipy_special.i1e(x)), x, out=out)
    return signed


def in_double(function: Call) -> Call:
    """Return `function` of f64, applied to f32 through f64."""

    def single(*operands: Array, out: Array | None = None) -> Array:
        return write(function(*[x.astype(np.float64) for x in operands]), _F32, out)

    return by_width(single, function)
