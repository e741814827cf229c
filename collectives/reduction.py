"""Reductions: the named monoids, custom folds, and how each is carried out.

One meaning for every transport, which is that of ``stablehlo.reduce`` in this project too:

* Sums and products of floats of at most 16 bits are folded in f32 and rounded once, at the end. The specification
  rounds after each step; rounding once is never less accurate, is what XLA does, and makes results depend less on how
  processes are grouped: a sum of 4,096 ones in bf16 is 4,096, and not 256.
* All other folds are made of the element type's own steps (collectives.steps).
* The order is a left fold in group order, ``f(f(x0, x1), x2)``: an in-order tree, as all_reduce demands. MPI may
  associate otherwise unless a reduction is asked to be reproducible. Where the association cannot show (booleans,
  integers, maxima, minima) results are the same bits on every transport, but for the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from collectives.arrays import Array, DType, bits_dtype, numpy_has
from collectives.element_types import is_float, is_integer
from collectives.steps import Step, step_of

Fold = Callable[[Array, Array], Array]


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


@dataclass(frozen=True)
class Arithmetic:
    """How a reduction of arrays of ``dtype`` is carried out: by ``step`` in ``accumulator``, or by its own fold."""

    reduction: Reduction
    dtype: DType
    accumulator: DType
    step: Step | None

    @property
    def widened(self) -> bool:
        """Whether the accumulator is another type than the elements'."""
        return self.accumulator != self.dtype

    def widen(self, array: Array) -> Array:
        """``array`` in the accumulator's type, C-contiguous; itself where it is so already."""
        table = _widening(self.dtype) if self.widened else None
        if table is None:
            return array.astype(self.accumulator, order="C", copy=False)
        return np.asarray(np.take(table, array.view(bits_dtype(self.dtype))))

    @property
    def exact(self) -> bool:
        """Whether the result is the same in any order: of booleans and integers, for one of the monoids."""
        return self.step is not None and (self.dtype == np.bool_ or is_integer(self.dtype))

    @property
    def ordered(self) -> bool:
        """Whether the order of operands shows where their association does not: in which of equal complex is taken."""
        return self.dtype.kind == "c" and self.reduction.name in ("minimum", "maximum")

    @property
    def native(self) -> bool:
        """Whether MPI's own operation is known to be ``step``.

        Not for integers of 8 and 16 bits, which Open MPI adds with saturation; wider ones are added and multiplied as
        unsigned, which C defines to wrap. Not for maxima and minima of floats: MPI's neither propagate NaN nor
        see the sign of zero. Not for products of complex numbers, whose infinities C recovers; nor for types that
        MPI does not know.
        """
        if self.step is None:
            return False
        name, dtype = self.reduction.name, self.accumulator
        if dtype == np.bool_ or name in ("and", "or", "xor"):
            return True
        if not numpy_has(dtype) or dtype == np.float16:
            return False
        if name in ("minimum", "maximum"):
            return dtype.kind in "iu"
        if dtype.kind in "iu":
            return dtype.itemsize >= 4
        return is_float(dtype) or name == "add"

    def fold(self, slabs: Sequence[Array]) -> Array:
        """The left fold of ``slabs`` (one shape, ``dtype`` each): a new array of the same shape and dtype."""
        with np.errstate(all="ignore"):
            if self.step is None:
                assert self.reduction.fold is not None
                result = slabs[0]
                for slab in slabs[1:]:
                    result = np.asarray(self.reduction.fold(result, slab))
                return np.array(result, dtype=self.dtype)
            total = self.widen(slabs[0])
            if not total.size or np.may_share_memory(total, slabs[0]):
                total = total.copy()
            flat = total.reshape(-1)
            for slab in slabs[1:]:
                self.step(flat, self.widen(slab).reshape(-1), out=flat)
            return total.astype(self.dtype, copy=False)

    def fold_into(self, slabs: Sequence[Array], out: Array) -> None:
        """Writes the left fold of ``slabs``, two or more contiguous arrays of one dimension, to ``out``, another."""
        if self.step is None or self.widened:
            out[...] = self.fold(slabs)
            return
        with np.errstate(all="ignore"):
            self.step(slabs[0], slabs[1], out=out)
            for slab in slabs[2:]:
                self.step(out, slab, out=out)


def arithmetic(reduction: Reduction, dtype: DType) -> Arithmetic:
    """The arithmetic of ``reduction`` on ``dtype``. Raises TypeError where it has no meaning (``or`` of floats)."""
    if reduction.fold is not None:
        return Arithmetic(reduction, dtype, dtype, None)
    return _of_monoid(reduction, dtype)


@cache
def _of_monoid(reduction: Reduction, dtype: DType) -> Arithmetic:
    narrow = is_float(dtype) and dtype.itemsize <= 2 and reduction.name in ("add", "multiply")
    accumulator = np.dtype(np.float32) if narrow else dtype
    return Arithmetic(reduction, dtype, accumulator, step_of(reduction.name, accumulator))


@cache
def _widening(dtype: DType) -> Array | None:
    """The f32 of every float of 16 bits or less by its bits, where that is faster than converting: not of bf16."""
    if dtype.itemsize == 2 and dtype != np.float16:
        return None
    return np.arange(1 << 8 * dtype.itemsize).astype(bits_dtype(dtype)).view(dtype).astype(np.float32)
