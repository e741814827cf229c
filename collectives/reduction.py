"""Reductions: the named monoids, custom folds, and the arithmetic in which each is carried out.

One meaning for every transport:

* ``i1``: add and maximum are OR, multiply and minimum are AND.
* maximum and minimum propagate NaN; complex numbers compare lexicographically, real part first.
* Floating-point types of at most 16 bits are added and multiplied in f32 and rounded once, at the end. The
  specification rounds after each step; rounding once is never less accurate and is what XLA does on CPUs.
* Integers wrap. Types below a byte compute in 8 bits and keep their low bits, which is the same.
* The order is a left fold in group order, ``f(f(x0, x1), x2)``: an in-order tree, as all_reduce demands. MPI may
  associate native reductions otherwise unless they are asked to be reproducible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Fold = Callable[[Array, Array], Array]
_iinfo: Callable[[Any], Any] = ml_dtypes.iinfo


@dataclass(frozen=True)
class Reduction:
    """A named monoid, or an elementwise ``fold`` of two arrays of any one shape.

    Two reductions are the same when their names are: a custom fold's name tells what it computes.
    """

    name: str
    fold: Fold | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


ADD = Reduction("add")
MULTIPLY = Reduction("multiply")
MINIMUM = Reduction("minimum")
MAXIMUM = Reduction("maximum")
AND = Reduction("and")
OR = Reduction("or")
XOR = Reduction("xor")
MONOIDS = {r.name: r for r in (ADD, MULTIPLY, MINIMUM, MAXIMUM, AND, OR, XOR)}

_BOOL: dict[str, np.ufunc] = {
    "add": np.logical_or, "or": np.logical_or, "maximum": np.logical_or,
    "multiply": np.logical_and, "and": np.logical_and, "minimum": np.logical_and,
    "xor": np.logical_xor,
}  # fmt: skip
_NUMBER: dict[str, np.ufunc] = {
    "add": np.add, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@dataclass(frozen=True)
class Arithmetic:
    """How a reduction of arrays of ``dtype`` is carried out: steps of ``step(a, b, out)`` in ``accumulator``."""

    reduction: Reduction
    dtype: np.dtype[Any]
    accumulator: np.dtype[Any]
    ufunc: np.ufunc | None

    def widen(self, array: Array, copy: bool = False) -> Array:
        """``array`` in the accumulator's type: a C-contiguous array, its own unless the types are the same."""
        table = _widening(self.dtype) if self.accumulator == np.float32 else None
        if table is None:
            return array.astype(self.accumulator, order="C", copy=copy)
        return np.asarray(np.take(table, array.view(np.dtype(f"u{self.dtype.itemsize}"))))

    @property
    def exact(self) -> bool:
        """Whether the result is the same in any order: of booleans and integers, for one of the monoids."""
        return self.ufunc is not None and (self.dtype == np.bool_ or is_integer(self.dtype))

    def fold(self, slabs: Sequence[Array]) -> Array:
        """The left fold of ``slabs`` (one shape, ``dtype`` each): a new array of the same shape and dtype."""
        with np.errstate(all="ignore"):
            if self.ufunc is None:
                assert self.reduction.fold is not None
                result = slabs[0]
                for slab in slabs[1:]:
                    result = np.asarray(self.reduction.fold(result, slab))
                return np.array(result, dtype=self.dtype)
            total = self.widen(slabs[0], copy=True)
            signed_zero = _SIGNED_ZERO.get(self.reduction.name) if _is_float(self.dtype) else None
            for slab in slabs[1:]:
                term = self.widen(slab)
                if signed_zero is not None:
                    total = signed_zero(total, term)
                else:
                    self.ufunc(total, term, out=total)
            return np.asarray(total, dtype=self.dtype)


@cache
def arithmetic(reduction: Reduction, dtype: np.dtype[Any]) -> Arithmetic:
    """The arithmetic of ``reduction`` on ``dtype``. Raises TypeError where it has no meaning (``or`` of floats)."""
    if reduction.fold is not None:
        return Arithmetic(reduction, dtype, dtype, None)
    if dtype == np.bool_:
        return Arithmetic(reduction, dtype, dtype, _BOOL[reduction.name])
    integer = is_integer(dtype)
    if reduction.name in ("and", "or", "xor") and not integer:
        raise TypeError(f"{reduction} is a reduction of booleans and integers, not of {dtype}")
    accumulator = dtype
    if integer and bit_width(dtype) < 8:
        accumulator = np.dtype(np.int8 if np.issubdtype(dtype, np.signedinteger) or is_signed(dtype) else np.uint8)
    elif not integer and dtype.itemsize <= 2 and reduction.name in ("add", "multiply"):
        accumulator = np.dtype(np.float32)
    return Arithmetic(reduction, dtype, accumulator, _NUMBER[reduction.name])


@cache
def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` is an integer type, those of ml_dtypes included."""
    if dtype.kind in "iu":
        return True
    try:
        _iinfo(dtype)
    except ValueError:
        return False
    return True


@cache
def is_signed(dtype: np.dtype[Any]) -> bool:
    """Whether the integer type ``dtype`` has negative values."""
    return int(_iinfo(dtype).min) < 0


@cache
def bit_width(dtype: np.dtype[Any]) -> int:
    """The bits that carry information in an element (4 for int4, though NumPy keeps it in a byte)."""
    if dtype == np.bool_ or dtype.kind == "c":
        return dtype.itemsize * 8
    info = _iinfo if is_integer(dtype) else ml_dtypes.finfo
    return int(info(dtype).bits)


@cache
def _widening(dtype: np.dtype[Any]) -> Array | None:
    """The f32 of every f16, or of every float of 8 bits and less, by its bits: faster than converting one by one."""
    if dtype.kind in "biu" or is_integer(dtype) or (dtype.itemsize == 2 and dtype != np.float16) or dtype.itemsize > 2:
        return None
    codes = np.arange(1 << 8 * dtype.itemsize).astype(np.dtype(f"u{dtype.itemsize}"))
    return codes.view(dtype).astype(np.float32)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype != np.bool_ and dtype.kind != "c" and not is_integer(dtype)


def _maximum(a: Array, b: Array) -> Array:
    """IEEE-754 maximum: NumPy's leaves open which of +0 and -0 it returns, addition does not."""
    result = np.maximum(a, b)
    zero = (a == 0) & (b == 0)
    return np.where(zero, a + b, result) if zero.any() else result


def _minimum(a: Array, b: Array) -> Array:
    """IEEE-754 minimum, zeros ordered by sign."""
    result = np.minimum(a, b)
    zero = (a == 0) & (b == 0)
    return np.where(zero, -(-a + -b), result) if zero.any() else result


_SIGNED_ZERO: dict[str, Fold] = {"maximum": _maximum, "minimum": _minimum}
