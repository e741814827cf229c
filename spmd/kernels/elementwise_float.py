"""Real functions where NumPy's ufunc alone is not what the specification says.

Each takes f32 or f64 arrays (f16 where said) and `out=`, which may be an operand; narrower types go through
spmd.kernels.pointwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spmd.kernels.pointwise import Array, keep

_BITS = {np.dtype(np.float16): np.uint16, np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


def maximum(x: Any, y: Any, out: Array | None = None) -> Any:
    """IEEE-754 maximum: NaN propagates and +0 is above -0 (f16, f32, f64).

    np.maximum settles equal operands by their order; both orders give the same bits but for zeros of two signs,
    where `and` of the bits is +0.
    """
    one = np.maximum(x, y)
    bits = _BITS[one.dtype]
    other = np.maximum(y, x).view(bits)
    return _combine(np.bitwise_and, one, other, bits, out)


def minimum(x: Any, y: Any, out: Array | None = None) -> Any:
    """IEEE-754 minimum: NaN propagates and -0 is below +0 (f16, f32, f64)."""
    one = np.minimum(x, y)
    bits = _BITS[one.dtype]
    other = np.minimum(y, x).view(bits)
    return _combine(np.bitwise_or, one, other, bits, out)


def _combine(function: np.ufunc, one: Any, other: Any, bits: type, out: Array | None) -> Any:
    if out is None:
        return function(one.view(bits), other).view(one.dtype)
    function(one.view(bits), other, out=out.view(bits))
    return out


def maximum_with_zero(x: Any, y: Any, out: Array | None = None) -> Any:
    """`maximum` where one operand is +0 throughout: the result is never -0."""
    return np.add(np.maximum(x, y, out=out), 0.0, out=out)


def clamp(low: Any, x: Any, high: Any, out: Array | None = None) -> Any:
    """minimum(maximum(x, low), high) for types without NaN or signed zero to settle."""
    return np.minimum(np.maximum(x, low), high, out=out)


def sign(x: Any, out: Array | None = None) -> Any:
    """-1, 1, the zero itself with its sign, or NaN."""
    return np.copysign(np.sign(x), x, out=out)


def rsqrt(x: Any, out: Array | None = None) -> Any:
    """1 / sqrt(x); -0 gives -infinity."""
    return np.reciprocal(np.sqrt(x, out=out), out=out)


def logistic(x: Any, out: Array | None = None) -> Any:
    """1 / (1 + exp(-x))."""
    result = np.negative(x, out=out)
    if out is None:
        out = result if isinstance(result, np.ndarray) else None
    result = np.add(np.exp(result, out=out), 1, out=out)
    return np.reciprocal(result, out=out)


def round_half_away(x: Any, out: Array | None = None) -> Any:
    """The nearest integer, halves away from zero."""
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    return np.copysign(np.abs(whole) + away, x, out=out, dtype=np.asarray(x).dtype)


def remainder(x: Any, y: Any, out: Array | None = None) -> Any:
    """C's fmod: exact, with the sign of x."""
    return np.fmod(x, y, out=out)


def is_finite(x: Any, out: Array | None = None) -> Any:
    return np.isfinite(x, out=out)


def select(chosen: Any, x: Any, y: Any, out: Array | None = None) -> Any:
    """x where `chosen`, else y, of any dtype."""
    return keep(np.where(chosen, x, y), out)
