"""Reductions: the named monoids, custom folds, and their arithmetic.

The meaning is the same on every transport, and that of ``stablehlo.reduce`` in this project:

- Sums and products of floats of at most 16 bits are accumulated in f32 and rounded once, at the end. The specification
  rounds after each step; rounding once is never less accurate, is what XLA does, and makes results depend less on how
  processes are grouped: a sum of 4,096 ones in bf16 is 4,096, not 256.
- All other folds apply the element type's own steps (collectives.steps).
- The order is a left fold in group order, ``f(f(x0, x1), x2)``: an in-order tree, as all_reduce requires. MPI may
  associate differently unless a reduction is reproducible. Where association has no effect (booleans, integers, maxima,
  minima) results have the same bits on every transport, except for the payload of a NaN.
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
    """A named monoid, or an elementwise ``fold`` of two arrays of the same shape.

    Reductions are equal if their names are: the name of a custom fold must identify its computation.
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
    """The implementation of a reduction of arrays of ``dtype``: by ``step`` in ``accumulator``, or by its own fold."""

    reduction: Reduction
    dtype: DType
    accumulator: DType
    step: Step | None

    @property
    def widened(self) -> bool:
        """Whether the accumulator type differs from the element type."""
        return self.accumulator != self.dtype

    def widen(self, array: Array) -> Array:
        """Return ``array`` in the accumulator type, C-contiguous; not copied if it is already."""
        table = _widening(self.dtype) if self.widened else None
        if table is None:
            return array.astype(self.accumulator, order="C", copy=False)
        return np.asarray(np.take(table, array.view(bits_dtype(self.dtype))))

    @property
    def exact(self) -> bool:
        """Whether the result does not depend on the order: monoids of booleans and integers."""
        return self.step is not None and (self.dtype == np.bool_ or is_integer(self.dtype))

    @property
    def ordered(self) -> bool:
        """Whether the result depends on operand order alone: which of two equal complex numbers is taken."""
        return self.dtype.kind == "c" and self.reduction.name in ("minimum", "maximum")

    @property
    def native(self) -> bool:
        """Whether MPI's built-in operation is known to equal ``step``.

        Not for integers of 8 and 16 bits, which Open MPI adds with saturation; wider ones are added and multiplied as
        unsigned, which C defines to wrap. Not for maxima and minima of floats: MPI's neither propagate NaN nor respect
        the sign of zero. Not for products of complex numbers, whose infinities C recovers; nor for types that MPI does
        not have.
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
        """Return the left fold of ``slabs`` (one shape, ``dtype`` each): a new array of the same shape and dtype."""
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
        """Write the left fold of ``slabs``, two or more contiguous vectors, to ``out``, which is none of them."""
        if self.step is None or self.widened:
            out[...] = self.fold(slabs)
            return
        with np.errstate(all="ignore"):
            self.step(slabs[0], slabs[1], out=out)
            for slab in slabs[2:]:
                self.step(out, slab, out=out)


def arithmetic(reduction: Reduction, dtype: DType) -> Arithmetic:
    """Return the arithmetic of ``reduction`` on ``dtype``. Raises TypeError if undefined (``or`` of floats)."""
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
    """Return the f32 of every narrow float by its bits, or None where conversion is faster (bf16)."""
    if dtype.itemsize == 2 and dtype != np.float16:
        return None
    return np.arange(1 << 8 * dtype.itemsize).astype(bits_dtype(dtype)).view(dtype).astype(np.float32)
