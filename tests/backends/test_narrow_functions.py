"""Functions of 16-bit floats: every value of both types, in both back ends, is the exact result rounded once.

The functions' f64 results are rounded here; where one lies so near the middle of two numbers that its own error could
matter, mpmath decides.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import scipy.special

import spmd
from spmd.support.arrays import Array
from spmd.types import ELEMENT_TYPES

#: Two f64 functions apart by as little as this give the same 16 bits.
NEAR = 2.0**-40


def _logistic(x: Array) -> Array:
    return np.asarray(np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))))


def _lgamma(x: Array) -> Array:
    return np.asarray(np.where(np.isinf(x), np.inf, scipy.special.gammaln(x)))


def _digamma(x: Array) -> Array:
    return np.asarray(np.where((x <= 0) & (x == np.floor(x)), np.nan, scipy.special.digamma(x)))


#: The functions in f64, and exactly.
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Any], Any]]] = {
    "stablehlo.cbrt": (np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))),
    "stablehlo.cosine": (np.cos, mpmath.cos),
    "stablehlo.exponential": (np.exp, mpmath.exp),
    "stablehlo.exponential_minus_one": (np.expm1, mpmath.expm1),
    "stablehlo.log": (np.log, mpmath.log),
    "stablehlo.log_plus_one": (np.log1p, mpmath.log1p),
    "stablehlo.logistic": (_logistic, lambda x: 1 / (1 + mpmath.exp(-x))),
    "stablehlo.rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x)),
    "stablehlo.sine": (np.sin, mpmath.sin),
    "stablehlo.sqrt": (np.sqrt, mpmath.sqrt),
    "stablehlo.tan": (np.tan, mpmath.tan),
    "stablehlo.tanh": (np.tanh, mpmath.tanh),
    "chlo.acos": (np.arccos, mpmath.acos),
    "chlo.acosh": (np.arccosh, mpmath.acosh),
    "chlo.asin": (np.arcsin, mpmath.asin),
    "chlo.asinh": (np.arcsinh, mpmath.asinh),
    "chlo.atan": (np.arctan, mpmath.atan),
    "chlo.atanh": (np.arctanh, mpmath.atanh),
    "chlo.bessel_i1e": (
        lambda x: np.copysign(np.where(np.abs(x) < NEAR, np.nextafter(x / 2, 0), scipy.special.i1e(x)), x),
        lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
    ),
    "chlo.cosh": (np.cosh, mpmath.cosh),
    "chlo.digamma": (_digamma, mpmath.digamma),
    "chlo.erf": (scipy.special.erf, mpmath.erf),
    "chlo.erf_inv": (lambda x: np.copysign(scipy.special.erfinv(x), x), mpmath.erfinv),
    "chlo.erfc": (scipy.special.erfc, mpmath.erfc),
    "chlo.lgamma": (_lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x)))),
    "chlo.sinh": (np.sinh, mpmath.sinh),
    "chlo.square": (np.square, lambda x: x * x),
}
#: Digits, the smallest number's exponent, the largest number.
FORMATS = {"f16": (11, -24, 65504.0), "bf16": (8, -133, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max))}


def _rounded(values: Array, element: str) -> Array:
    """The nearest numbers of the type, halves to even, as f64."""
    digits, smallest, largest = FORMATS[element]
    step = np.maximum(np.frexp(values)[1] - digits, smallest)
    nearest = np.ldexp(np.rint(np.ldexp(values, -step)), step)
    return np.asarray(np.where(np.abs(nearest) > largest, np.copysign(np.inf, nearest), nearest))


def _expected(name: str, element: str, x: Array) -> Array:
    double, exact = FUNCTIONS[name]
    values = double(x)
    below, above = (_rounded(values * (1 + sign * NEAR), element) for sign in (-1, 1))
    result = _rounded(values, element)
    with mpmath.workprec(160):
        for place in np.flatnonzero((below != above) & np.isfinite(values)):
            # one more digit than it takes to see the side of the middle, which no function has at a 16-bit number
            value = exact(mpmath.mpf(float(x[place])))
            gap = value - (mpmath.mpf(float(below[place])) + mpmath.mpf(float(above[place]))) / 2
            if np.isfinite(below[place]) and np.isfinite(above[place]) and gap != 0:
                larger = max(below[place], above[place])
                result[place] = larger if gap > 0 else min(below[place], above[place])
    return result


@pytest.mark.parametrize("element", FORMATS)
def test_every_value_is_rounded_once(element: str) -> None:
    dtype = np.dtype(np.float16) if element == "f16" else np.dtype(ml_dtypes.bfloat16)
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    one = f"tensor<{x.size}x{element}>"
    lines = [f"%r{k} = {name} %x : {'' if name[0] == 's' else one + ' -> '}{one}" for k, name in enumerate(FUNCTIONS)]
    names, types = (", ".join(each) for each in ([f"%r{k}" for k in range(len(lines))], [one] * len(lines)))
    body = "\n".join(lines)
    module = spmd.parse(f"func.func @main(%x: {one}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}")
    native, plain = (spmd.compile(module, backends=each)(x) for each in (("llvm", "numpy"), ("numpy",)))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        for name, first, second in zip(FUNCTIONS, native, plain, strict=True):
            expected = _expected(name, element, wide)
            for backend, result in (("llvm", first), ("numpy", second)):
                message = f"{name} of {element} by {backend}"
                np.testing.assert_array_equal(result.astype(np.float64), expected, err_msg=message)
                signs = np.signbit(result.astype(np.float64)) == np.signbit(expected)
                assert (signs | np.isnan(expected)).all(), message


@pytest.mark.parametrize("element", FORMATS)
def test_pairs_are_rounded_once(element: str) -> None:
    """power and atan2 of drawn pairs, the same in both back ends and the f64 result rounded once."""
    dtype = np.dtype(np.float16) if element == "f16" else np.dtype(ml_dtypes.bfloat16)
    rng = np.random.default_rng(3)
    x, y = (rng.integers(0, 1 << 16, 1 << 18).astype(np.uint16).view(dtype) for _ in range(2))
    x[: 1 << 17] = (x[: 1 << 17].view(np.uint16) & 0x7FFF).view(dtype)
    y[1 << 16 : 1 << 17] = rng.normal(size=1 << 16).astype(np.float32).astype(dtype)
    one = f"tensor<{x.size}x{element}>"
    text = f"""func.func @main(%x: {one}, %y: {one}) -> ({one}, {one}) {{
      %p = stablehlo.power %x, %y : {one}
      %a = stablehlo.atan2 %x, %y : {one}
      return %p, %a : {one}, {one}
    }}"""
    with np.errstate(all="ignore"):
        wide = [each.astype(np.float64) for each in (x, y)]
        expected = [np.power(*wide), np.arctan2(*wide)]
        sure = [_rounded(each * (1 - NEAR), element) == _rounded(each * (1 + NEAR), element) for each in expected]
        for backends in (("llvm", "numpy"), ("numpy",)):
            results = spmd.compile(spmd.parse(text), backends=backends)(x, y)
            for result, value, known in zip(results, expected, sure, strict=True):
                np.testing.assert_array_equal(result.astype(np.float64)[known], _rounded(value, element)[known])


@pytest.mark.parametrize(
    "element", ["f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E5M2", "f8E4M3FN", "f8E4M3FNUZ", "f8E8M0FNU"]
)
def test_all_pairs_of_small_floats_agree(element: str) -> None:
    """power and atan2 in both back ends; a result that is no number is the same zero, or NaN."""
    bits = ELEMENT_TYPES[element].bits
    values = np.arange(1 << bits, dtype=np.uint8).view(ELEMENT_TYPES[element].dtype)
    x, y = np.repeat(values, values.size), np.tile(values, values.size)
    one = f"tensor<{x.size}x{element}>"
    text = f"""func.func @main(%x: {one}, %y: {one}) -> ({one}, {one}) {{
      %p = stablehlo.power %x, %y : {one}
      %a = stablehlo.atan2 %x, %y : {one}
      return %p, %a : {one}, {one}
    }}"""
    native, plain = (spmd.compile(spmd.parse(text), backends=each)(x, y) for each in (("llvm", "numpy"), ("numpy",)))
    for first, second in zip(native, plain, strict=True):
        one_way, other = (each.astype(np.float64) for each in (first, second))
        unordered = np.isnan(one_way) & np.isnan(other)
        assert (((one_way == other) & (np.signbit(one_way) == np.signbit(other))) | unordered).all()
