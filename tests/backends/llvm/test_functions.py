"""Functions of floats: their errors, their special values beside the NumPy back end's, one result on any width."""

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.special

from spmd.analysis.scalar.expression import Primitive
from tests.backends.llvm.harness import Array, same
from tests.backends.llvm.ulp import DOUBLE, LONG, double_error, native, worst_single

P = Primitive
#: The formulas that XLA compiles these to in f32, which programs are checked against; what their steps lose.
AS_XLA = {P.ERF, P.ERFC, P.ERF_INV, P.SINH, P.COSH}
#: Worst ULP in f64 where it is above 2.
WIDE = {P.ERFC: 3.0, P.ERF_INV: 3.0, P.DIGAMMA: 3.0, P.BESSEL_I1E: 3.0}
#: Where f64 is looked at, for functions that are not defined everywhere.
DOMAINS = {
    P.EXP: (-740, 709), P.EXPM1: (-40, 709), P.LOG: (0, 1e300), P.LOG1P: (-1, 1e300), P.LOGISTIC: (-700, 700),
    P.SINH: (-710, 710), P.COSH: (-710, 710), P.ASIN: (-1, 1), P.ACOS: (-1, 1), P.ACOSH: (1, 1e300),
    P.ATANH: (-1, 1), P.ERF: (-6.5, 6.5), P.ERFC: (-6, 27), P.ERF_INV: (-1, 1), P.LGAMMA: (0, 150),
    P.DIGAMMA: (0, 1e8), P.BESSEL_I1E: (-100, 100),
}  # fmt: skip


@pytest.mark.parametrize("function", [each for each in DOUBLE if each not in AS_XLA | {P.LGAMMA, P.DIGAMMA}])
def test_f32_is_within_two_ulp(function: Primitive) -> None:
    """Every 9973rd number; `python -m tests.backends.llvm.ulp` takes all."""
    error, place = worst_single(function, 9973, 17)
    assert error <= 2, f"{function}: {error} ULP at {place!r}"


@pytest.mark.parametrize("function", [P.LGAMMA, P.DIGAMMA])
def test_gamma_functions_right_of_zero(function: Primitive) -> None:
    x = np.arange(1, 0x7F800000, 9973, dtype=np.uint32).view(np.float32)
    (got,) = native(function, "f32")(x)
    with np.errstate(over="ignore"):
        expected = DOUBLE[function](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_max_ulp(got, expected, 2)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("function", list(LONG))
def test_f64(function: Primitive) -> None:
    rng = np.random.default_rng(5)
    low, high = DOMAINS.get(function, (-1e300, 1e300))
    sizes = np.exp(rng.uniform(np.log(1e-20), np.log(max(abs(low), high)), 100))
    near = [rng.uniform(max(low, -bound), min(high, bound), 100) for bound in (3, 100)]
    x = np.concatenate([sizes, -sizes, low + sizes * 1e-3, high - sizes * 1e-3, *near])
    x = x[(x > low) & (x < high)]
    (got,) = native(function, "f64")(x)
    with mpmath.workprec(160):
        errors = [double_error(float(y), LONG[function](mpmath.mpf(float(at)))) for at, y in zip(x, got, strict=True)]
    place = int(np.argmax(errors))
    assert errors[place] <= WIDE.get(function, 2), f"{errors[place]} ULP at {x[place]!r}"


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, np.inf, -np.inf, np.nan, 3.0, -3.0, 2.5, 1e30, -1e30]


def specials(dtype: type) -> Array:
    info = np.finfo(dtype)
    ends = [info.smallest_subnormal, info.tiny, info.eps, info.max]
    return np.array([*SPECIAL, *ends, *(-end for end in ends)], dtype)


def check(got: Array, expected: Array, operands: tuple[Array, ...], tolerance: float) -> None:
    close = np.isclose(got, expected, rtol=tolerance, atol=0, equal_nan=True)
    right = close & ((np.signbit(got) == np.signbit(expected)) | np.isnan(expected))
    places = np.nonzero(~right)[0]
    assert not len(places), [(*(x[at] for x in operands), got[at], expected[at]) for at in places[:5]]


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("function", [each for each in DOUBLE if each not in (P.LGAMMA, P.DIGAMMA, P.ERF, P.ERF_INV)])
def test_special_values(function: Primitive, element: str) -> None:
    x = specials(np.float32 if element == "f32" else np.float64)
    with np.errstate(all="ignore"):
        expected = DOUBLE[function](x.astype(np.float64)).astype(x.dtype)
    check(native(function, element)(x)[0], expected, (x,), 3e-6 if element == "f32" else 1e-15)


@pytest.mark.parametrize(("function", "element"), [(P.EXP, "f32"), (P.EXP, "f64"), (P.SINH, "f64"), (P.COSH, "f64")])
def test_last_finite_results(function: Primitive, element: str) -> None:
    """Every number next to where exp, or half of it, becomes infinite; and NaN, whatever its last bits."""
    dtype, whole = (np.float32, np.uint32) if element == "f32" else (np.float64, np.uint64)
    ends = [dtype((np.finfo(dtype).maxexp + halvings) * np.log(np.longdouble(2))) for halvings in (0, 1)]
    x = np.concatenate([(end.view(whole) + np.arange(-20, 20).astype(whole)).view(dtype) for end in ends])
    (got,) = native(function, element)(x)
    with mpmath.workprec(160), np.errstate(over="ignore"):
        exact = np.array([dtype(float(LONG[function](mpmath.mpf(float(each))))) for each in x])
    np.testing.assert_array_equal(np.isinf(got), np.isinf(exact))
    np.testing.assert_array_max_ulp(got, exact, 2)
    payloads = (np.array([np.nan], dtype).view(whole) + np.arange(300, dtype=whole)).view(dtype)
    assert np.isnan(native(function, element)(np.concatenate([payloads, -payloads]))[0]).all()


def test_poles_of_gamma_functions() -> None:
    x = np.array([0.0, -1.0, -2.0, -1e20, np.inf, -np.inf, np.nan, 1.0, 2.0, 5e-324])
    (got,) = native(P.LGAMMA, "f64")(x)
    np.testing.assert_array_equal(got[:9], [np.inf] * 6 + [np.nan, 0, 0])
    np.testing.assert_allclose(got[9], -np.log(5e-324))
    np.testing.assert_array_equal(native(P.DIGAMMA, "f64")(x[:4])[0], [np.nan] * 4)
    left = np.array([-0.3, -1.7, -2.5, -10.2, -33.3])
    np.testing.assert_allclose(native(P.LGAMMA, "f64")(left)[0], scipy.special.gammaln(left), rtol=1e-14)
    np.testing.assert_allclose(native(P.DIGAMMA, "f64")(left)[0], scipy.special.digamma(left), rtol=1e-13)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(("function", "reference"), [(P.POW, np.power), (P.ATAN2, np.arctan2)])
def test_special_values_of_two(function: Primitive, reference: Callable[..., Array], element: str) -> None:
    values = specials(np.float32 if element == "f32" else np.float64)
    x, y = (each.ravel() for each in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = reference(x, y)
    check(native(function, element, 2)(x, y)[0], expected, (x, y), 3e-7 if element == "f32" else 1e-15)


def test_powers() -> None:
    rng = np.random.default_rng(2)
    x = np.exp(rng.uniform(-300, 300, 400))
    y = rng.uniform(-600, 600, 400) / np.abs(np.log(x))
    (got,) = native(P.POW, "f64", 2)(x, y)
    with mpmath.workprec(160):
        exact = [mpmath.power(float(a), mpmath.mpf(float(b))) for a, b in zip(x, y, strict=True)]
    assert max(double_error(float(a), b) for a, b in zip(got, exact, strict=True)) < 1.5


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_large_angles(element: str) -> None:
    """Next to a multiple of pi / 2 all but the last bits of an angle may vanish."""
    dtype = np.float32 if element == "f32" else np.float64
    hard = [16367173.0 * 2.0**72, 6381956970095103.0 * 2.0**797, 1e22, 3e38, -1e5, 1.5e8]
    x = np.array([each for each in hard if abs(each) < float(np.finfo(dtype).max)], dtype)
    for function in (P.SIN, P.COS, P.TAN):
        (got,) = native(function, element)(x)
        with mpmath.workprec(1400):
            exact = [LONG[function](mpmath.mpf(float(each))) for each in x]
        bits = 24 if element == "f32" else 53
        for y, true in zip(got, exact, strict=True):
            unit = 2.0 ** (int(mpmath.frexp(true)[1]) - bits)
            assert abs(float(mpmath.mpf(float(y)) - true)) <= 2 * unit, (function, y, true)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("function", [P.EXP, P.LOG, P.SIN, P.TANH, P.CBRT, P.LGAMMA])
def test_every_width_gives_the_same_bits(function: Primitive, element: str) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(101) * np.exp(rng.uniform(-8, 12, 101))).astype(np.float32 if element == "f32" else float)
    results = [native(function, element, width=width)(x)[0] for width in (1, 2, 16, 32)]
    assert all(same(result, results[0]).all() for result in results)
