"""How far native functions of floats are off, in units in the last place.

`python -m tests.backends.llvm.ulp [FUNCTION ...]` runs through every f32, all 2^32 of them, and prints the worst of
each function: minutes each. The tests take every so many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import scipy.special

from spmd.analysis.scalar.expression import F32, F64, Primitive, expression, parameter
from spmd.backends.numpy import special
from spmd.types import ELEMENT_TYPES
from tests.backends.llvm.harness import Array, LoopForm, NativeLoop, native_loops

P = Primitive


def _logistic(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, small, 1) / (1 + small))


#: Functions of f64, by which f32 is measured.
DOUBLE: dict[Primitive, Callable[[Array], Array]] = {
    P.EXP: np.exp, P.EXPM1: np.expm1, P.LOG: np.log, P.LOG1P: np.log1p, P.LOGISTIC: _logistic, P.TANH: np.tanh,
    P.SINH: np.sinh, P.COSH: np.cosh, P.SIN: np.sin, P.COS: np.cos, P.TAN: np.tan, P.ASIN: np.arcsin,
    P.ACOS: np.arccos, P.ATAN: np.arctan, P.ASINH: np.arcsinh, P.ACOSH: np.arccosh, P.ATANH: np.arctanh,
    P.CBRT: np.cbrt, P.ERF: scipy.special.erf, P.ERFC: scipy.special.erfc, P.ERF_INV: scipy.special.erfinv,
    P.LGAMMA: scipy.special.gammaln, P.DIGAMMA: scipy.special.digamma, P.BESSEL_I1E: special.bessel_i1e,
}  # fmt: skip
#: Functions of 120 bits, by which f64 is measured.
LONG: dict[Primitive, Callable[[Any], Any]] = {
    P.EXP: mpmath.exp, P.EXPM1: mpmath.expm1, P.LOG: mpmath.log, P.LOG1P: mpmath.log1p,
    P.LOGISTIC: lambda x: 1 / (1 + mpmath.exp(-x)), P.TANH: mpmath.tanh, P.SINH: mpmath.sinh, P.COSH: mpmath.cosh,
    P.SIN: mpmath.sin, P.COS: mpmath.cos, P.TAN: mpmath.tan, P.ASIN: mpmath.asin, P.ACOS: mpmath.acos,
    P.ATAN: mpmath.atan, P.ASINH: mpmath.asinh, P.ACOSH: mpmath.acosh, P.ATANH: mpmath.atanh,
    P.CBRT: lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), P.ERF: mpmath.erf, P.ERFC: mpmath.erfc,
    P.ERF_INV: mpmath.erfinv, P.LGAMMA: lambda x: mpmath.log(abs(mpmath.gamma(x))), P.DIGAMMA: mpmath.digamma,
    P.BESSEL_I1E: lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
}  # fmt: skip


def native(function: Primitive, element: str, arity: int = 1, width: int = 16) -> NativeLoop:
    """The function on arrays of f32 or f64."""
    element_type = ELEMENT_TYPES[element]
    type = F32 if element == "f32" else F64
    operands = [parameter(index, type) for index in range(arity)]
    form = LoopForm([expression(function, type, operands)], [element_type] * arity, [element_type], width)
    return native_loops([form])[0]


def single_errors(got: Array, exact: Array) -> Array:
    """Errors of f32 results in ULP of the exact ones, which are f64."""
    size = np.abs(exact)
    unit = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 24, -149))
    overflow = (size >= 2.0**128 * (1 - 2.0**-25)) & np.isinf(got) & (np.sign(got) == np.sign(exact))
    right = overflow | (np.isnan(got) & np.isnan(exact)) | (got == exact)
    errors = np.where(right, 0.0, np.abs(got.astype(np.float64) - exact) / unit)
    return np.asarray(np.where(np.isnan(errors), np.inf, errors))


def double_error(got: float, exact: Any) -> float:
    """The error of an f64 result in ULP of the exact one."""
    unit = mpmath.mpf(2) ** max(mpmath.frexp(exact)[1] - 53, -1074)
    return float(abs(mpmath.mpf(got) - exact) / unit)


def worst_single(function: Primitive, step: int, first: int = 0) -> tuple[float, float]:
    """(the largest error in ULP, where) over every `step`-th f32, by bits."""
    run = native(function, "f32")
    chunk = step << 20
    worst = 0.0, 0.0
    for start in range(first, 1 << 32, chunk):
        bits = np.arange(start, min(start + chunk, 1 << 32), step, dtype=np.uint64).astype(np.uint32)
        x = bits.view(np.float32)
        with np.errstate(all="ignore"):
            errors = single_errors(run(x)[0], DOUBLE[function](x.astype(np.float64)))
        place = int(np.argmax(errors))
        worst = max(worst, (float(errors[place]), float(x[place])))
    return worst


if __name__ == "__main__":
    for name in sys.argv[1:] or [function.value for function in DOUBLE]:
        error, place = worst_single(P(name), 1)
        print(f"{name:10} {error:10.3f} ULP at {place!r}", flush=True)
