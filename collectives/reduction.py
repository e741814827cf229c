"""Reductions: the named monoids, custom folds, and how each is carried out.

One meaning for every transport, and the one of the specification's reducer on the element type, which is also what
``stablehlo.reduce`` computes: each step gives a value of the element type (collectives.steps). A sum of bf16, f16 or
f8 is rounded after every addition. XLA may carry such sums in f32 and round once; the specification has no such
freedom (all_reduce: "computation" is applied to the results of "computation"), and rounding at each step makes a
reduction over processes and one over a dimension agree.

The order is a left fold in group order, ``f(f(x0, x1), x2)``: an in-order tree, as all_reduce demands. MPI may
associate otherwise unless a reduction is asked to be reproducible. Where the order cannot show (booleans, integers,
maxima, minima), results are the same bits on every transport, but for the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.element_types import is_float, is_integer
from collectives.steps import Step, step_of

Array = npt.NDArray[Any]
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
    """How a reduction of arrays of ``dtype`` is carried out: ``step`` by step, or by the reduction's own fold."""

    reduction: Reduction
    dtype: np.dtype[Any]
    step: Step | None

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
        name, dtype = self.reduction.name, self.dtype
        if dtype == np.bool_ or name in ("and", "or", "xor"):
            return True
        if dtype.isbuiltin != 1 or dtype == np.float16:
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
            total = np.array(slabs[0], order="C")
            flat = total.reshape(-1)
            for slab in slabs[1:]:
                self.step(flat, slab.reshape(-1), out=flat)
            return total


@cache
def arithmetic(reduction: Reduction, dtype: np.dtype[Any]) -> Arithmetic:
    """The arithmetic of ``reduction`` on ``dtype``. Raises TypeError where it has no meaning (``or`` of floats)."""
    return Arithmetic(reduction, dtype, None if reduction.fold is not None else step_of(reduction.name, dtype))
