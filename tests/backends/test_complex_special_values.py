"""Complex functions at zeros of both signs, infinities and NaN, and where they overflow: C99's Annex G."""

import itertools
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array

INF, NAN = float("inf"), float("nan")
PARTS = (0.0, -0.0, 0.5, -2.0, -30.0, 800.0, -800.0, INF, -INF, NAN)
UNARY = (
    *("cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "cbrt", "sign"),
    *("sine", "sqrt", "tan", "tanh", "sinh", "cosh", "negate"),
)
BINARY = ("add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract")
CHLO = ("sinh", "cosh")


def complex_of(pairs: list[tuple[float, float]], dtype: type) -> Array:
    result = np.empty(len(pairs), dtype)
    result.real, result.imag = np.array(pairs).T
    return result


def run(names: tuple[str, ...], backends: tuple[str, ...], *arrays: Array) -> tuple[Array, ...]:
    """Each function of all operands, in one program."""
    element = "complex<f32>" if arrays[0].dtype == np.complex64 else "complex<f64>"
    one = f"tensor<{arrays[0].size}x{element}>"
    parameters = [f"%a{k}" for k in range(len(arrays))]
    lines = [
        f"%{name} = {'chlo' if name in CHLO else 'stablehlo'}.{name} {', '.join(parameters)} : "
        f"{one + ' -> ' if name in CHLO else ''}{one}"
        for name in names
    ]
    declared, types = ", ".join(f"{each}: {one}" for each in parameters), ", ".join([one] * len(names))
    returned = ", ".join(f"%{name}" for name in names)
    body = "\n".join(lines)
    text = f"func.func @main({declared}) -> ({types}) {{\n{body}\nreturn {returned} : {types}\n}}"
    return spmd.compile(spmd.parse(text), backends=backends)(*arrays)


def assert_alike(got: Array, want: Array, digits: float, about: str, *operands: Array) -> None:
    """Parts agree: NaN with NaN, infinities and zeros by their signs, and others to `digits`."""
    for part in ("real", "imag"):
        one, other = (getattr(array, part).astype(np.float64) for array in (got, want))
        with np.errstate(all="ignore"):
            near = np.abs(one - other) <= digits * np.maximum(np.abs(got), np.abs(want))
        signs = np.signbit(one) == np.signbit(other)
        exact = ((one == 0) & (other == 0)) | np.isinf(one)
        right = np.where(np.isnan(one) | np.isnan(other), np.isnan(one) == np.isnan(other), near | (one == other))
        right &= signs | ~exact | np.isnan(one)
        place = int(np.argmin(right))
        where = [array[place] for array in operands]
        assert right.all(), f"{about} of {where}, {part}: {got[place]} and {want[place]}"


@pytest.mark.parametrize(("dtype", "digits"), [(np.complex64, 1e-6), (np.complex128, 4e-15)])
def test_back_ends_agree(dtype: type, digits: float) -> None:
    numbers = complex_of(list(itertools.product(PARTS, PARTS)), dtype)
    few = complex_of(list(itertools.product((0.0, -0.0, 1.0, -2.0, INF, -INF, NAN), repeat=2)), dtype)
    x, y = np.repeat(few, few.size), np.tile(few, few.size)
    for names, operands in ((UNARY, (numbers,)), (BINARY, (x, y))):
        native, plain = (run(names, backends, *operands) for backends in (("llvm", "numpy"), ("numpy",)))
        for name, one, other in zip(names, native, plain, strict=True):
            assert_alike(one, other, digits, name, *operands)


#: Function, operand, result (C99, Annex G.6): None is a part, or a sign, that the standard leaves open.
ANNEX_G = (
    ("cosh", (0.0, INF), (NAN, 0.0)),
    ("cosh", (0.0, NAN), (NAN, 0.0)),
    ("cosh", (1.0, INF), (NAN, NAN)),
    ("cosh", (INF, 0.0), (INF, 0.0)),
    ("cosh", (INF, INF), (INF, NAN)),
    ("cosh", (INF, NAN), (INF, NAN)),
    ("cosh", (NAN, 0.0), (NAN, 0.0)),
    ("sinh", (0.0, INF), (0.0, NAN)),
    ("sinh", (0.0, NAN), (0.0, NAN)),
    ("sinh", (1.0, INF), (NAN, NAN)),
    ("sinh", (INF, 0.0), (INF, 0.0)),
    ("sinh", (INF, INF), (INF, NAN)),
    ("sinh", (INF, NAN), (INF, NAN)),
    ("sinh", (NAN, 0.0), (NAN, 0.0)),
    ("tanh", (1.0, INF), (NAN, NAN)),
    ("tanh", (800.0, INF), (NAN, NAN)),
    ("tanh", (INF, 1.0), (1.0, 0.0)),
    ("tanh", (INF, 2.0), (1.0, -0.0)),
    ("tanh", (INF, INF), (1.0, 0.0)),
    ("tanh", (INF, NAN), (1.0, 0.0)),
    ("tanh", (NAN, 0.0), (NAN, 0.0)),
    ("tan", (0.0, INF), (0.0, 1.0)),
    ("tan", (INF, -30.0), (NAN, NAN)),
    ("tan", (0.0, NAN), (0.0, NAN)),
    ("exponential", (1.0, INF), (NAN, NAN)),
    ("exponential", (-800.0, INF), (NAN, NAN)),
    ("exponential", (-INF, 1.0), (0.0, 0.0)),
    ("exponential", (-INF, INF), (0.0, 0.0)),
    ("exponential", (INF, INF), (INF, NAN)),
    ("exponential", (INF, 0.0), (INF, 0.0)),
    ("exponential", (NAN, 0.0), (NAN, 0.0)),
    ("log", (-0.0, 0.0), (-INF, np.pi)),
    ("log", (-INF, INF), (INF, 3 * np.pi / 4)),
    ("log", (NAN, INF), (INF, NAN)),
    ("sqrt", (NAN, INF), (INF, INF)),
    ("sqrt", (-INF, 1.0), (0.0, INF)),
    ("sqrt", (INF, NAN), (INF, NAN)),
    ("logistic", (800.0, INF), (NAN, NAN)),
    ("logistic", (INF, INF), (1.0, 0.0)),
    ("logistic", (-INF, 1.0), (0.0, 0.0)),
)


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_annex_g(backends: tuple[str, ...], dtype: type) -> None:
    names = tuple(dict.fromkeys(name for name, _, _ in ANNEX_G))
    operands = complex_of([operand for _, operand, _ in ANNEX_G], dtype)
    results = dict(zip(names, run(names, backends, operands), strict=True))
    for place, (name, operand, (real, imaginary)) in enumerate(ANNEX_G):
        got = results[name][place]
        for part, want in ((got.real, real), (got.imag, imaginary)):
            same = np.isnan(part) if np.isnan(want) else abs(part) == abs(want) or np.isclose(part, want)
            # the sign of a zero or an infinity beside a NaN is open
            open_sign = np.isnan(real) or np.isnan(imaginary) or "logistic" in name or np.isinf(operand[1])
            assert same and (open_sign or np.signbit(part) == np.signbit(want)), f"{name}{operand}: {got}"


#: Function, real and imaginary part: a part of the result is finite where a number on the way is not, or tiny.
EXTREME = (
    *(("exponential", x, y) for x in (709.9, 720.0, 1400.0) for y in (5e-324, 1e-300, 1.5707963267948966)),
    *(("exponential_minus_one", x, y) for x in (709.9, 720.0) for y in (5e-324, 1.5707963267948966)),
    *(("sinh", x, y) for x in (711.0, -720.0, 1400.0) for y in (5e-324, 1e-300, 1.5707963267948966)),
    *(("cosh", x, y) for x in (711.0, -720.0, 1400.0) for y in (5e-324, 1e-300, 1.5707963267948966)),
    *((name, x, x) for name in ("log", "log_plus_one", "cbrt", "sign") for x in (5e-324, 1e-310, 1.7e308, -1.7e308)),
    *(("logistic", x, y) for x in (0.0, 1e-8, -1e-8, -1e-15) for y in (np.pi, -np.pi, 3.0)),
)


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_results_that_are_finite_stay_so(backends: tuple[str, ...]) -> None:
    mpmath = pytest.importorskip("mpmath")
    mpmath_of = {
        "exponential": mpmath.exp,
        "exponential_minus_one": mpmath.expm1,
        "log_plus_one": mpmath.log1p,
        "cbrt": lambda z: mpmath.root(z, 3),
        "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    }
    names = tuple(dict.fromkeys(name for name, _, _ in EXTREME))
    operands = complex_of([(x, y) for _, x, y in EXTREME], np.complex128)
    results = dict(zip(names, run(names, backends, operands), strict=True))
    with mpmath.workprec(1200):
        for place, (name, x, y) in enumerate(EXTREME):
            want = (mpmath_of.get(name) or getattr(mpmath, name))(mpmath.mpc(x, y))
            assert_near(results[name][place], want, f"{name}({x}, {y})", mpmath)


def assert_near(got: complex, want: Any, about: str, mpmath: Any) -> None:
    """Within 3 units in the last place of the absolute value; infinite where, and only where, it is out of range."""
    for part, exact in ((got.real, want.real), (got.imag, want.imag)):
        if abs(exact) > np.finfo(np.float64).max:
            assert np.isinf(part) and (part > 0) == (exact > 0), f"{about}: {got}"
        else:
            allowed = 3 * mpmath.mpf(2) ** -52 * abs(want) + mpmath.mpf(5e-324)
            assert np.isfinite(part) and abs(mpmath.mpf(float(part)) - exact) <= allowed, f"{about}: {got}"


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_quotients_of_huge_and_tiny_numbers(backends: tuple[str, ...]) -> None:
    mpmath = pytest.importorskip("mpmath")
    random = np.random.default_rng(3)
    sizes = np.array([0.0, 5e-324, 1e-310, 1e-160, 1e-5, 1.0, 3.0, 1e160, 8e307, 1.7e308])
    x, y = (
        complex_of(list(random.choice(sizes, (400, 2)) * random.choice([-1, 1], (400, 2))), np.complex128) for _ in "xy"
    )
    x, y = x[y != 0], y[y != 0]
    (quotients,) = run(("divide",), backends, x, y)
    with mpmath.workprec(2300):
        for one, other, got in zip(x, y, quotients, strict=True):
            want = mpmath.mpc(one.real, one.imag) / mpmath.mpc(other.real, other.imag)
            assert_near(got, want, f"{one} / {other}", mpmath)


#: Dividend, divisor, quotient (C99, Annex G.5.1).
QUOTIENTS = (
    ((1.0, 2.0), (INF, -INF), (0.0, 0.0)),
    ((0.0, -2.0), (NAN, INF), (0.0, 0.0)),
    ((INF, INF), (1.0, 2.0), (INF, NAN)),
    ((-INF, NAN), (1.0, 0.0), (-INF, NAN)),
    ((-INF, 1.0), (-0.0, 0.0), (INF, -INF)),
    ((1.0, 1.0), (0.0, 0.0), (INF, INF)),
    ((0.0, 0.0), (0.0, 0.0), (NAN, NAN)),
    ((INF, 1.0), (INF, 1.0), (NAN, NAN)),
)


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_quotients_of_infinities_and_by_zero(backends: tuple[str, ...], dtype: type) -> None:
    x, y, want = (complex_of(list(column), dtype) for column in zip(*QUOTIENTS, strict=True))
    (got,) = run(("divide",), backends, x, y)
    np.testing.assert_array_equal(got.real, want.real)
    np.testing.assert_array_equal(got.imag, want.imag)
