"""The worst error of each function over dense samples, in units in the last place of the result's type.

f32 is measured against f64 and f64 against 120-bit arithmetic (mpmath); types of at most 16 bits round the f64 result
once. Entries above three are the formulas that XLA compiles the op to, which programs are checked against
(spmd/backends/numpy/special.py), or lie next to a root of the function.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.backends.numpy import chlo, elementwise
from spmd.types import BF16, COMPLEX64, COMPLEX128, F16, F32, F64, ElementType, element_type_of

FUNCTIONS = {**elementwise.UNARY, **chlo.UNARY}

#: op: (smallest and largest magnitude, both signs, worst ULP in f32, worst ULP in f64)
TABLE: dict[str, tuple[float, float, bool, float, float]] = {
    "stablehlo.cbrt": (1e-30, 1e30, True, 0.51, 0.51),
    "stablehlo.cosine": (1e-30, 1e4, True, 2, 1),
    "stablehlo.exponential": (1e-30, 80, True, 3, 1),
    "stablehlo.exponential_minus_one": (1e-30, 80, True, 0.51, 1),
    "stablehlo.log": (1e-30, 1e30, False, 0.51, 1),
    "stablehlo.log_plus_one": (1e-30, 1e30, False, 0.51, 1),
    "stablehlo.logistic": (1e-30, 80, True, 3, 2),
    "stablehlo.rsqrt": (1e-30, 1e30, False, 1.51, 1.51),
    "stablehlo.sine": (1e-30, 1e4, True, 2, 1),
    "stablehlo.sqrt": (1e-30, 1e30, False, 0.51, 0.51),
    "stablehlo.tan": (1e-30, 1e4, True, 0.51, 1),
    "stablehlo.tanh": (1e-30, 20, True, 2, 2),
    "chlo.acos": (1e-30, 1, True, 0.51, 1.5),
    "chlo.acosh": (1, 1e30, False, 0.51, 1),
    "chlo.asin": (1e-30, 1, True, 0.51, 1.5),
    "chlo.asinh": (1e-30, 1e30, True, 0.51, 1.5),
    "chlo.atan": (1e-30, 1e30, True, 0.51, 1),
    "chlo.atanh": (1e-30, 1, True, 0.51, 1.5),
    "chlo.bessel_i1e": (1e-3, 100, True, 0.51, 6),
    "chlo.cosh": (1e-30, 80, True, 30, 2),
    "chlo.digamma": (1e-3, 1e6, False, 0.51, 3),
    "chlo.erf": (1e-30, 6, True, 7, 3),
    "chlo.erf_inv": (1e-30, 0.999, True, 10, 3),
    "chlo.erfc": (1e-3, 6, True, 40, 7),
    "chlo.lgamma": (3, 1e6, False, 0.51, 3),
    "chlo.sinh": (1e-30, 80, True, 30, 2),
    "chlo.tan": (1e-30, 1e4, True, 0.51, 1),
}  # fmt: skip


def sample(low: float, high: float, both: bool, dtype: type, count: int) -> np.ndarray:
    rng = np.random.default_rng(17)
    sizes = np.exp(rng.uniform(np.log(low), np.log(high), count // 2))
    even = rng.uniform(low, min(high, 100), count // 2)
    values = np.concatenate([sizes, even])
    return (values * rng.choice([-1, 1], values.size) if both else values).astype(dtype)


def worst(got: np.ndarray, exact: np.ndarray) -> float:
    """Largest error in units in the last place of `got`'s type; `exact` has more digits."""
    nearest = exact.astype(got.dtype)
    finite = np.isfinite(nearest) & np.isfinite(got)
    assert (np.isfinite(nearest) == np.isfinite(got)).all()
    unit = np.spacing(np.abs(nearest[finite])).astype(exact.dtype)
    return float(np.max(np.abs(got[finite].astype(exact.dtype) - exact[finite]) / unit))


@pytest.fixture(scope="module")
def mp():  # type: ignore[no-untyped-def]
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workprec(120):
        yield mpmath


def oracle(mpmath, name: str) -> Callable[[object], object]:  # type: ignore[no-untyped-def]
    special = {
        "cbrt": lambda x: mpmath.sign(x) * mpmath.root(abs(x), 3),
        "cosine": mpmath.cos,
        "exponential": mpmath.exp,
        "exponential_minus_one": mpmath.expm1,
        "log_plus_one": mpmath.log1p,
        "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
        "rsqrt": lambda x: 1 / mpmath.sqrt(x),
        "sine": mpmath.sin,
        "bessel_i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
        "erf_inv": mpmath.erfinv,
        "lgamma": mpmath.loggamma,
    }
    plain = name.partition(".")[2]
    return special.get(plain) or getattr(mpmath, plain)


def exact_values(mpmath, name: str, x: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    function = oracle(mpmath, name)
    return np.array([np.longdouble(mpmath.nstr(function(mpmath.mpf(float(value))), 25)) for value in x])


def call(name: str, element: ElementType, x: np.ndarray) -> np.ndarray:
    function = FUNCTIONS[name].call(element, 1)
    assert function is not None
    with np.errstate(all="ignore"):
        return np.asarray(function(x))


@pytest.mark.parametrize("name", TABLE)
def test_f64(name: str, mp) -> None:  # type: ignore[no-untyped-def]
    low, high, both, _, limit = TABLE[name]
    x = sample(low, high, both, np.float64, 300)
    assert worst(call(name, F64, x), exact_values(mp, name, x)) <= limit


def test_logistic_where_its_exponential_overflows() -> None:
    """exp(x), down to the smallest subnormal number."""
    x = np.array([-700.5, -709.8, -720.0, -745.0, -746.0, -np.inf])
    np.testing.assert_array_equal(call("stablehlo.logistic", F64, x), np.exp(x))


@pytest.mark.parametrize("name", TABLE)
def test_f32(name: str) -> None:
    low, high, both, limit, _ = TABLE[name]
    x = sample(low, high, both, np.float32, 20000)
    x = x[np.abs(x) <= high] if high <= 1 else x
    assert worst(call(name, F32, x), call(name, F64, x.astype(np.float64))) <= limit


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("element", [BF16, F16])
def test_sixteen_bits_round_the_double_once(name: str, element: ElementType) -> None:
    low, high, both, _, _ = TABLE[name]
    x = sample(max(low, 1e-4), min(high, 1e4), both, np.float64, 2000).astype(element.dtype)
    with np.errstate(over="ignore"):
        exact = call(name, F64, x.astype(np.float64)).astype(element.dtype)
    np.testing.assert_array_equal(call(name, element, x).astype(np.float64), exact.astype(np.float64))


def test_eight_bits_are_all_right() -> None:
    """Every value of every 8-bit float through exp: the double result rounded."""
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        x = np.arange(256, dtype=np.uint8).view(dtype)
        with np.errstate(all="ignore"):
            exact = np.exp(x.astype(np.float64)).astype(dtype)
        got = call("stablehlo.exponential", element_type_of(dtype), x)
        np.testing.assert_array_equal(got.astype(np.float64), exact.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_and_atan2(dtype: type, mp) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(5)
    x, y = np.exp(rng.uniform(-3, 3, 300)).astype(dtype), rng.uniform(-8, 8, 300).astype(dtype)
    element = F32 if dtype is np.float32 else F64
    arctangent_limit = 0.51 if dtype is np.float32 else 1.0
    for name, function, limit in (("power", mp.power, 3.0), ("atan2", mp.atan2, arctangent_limit)):
        exact = [function(mp.mpf(float(a)), mp.mpf(float(b))) for a, b in zip(x, y, strict=True)]
        exact_array = np.array([np.longdouble(mp.nstr(value, 25)) for value in exact])
        call_binary = elementwise.BINARY["stablehlo." + name].call(element, 2)
        assert call_binary is not None
        assert worst(call_binary(x, y), exact_array) <= limit


COMPLEX = {
    "stablehlo.exponential": "exp", "stablehlo.exponential_minus_one": "expm1", "stablehlo.log": "log",
    "stablehlo.log_plus_one": "log1p", "stablehlo.sqrt": "sqrt", "stablehlo.sine": "sin", "stablehlo.cosine": "cos",
    "stablehlo.tan": "tan", "stablehlo.tanh": "tanh", "chlo.asin": "asin", "chlo.acos": "acos", "chlo.atan": "atan",
    "chlo.asinh": "asinh", "chlo.acosh": "acosh", "chlo.atanh": "atanh", "chlo.sinh": "sinh", "chlo.cosh": "cosh",
}  # fmt: skip


@pytest.mark.sampled(17)
@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(name: str, dtype: type, mp) -> None:  # type: ignore[no-untyped-def]
    """The error as a complex number, in units in the last place of the result's magnitude."""
    rng = np.random.default_rng(6)
    z = ((rng.normal(size=200) + 1j * rng.normal(size=200)) * np.exp(rng.uniform(-4, 2, 200))).astype(dtype)
    got = call(name, COMPLEX64 if dtype is np.complex64 else COMPLEX128, z)
    function = {"expm1": lambda w: mp.exp(w) - 1, "log1p": lambda w: mp.log(1 + w)}.get(
        COMPLEX[name], getattr(mp, COMPLEX[name])
    )
    for value, result in zip(z, got, strict=True):
        exact = function(mp.mpc(complex(value)))
        unit = float(np.spacing(abs(result)))
        assert abs(mp.mpc(complex(result)) - exact) <= 4 * unit, (value, result)


@pytest.mark.parametrize("name", ["exponential", "logistic", "tanh"])
def test_few_elements_are_rounded_once(name: str, mp) -> None:  # type: ignore[no-untyped-def]
    x = np.random.default_rng(3).uniform(-20, 20, 1000).astype(np.float32)
    tensor = f"tensor<{x.size}xf32>"
    text = f"func.func @main(%x: {tensor}) -> {tensor} {{ %r = stablehlo.{name} %x : {tensor} return %r : {tensor} }}"
    (got,) = spmd.compile(spmd.parse(text), backends=("numpy",))(x)
    assert worst(got, exact_values(mp, "stablehlo." + name, x)) < 0.51


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_ends_of_the_types(backends: tuple[str, ...]) -> None:
    """erf where products with small coefficients are subnormal; lgamma at poles beyond which it overflows."""
    text = """func.func @main(%x: tensor<4000xf32>, %y: tensor<6xf64>) -> (tensor<4000xf32>, tensor<6xf64>) {
      %e = chlo.erf %x : tensor<4000xf32> -> tensor<4000xf32>
      %l = chlo.lgamma %y : tensor<6xf64> -> tensor<6xf64>
      return %e, %l : tensor<4000xf32>, tensor<6xf64>
    }"""
    x = np.geomspace(1.5e-45, 1e-30, 4000).astype(np.float32) * np.float32([1, -1] * 2000)
    y = np.array([-2.4e305, -2.6e305, -1.7e308, -np.inf, -1e300, -(2.0**53)])
    erf, lgamma = spmd.compile(spmd.parse(text), backends=backends)(x, y)
    assert worst(erf, x.astype(np.longdouble) * (2 / np.sqrt(np.longdouble(np.pi)))) <= 2
    assert (lgamma == np.inf).all()
