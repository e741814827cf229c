"""erf, erfc, erf_inv, and the f32 forms of sinh and cosh.

In f64 erf is x P(x^2) up to 1, and erfc is exp(-x^2) P((x - c) / (x + c)) / (1 + 2 x) from 1/2 on, P minimax
polynomials; erf_inv is a polynomial to 22 bits and a step of Halley's method.

In f32 these are the formulas to which XLA compiles CHLO's ops, in the same steps: programs are checked against XLA's
results, whose error exceeds the three ULPs that such checks allow. Source of the coefficients: Cephes
(erf, erfc), Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011).
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.scalar.build import (
    abs_,
    call,
    compare,
    copysign,
    fma,
    infinity,
    like,
    maximum,
    minimum,
    nan,
    polynomial,
    select,
    sqrt,
)
from spmd.analysis.scalar.expression import Expression, Primitive
from spmd.analysis.scalar.functions.exponential import at_most, scaled_exp
from spmd.analysis.scalar.functions.table import by_width, define

# --- f32 -------------------------------------------------------------------------------------------------------------

ERF_ALPHA = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
ERF_BETA = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
TWO_OVER_ROOT_PI = 1.1283791670955126
#: Below this, erf(x) is x times the constant; multiplying by ALPHA's last, 1/62, would lose bits of subnormals.
ERF_LINEAR = 2.0**-60
ERFC_BELOW_2 = (
    2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1, 6.210004621745983e-1,
    -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1,
)  # fmt: skip
ERFC_FROM_2 = (
    -1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786, -1.015265279202700,
    4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1,
)  # fmt: skip
ERF_BELOW_1 = (
    7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2, 1.128358514861418e-1,
    -3.761262582423300e-1, 1.128379165726710,
)  # fmt: skip
#: exp(-x) underflows to zero above.
LARGEST_EXPONENT = 88.72283905206835
ERF_INV_CENTER = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
ERF_INV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _in_steps(x: Expression, coefficients: Sequence[float]) -> Expression:
    """Return a polynomial by Horner's rule, every product and sum rounded."""
    result = like(coefficients[0], x)
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def _exp(x: Expression) -> Expression:
    return call(Primitive.EXP, x)


def _erf_single(x: Expression) -> Expression:
    """Return erf as an odd rational function on [-4, 4]."""
    inside = minimum(maximum(x, like(-4, x)), like(4, x))
    square = inside * inside
    ratio = _in_steps(square, ERF_ALPHA) * inside / _in_steps(square, ERF_BETA)
    bounded = minimum(maximum(ratio, like(-1, x)), like(1, x))
    return select(compare("olt", abs_(x), ERF_LINEAR), x * TWO_OVER_ROOT_PI, bounded)


def _erfc_single(x: Expression) -> Expression:
    """Return 1 - erf(x) within (-1, 1), exp(-x^2) P(1 / x^2) / |x| outside."""
    square, size, one = x * x, abs_(x), like(1, x)
    inside = one - x * _in_steps(square, ERF_BELOW_1)
    reciprocal = one / square
    near = compare("olt", size, 2)
    series = select(near, _in_steps(reciprocal, ERFC_BELOW_2), _in_steps(reciprocal, ERFC_FROM_2))
    tail = _exp(-square) * (one / size) * series
    tail = select(compare("ogt", square, LARGEST_EXPONENT), 0, tail)
    outside = select(compare("olt", x, 0), 2 - tail, tail)
    return select(compare("olt", size, one), inside, outside)


def _erf_inv_single(x: Expression) -> Expression:
    """Return x P(w) with w = -log(1 - x^2), by one polynomial for the centre and one for the tails."""
    w = -call(Primitive.LOG, 1 - x * x)
    center = _in_steps(w - 2.5, ERF_INV_CENTER)
    tail = _in_steps(sqrt(w) - 3, ERF_INV_TAIL)
    result = select(compare("olt", w, 5), center, tail) * x
    return select(compare("oeq", abs_(x), 1), x * infinity(x.type), result)


_LOG_HALF = -0.6931471824645996


def _halved_exp(x: Expression) -> Expression:
    """Return exp(x) / 2, which overflows only where the result does."""
    return _exp(x + _LOG_HALF)


def _cosh_single(x: Expression) -> Expression:
    return _halved_exp(x) + _exp(_LOG_HALF - x)


def _sinh_single(x: Expression) -> Expression:
    """Return sinh; near zero as (e + e / (e + 1)) / 2 with e = exp(x) - 1."""
    large = _halved_exp(x) - _exp(_LOG_HALF - x)
    excess = call(Primitive.EXPM1, x)
    small = 0.5 * (excess + excess / (excess + 1))
    return select(compare("olt", abs_(x), 1), small, large)


# --- f64 -------------------------------------------------------------------------------------------------------------

#: erf(x) / x in x^2, on [0, 1].
_ERF = (
    5.945222641326463e-11, -1.1365642575695616e-09, 1.4657873746781678e-08, -1.6350024314703286e-07,
    1.6460972731857592e-06, -1.4925593501662369e-05, 0.00012055331036688072, -0.0008548326978736648,
    0.005223977624780775, -0.026866170645072886, 0.11283791670954857, -0.3761263890318375, 1.1283791670955126,
)  # fmt: skip
#: exp(x^2) erfc(x) (1 + 2 x) in (x - c) / (x + c), for x from 0.45 to 28.
_ERFC = (
    2.7351565358725158e-09, 1.8377369195859407e-08, -2.5042302473527917e-08, -1.2811572625484042e-07,
    1.785823236845833e-08, 5.373603635524343e-07, 5.356052916437787e-07, -1.587627163864743e-06,
    -4.220845262534743e-06, 2.6096658333079734e-06, 2.2700323280614704e-05, 6.2659017622485955e-06,
    -0.00011352247632648687, -8.847922917564543e-05, 0.0006321243539458703, 0.0004918658128808188,
    -0.004382078341239364, 0.0009318928173156788, 0.0327608932686959, -0.10296705603857215, 0.1576299190232179,
    -0.09902453957360177, -0.1223567630824043, 1.2648381843668615,
)  # fmt: skip
_ERFC_CENTER = 2.5


def _erf_near(x: Expression) -> Expression:
    return x * polynomial(x * x, _ERF)


def _erfc_far(x: Expression) -> Expression:
    """Return erfc of x >= 0.45, corrected for the rounding error of x^2."""
    x = at_most(x, 28.0)
    square = x * x
    lost = fma(x, x, -square)
    small = scaled_exp(-square)
    small = fma(-small, lost, small)
    center = like(_ERFC_CENTER, x)
    series = polynomial((x - center) / (x + center), _ERFC)
    return small * (series / fma(2, x, 1))


def _erf_double(x: Expression) -> Expression:
    size, one = abs_(x), like(1, x)
    far = copysign(one - _erfc_far(size), x)
    return select(compare("olt", size, one), _erf_near(x), far)


def _erfc_double(x: Expression) -> Expression:
    size = abs_(x)
    tail = _erfc_far(size)
    outside = select(compare("olt", x, 0), 2 - tail, tail)
    return select(compare("olt", size, 0.5), 1 - _erf_near(x), outside)


#: erf_inv(x) in sqrt(-log(1 - x^2)) - 4, from sqrt(5) on.
_ERF_INV_FAR = (
    6.541000901341298e-07, -1.6891746423269644e-06, -5.390790859217257e-06, 2.9001347716366102e-05,
    -8.410906023220596e-05, 0.0002849971092920652, -0.0008539235016687485, 0.0012584537730414048, 1.0094949777090536,
    3.8397832154626323,
)  # fmt: skip


def _erf_inv_double(x: Expression) -> Expression:
    """Refine a polynomial guess z by one step on erf(z) - |x|, computed from 1 if both are near it."""
    size, one = abs_(x), like(1, x)
    w = -call(Primitive.LOG, (one - size) * (one + size))
    center = size * polynomial(w - 2.5, ERF_INV_CENTER)
    z = select(compare("olt", w, 5), center, polynomial(sqrt(w) - 4, _ERF_INV_FAR))
    far = one - size - _erfc_far(z)
    difference = select(compare("olt", size, 0.5), _erf_near(z) - size, far)
    step = difference / (TWO_OVER_ROOT_PI * scaled_exp(-(z * z)))
    result = z - step / fma(z, step, one)
    edge = select(compare("oeq", size, one), infinity(x.type), nan(x.type))
    return copysign(select(compare("olt", size, one), result, edge), x)


def _cosh_double(x: Expression) -> Expression:
    half = scaled_exp(abs_(x), 1)
    return half + 0.25 / half


def _sinh_double(x: Expression) -> Expression:
    size = abs_(x)
    half = scaled_exp(size, 1)
    large = half - 0.25 / half
    excess = call(Primitive.EXPM1, size)
    small = 0.5 * (excess + excess / (excess + 1))
    return copysign(select(compare("olt", size, 1), small, large), x)


define(Primitive.ERF)(by_width(_erf_single, _erf_double))
define(Primitive.ERFC)(by_width(_erfc_single, _erfc_double))
define(Primitive.ERF_INV)(by_width(_erf_inv_single, _erf_inv_double))
define(Primitive.COSH)(by_width(_cosh_single, _cosh_double))
define(Primitive.SINH)(by_width(_sinh_single, _sinh_double))
