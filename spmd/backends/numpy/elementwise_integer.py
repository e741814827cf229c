"""Integer arithmetic with XLA's edge cases, on whole arrays.

Division by zero gives all ones, remainder by zero the dividend, the least integer divided by -1 itself; a shift past
the width gives zero, or the sign for an arithmetic one; shift amounts are unsigned. Source: specification, "divide",
"remainder", "power", "shift_*"; what it leaves open, as XLA's CPU backend does it.

Every function takes operands of one integer dtype of 8 to 64 bits and `out=`, which may be an operand.
"""

from __future__ import annotations

import numpy as np

from spmd.backends.kernels import Call
from spmd.backends.numpy.pointwise import keep
from spmd.support.arrays import Array, DType

_SIGNED = {dtype.itemsize: dtype for dtype in map(np.dtype, (np.int8, np.int16, np.int32, np.int64))}
_UNSIGNED = {dtype.itemsize: dtype for dtype in map(np.dtype, (np.uint8, np.uint16, np.uint32, np.uint64))}


def divide_unsigned(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return x / y rounded down; all ones for y = 0."""
    if np.count_nonzero(y) == y.size:
        return np.floor_divide(x, y, out=out)
    quotient = np.floor_divide(x, y)
    return keep(np.where(y == 0, ~np.zeros((), quotient.dtype), quotient), out)


def divide_signed(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return x / y rounded towards zero; -1 for y = 0; the least integer by -1 is itself."""
    if np.count_nonzero(y) == y.size:
        return truncated_quotient(x, y, out)
    quotient = truncated_quotient(x, y)
    return keep(np.where(y == 0, np.array(-1, quotient.dtype), quotient), out)


def truncated_quotient(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return x / y rounded towards zero, for nonzero y."""
    quotient = np.floor_divide(x, y)
    inexact = np.multiply(quotient, y) != x
    inexact &= np.bitwise_xor(x, y) < 0
    result: Array = np.add(quotient, inexact, out=out, dtype=quotient.dtype)
    return result


def remainder(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return the remainder of division towards zero, with the sign of x; x for y = 0."""
    if np.count_nonzero(y) == y.size:
        return np.fmod(x, y, out=out)
    return keep(np.where(y == 0, x, np.fmod(x, y)), out)


def power_signed(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return x to the power y, wrapped; for negative y: exact for 1 and -1, 0 for any other x."""
    negative = y < 0
    if not np.count_nonzero(negative):
        return np.power(x, y, out=out)
    unit = (x == 1) | (x == -1)
    result = np.power(x, np.where(negative, y & 1, y))
    return keep(np.where(negative & ~unit, np.zeros((), result.dtype), result), out)


def shift_as(function: Call, dtype: DType, *, signed: bool) -> Call:
    """Return a shift of `dtype` operands computed on signed or unsigned integers of its width."""
    other = (_SIGNED if signed else _UNSIGNED)[dtype.itemsize]
    if other == dtype:
        return function

    def call(x: Array, y: Array, out: Array | None = None) -> Array:
        if out is None:
            return function(x.view(other), y.view(other)).view(dtype)
        function(x.view(other), y.view(other), out=out.view(other))
        return out

    return call


def population_count(dtype: DType) -> Call:
    """Return a function to the number of one bits, in two's complement."""
    unsigned = _UNSIGNED[dtype.itemsize]

    def call(x: Array, out: Array | None = None) -> Array:
        count = np.bitwise_count(x.view(unsigned))
        return count.astype(dtype) if out is None else keep(count, out)

    return call


def leading_zeros(dtype: DType) -> Call:
    """Return a function to the number of leading zero bits; the width for zero."""
    unsigned = _UNSIGNED[dtype.itemsize]
    width = 8 * dtype.itemsize
    steps = [unsigned.type(1 << power) for power in range(width.bit_length() - 1)]

    def call(x: Array, out: Array | None = None) -> Array:
        smeared = x.view(unsigned)
        for step in steps:
            smeared = smeared | (smeared >> step)
        count = np.bitwise_count(~smeared)
        return count.astype(dtype) if out is None else keep(count, out)

    return call


def high_product(dtype: DType) -> Call:
    """Return the upper half of the product of two N-bit integers, as an N-bit integer (chlo.mulhi)."""
    width = 8 * dtype.itemsize
    if width < 64:
        wide = (_SIGNED if dtype.kind == "i" else _UNSIGNED)[2 * dtype.itemsize]

        def call(x: Array, y: Array, out: Array | None = None) -> Array:
            product = np.multiply(x, y, dtype=wide) >> wide.type(width)
            return product.astype(dtype) if out is None else _narrow(product, out)

        return call
    return _high_product_64 if dtype.kind == "u" else _high_product_signed_64


def _narrow(product: Array, out: Array) -> Array:
    np.copyto(out, product, casting="unsafe")
    return out


def _high_product_64(x: Array, y: Array, out: Array | None = None) -> Array:
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x_low, x_high, y_low, y_high = x & low, x >> half, y & low, y >> half
    carry = (x_low * y_low) >> half
    middle = x_high * y_low + carry
    crossed = x_low * y_high + (middle & low)
    return keep(x_high * y_high + (middle >> half) + (crossed >> half), out)


def _high_product_signed_64(x: Array, y: Array, out: Array | None = None) -> Array:
    high = _high_product_64(x.view(np.uint64), y.view(np.uint64)).view(np.int64)
    return keep(high - np.where(x < 0, y, 0) - np.where(y < 0, x, 0), out)
