"""One step of a reduction: a monoid applied to two arrays of one element type.

The rules by element type:

- ``i1``: add and maximum are OR, multiply and minimum are AND.
- Integers wrap, sub-byte ones as well.
- Maximum and minimum propagate NaN, and -0 is less than +0 (IEEE-754 maximum and minimum). Complex numbers compare
  lexicographically, real part first; of equal ones the first operand is taken.
- A product of complex numbers rounds each of its terms, as plain multiplications and additions do.

The result for an element depends only on its two operands, not on its position in the array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from collectives.arrays import Array, DType, bits_dtype
from collectives.element_types import integer_limits, is_float, is_integer
from collectives.monoids import LOGICAL_UFUNCS, UFUNCS

#: ``step(a, b, out=out)`` on contiguous vectors; ``out`` may be one of the operands.
Step = Callable[..., object]

_BLOCK = 1 << 14  # elements per block of a step of several passes, so that they stay in cache


@cache
def step_of(name: str, dtype: DType) -> Step:
    """Return the step of the monoid ``name`` on ``dtype``. Raises TypeError if undefined (``or`` of floats)."""
    if dtype == np.bool_:
        return LOGICAL_UFUNCS[name]
    if name in ("and", "or", "xor") and not is_integer(dtype):
        raise TypeError(f"{name} is a reduction of booleans and integers, not of {dtype}")
    if dtype.itemsize == 1 and dtype.kind not in "iu":
        return _looked_up(name, dtype)
    if dtype.kind == "c":
        return in_blocks(_complex_product) if name == "multiply" else UFUNCS[name]
    if not is_float(dtype):
        return UFUNCS[name]
    return in_blocks(_extremum(name, dtype)) if name in ("minimum", "maximum") else UFUNCS[name]


def in_blocks(step: Step) -> Step:
    """Return ``step`` applied block by block."""

    def call(a: Array, b: Array, out: Array) -> None:
        for start in range(0, a.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            step(a[block], b[block], out=out[block])

    return call


def _extremum(name: str, dtype: DType) -> Step:
    """Return NumPy's maximum or minimum with IEEE signs of zeros, which NumPy leaves unspecified."""
    ufunc, bits = UFUNCS[name], bits_dtype(dtype)
    # Of zeros, the maximum is -0 if both operands are, the minimum if one is.
    meet = np.bitwise_and if name == "maximum" else np.bitwise_or
    sign = np.array(-0.0).astype(dtype).view(bits)
    magnitude = np.invert(sign)

    def step(a: Array, b: Array, out: Array) -> None:
        result = ufunc(a, b)
        codes = result.view(bits)
        if not (result if result.dtype.kind == "f" else codes & magnitude).all():
            signs = meet(a.view(bits), b.view(bits)) & sign
            np.copyto(codes, signs, where=(codes & magnitude) == 0)
        np.copyto(out, result)

    return step


def _complex_product(a: Array, b: Array, out: Array) -> None:
    real, imaginary = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
    out.real, out.imag = real, imaginary


def _looked_up(name: str, dtype: DType) -> Step:
    """Return a step on one-byte elements by a table of the results of all pairs."""
    table = _pairs(name, dtype)

    def step(a: Array, b: Array, out: Array) -> None:
        index = a.view(np.uint8).astype(np.uint16)
        index <<= np.uint16(8)
        index |= b.view(np.uint8)
        np.copyto(out.view(np.uint8), table.take(index))

    return in_blocks(step)


@cache
def _pairs(name: str, dtype: DType) -> Array:
    """Return the result code for every pair of codes, the first operand's in the high byte."""
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    wide = np.dtype(np.int16 if is_integer(dtype) else np.float64)
    values = codes.astype(wide)
    first, second = (np.ascontiguousarray(v).reshape(-1) for v in np.broadcast_arrays(values[:, None], values))
    results = np.empty_like(first)
    with np.errstate(all="ignore"):
        step_of(name, wide)(first, second, out=results)
        return _narrowed(results, dtype).view(np.uint8)


def _narrowed(results: Array, dtype: DType) -> Array:
    """Return integers with their low bits kept, floats rounded."""
    if not is_integer(dtype):
        return results.astype(dtype)
    low, high = integer_limits(dtype)
    return ((results - low) % (high - low + 1) + low).astype(np.int8).astype(dtype)
