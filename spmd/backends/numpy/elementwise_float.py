"""Real functions where NumPy's ufunc alone is not what the specification says.

Each takes f32 or f64 arrays and `out=`, which may be an operand; narrower types go through
spmd.backends.numpy.pointwise.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from spmd.backends.numpy.core import Call
from spmd.backends.numpy.pointwise import keep, larger, smaller
from spmd.support.arrays import Array, DType, bits_dtype

_BITS = {dtype: bits_dtype(dtype) for dtype in (np.dtype(np.float32), np.dtype(np.float64))}
#: Constants by dtype: a Python number would be converted at every call.
_ZERO = {dtype: dtype.type(0) for dtype in _BITS}
_ONE = {dtype: dtype.type(1) for dtype in _BITS}
#: Up to this many elements it is quicker to look for zeros than to settle their signs.
_SMALL = 1024


def maximum(x: Array, y: Array, out: Array | None = None) -> Array:
    """IEEE-754 maximum: NaN propagates and +0 is above -0 (f32, f64).

    np.maximum settles equal operands by their order; both orders give the same bits but for zeros of two signs,
    where `and` of the bits is +0.
    """
    one = larger(x, y)
    if one.size <= _SMALL and np.count_nonzero(one) == one.size:
        return keep(one, out)
    return _combine(np.bitwise_and, one, larger(y, x), out)


def minimum(x: Array, y: Array, out: Array | None = None) -> Array:
    """IEEE-754 minimum: NaN propagates and -0 is below +0 (f32, f64)."""
    one = smaller(x, y)
    if one.size <= _SMALL and np.count_nonzero(one) == one.size:
        return keep(one, out)
    return _combine(np.bitwise_or, one, smaller(y, x), out)


def _combine(function: np.ufunc, one: Array, other: Array, out: Array | None) -> Array:
    bits = _BITS[one.dtype]
    if out is None:
        combined: Array = function(one.view(bits), other.view(bits))
        return combined.view(one.dtype)
    function(one.view(bits), other.view(bits), out=out.view(bits))
    return out


def maximum_with_zero(x: Array, y: Array, out: Array | None = None) -> Array:
    """`maximum` where one operand is +0 throughout: the result is never -0."""
    result = larger(x, y, out=out)
    signed: Array = np.add(result, _ZERO[x.dtype], out=result if result.ndim else None)
    return signed


def maximum_of_zero_and(x: Array, y: Array, out: Array | None = None) -> Array:
    """`maximum` with its operands exchanged, for a NumPy of `second_zero_wins`: `x` is +0 throughout."""
    return larger(y, x, out=out)


@cache
def second_zero_wins(dtype: DType) -> bool:
    """Whether NumPy's maximum of -0 and a second operand of +0 is +0 here, as x86's own instruction has it.

    IEEE 754 leaves the sign to the implementation; vectors, their remainders, rows and strided loops are all tried.
    """
    zero = dtype.type(0)
    sizes = (1, 2, 3, 5, 9, 17, 33, 70, 131, 1 << 15)
    minus = (np.full(size, -0.0, dtype)[::step] for size in sizes for step in (1, 2))
    return not any(np.signbit(larger(zeros, zero)).any() for zeros in minus)


def clamp(low: Array, x: Array, high: Array, out: Array | None = None) -> Array:
    """minimum(maximum(x, low), high) for types without NaN or signed zero to settle."""
    return smaller(larger(x, low), high, out=out)


def clamp_floats(low: Array, x: Array, high: Array) -> Array:
    """minimum(maximum(x, low), high) of f32 or f64."""
    return minimum(maximum(x, low), high)


def sign(x: Array, out: Array | None = None) -> Array:
    """-1, 1, the zero itself with its sign, or NaN."""
    return np.copysign(np.sign(x), x, out=out)


def rsqrt(x: Array, out: Array | None = None) -> Array:
    """1 / sqrt(x); -0 gives -infinity."""
    return np.reciprocal(np.sqrt(x, out=out), out=out)


def power(x: Array, y: Array, out: Array | None = None) -> Array:
    """x to the y, of f64; squares, reciprocals and square roots rounded once.

    NumPy rounds these once where the exponent is one number for all elements, and not where it is an array.
    """
    if y.size == 1 and y.ndim <= x.ndim and (exact := _EXACT_POWERS.get(float(y.reshape(())[()]))) is not None:
        return exact(x, out=out)
    x, y = np.broadcast_arrays(x, y)
    shape = x.shape
    x, y = (np.ascontiguousarray(operand).reshape(-1) for operand in (x, y))
    # a single exponent counts as one for all
    result = np.power(x, y) if x.size != 1 else np.power(np.repeat(x, 2), np.repeat(y, 2))[:1]
    for exponent, exact in _EXACT_POWERS.items():
        chosen = y == exponent
        if np.count_nonzero(chosen):
            result[chosen] = exact(x[chosen])
    result[np.isnan(result)] = np.nan  # of no sign, which types without NaN would keep in their zero
    return keep(result.reshape(shape), out)


_EXACT_POWERS: dict[float, Call] = {
    2.0: np.square,
    -1.0: np.reciprocal,
    0.5: lambda x, out=None: np.abs(np.sqrt(np.where(x == -np.inf, np.inf, x)), out=out),
}


def logistic(x: Array, out: Array | None = None) -> Array:
    """1 / (1 + exp(-x))."""
    result = np.negative(x, out=out)
    if out is None and result.ndim:
        out = result
    above_one: Array = np.add(np.exp(result, out=out), _ONE[x.dtype], out=out)
    return np.reciprocal(above_one, out=out)


def round_half_away(x: Array, out: Array | None = None) -> Array:
    """The nearest integer, halves away from zero."""
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    rounded: Array = np.copysign(np.abs(whole) + away, x, out=out, dtype=np.asarray(x).dtype)
    return rounded
