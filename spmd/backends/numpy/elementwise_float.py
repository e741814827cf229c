"""Real functions for which NumPy's ufunc deviates from the specification.

Each takes f32 or f64 arrays and `out=`, which may be an operand; narrower types use spmd.backends.numpy.pointwise.
"""

from __future__ import annotations

import numpy as np

from spmd.backends.kernels import Call
from spmd.backends.numpy.pointwise import keep
from spmd.support.arrays import Array, bits_dtype


def maximum(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return the IEEE 754 maximum: NaN propagates and +0 is above -0 (f32, f64).

    np.maximum returns the first of equal operands; both orders differ for zeros of two signs only, whose bitwise `and`
    is +0.
    """
    return _combine(np.bitwise_and, np.maximum(x, y), np.maximum(y, x), out)


def minimum(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return the IEEE 754 minimum: NaN propagates and -0 is below +0 (f32, f64)."""
    return _combine(np.bitwise_or, np.minimum(x, y), np.minimum(y, x), out)


def _combine(function: np.ufunc, one: Array, other: Array, out: Array | None) -> Array:
    bits = bits_dtype(one.dtype)
    return keep(np.asarray(function(one.view(bits), other.view(bits))).view(one.dtype), out)


def clamp(low: Array, x: Array, high: Array, out: Array | None = None) -> Array:
    """Return minimum(maximum(x, low), high) for types without NaN or signed zeros."""
    return np.minimum(np.maximum(x, low), high, out=out)


def clamp_floats(low: Array, x: Array, high: Array, out: Array | None = None) -> Array:
    """Return minimum(maximum(x, low), high) of f32 or f64."""
    return minimum(maximum(x, low), high, out)


def sign(x: Array, out: Array | None = None) -> Array:
    """Return -1, 1, the signed zero itself, or NaN."""
    return np.copysign(np.sign(x), x, out=out)


def rsqrt(x: Array, out: Array | None = None) -> Array:
    """Return 1 / sqrt(x); -0 gives -infinity."""
    return np.reciprocal(np.sqrt(x, out=out), out=out)


#: 2^27 + 1, which splits an f64 into two halves whose products are exact.
_SPLITTER = 134217729.0


def cbrt(x: Array, out: Array | None = None) -> Array:
    """Return the cube root of f64 `x`, at most 0.51 ULP off; infinities, NaN and zeros are unchanged.

    np.cbrt is the C library's or SVML's, 1 to 3 ULP off. One Newton step with a residual in double-double rounds once,
    so that the result is independent of the start value.
    """
    mantissa, exponent = np.frexp(x)
    third = np.floor_divide(exponent, 3)
    number = np.ldexp(mantissa, exponent - 3 * third)  # in [1/2, 4): no product below overflows or underflows
    root = np.cbrt(number)
    square, square_low = _exact_product(root, root)
    cube, cube_low = _exact_product(square, root)
    with np.errstate(invalid="ignore"):  # 0 / 0, and infinity - infinity
        residual = (number - cube) - cube_low - square_low * root
        result = np.ldexp(root + residual / (3 * square), third)
    return keep(np.where(np.isfinite(result) & (x != 0), result, x), out)


def _exact_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the rounded product of f64 arrays and its rounding error (Dekker 1971)."""
    with np.errstate(invalid="ignore"):
        x_high, y_high = ((a * _SPLITTER) - (a * _SPLITTER - a) for a in (x, y))
        x_low, y_low, product = x - x_high, y - y_high, x * y
        error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def power(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return x to the y, of f64; squares, reciprocals and square roots are rounded once.

    NumPy rounds these once for a scalar exponent, but not for an array.
    """
    if y.size == 1 and y.ndim <= x.ndim and (exact := _EXACT_POWERS.get(float(y.reshape(())[()]))) is not None:
        return exact(x, out=out)
    x, y = np.broadcast_arrays(x, y)
    shape = x.shape
    x, y = (np.ascontiguousarray(operand).reshape(-1) for operand in (x, y))
    # a single exponent is a scalar to NumPy
    result = np.power(x, y) if x.size != 1 else np.power(np.repeat(x, 2), np.repeat(y, 2))[:1]
    for exponent, exact in _EXACT_POWERS.items():
        chosen = y == exponent
        if np.count_nonzero(chosen):
            result[chosen] = exact(x[chosen])
    result[np.isnan(result)] = np.nan  # unsigned NaN: types without NaN would keep its sign in their zero
    return keep(result.reshape(shape), out)


_EXACT_POWERS: dict[float, Call] = {
    2.0: np.square,
    -1.0: np.reciprocal,
    0.5: lambda x, out=None: np.abs(np.sqrt(np.where(x == -np.inf, np.inf, x)), out=out),
}


def logistic(x: Array, out: Array | None = None) -> Array:
    """Return 1 / (1 + exp(-x)); exp(x) where that is equal and exp(-x) may overflow."""
    tail = x < -700.0
    small = np.exp(x) if np.any(tail) else None  # before `out`, which may be x, is written
    result: Array = np.reciprocal(np.exp(np.negative(x)) + 1, out=out)
    return result if small is None else keep(np.where(tail, small, result), out)


def round_half_away(x: Array, out: Array | None = None) -> Array:
    """Return the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    rounded: Array = np.copysign(np.abs(whole) + away, x, out=out, dtype=np.asarray(x).dtype)
    return rounded
