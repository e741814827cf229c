"""Stacked operands: the processes of many groups in one array, or in one value of a program.

``Stacks`` is the interface that an ``Operation`` uses to express its meaning on stacked operands. ``ARRAYS`` implements
it by NumPy; the compiler by the ops of a program. A stack has the shape ``(A, G, B, ...)``: A * B groups of G processes
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from collectives.arrays import Array, numpy_has
from collectives.element_types import element
from collectives.monoids import UFUNCS
from collectives.reduction import Arithmetic
from collectives.shapes import Shape

Order = npt.NDArray[np.int64]
T = TypeVar("T")


class Stacks(Protocol[T]):
    """Operations on stacks of one kind."""

    def reshape(self, x: T, shape: Shape) -> T:
        """Return the same elements in row-major order."""

    def transpose(self, x: T, permutation: Sequence[int]) -> T:
        """Return ``x`` with dimension ``permutation[i]`` as dimension i."""

    def fold(self, x: T, arithmetic: Arithmetic) -> T:
        """Return the left fold of dimension 1, which is kept with size 1."""

    def take(self, x: T, order: Order, fill: int) -> T:
        """Return the entries of dimension 1 at ``order``; ``fill`` where it is negative."""


class _Arrays:
    """NumPy arrays."""

    def reshape(self, x: Array, shape: Shape) -> Array:
        return x.reshape(shape)

    def transpose(self, x: Array, permutation: Sequence[int]) -> Array:
        return x.transpose(permutation)

    def fold(self, x: Array, arithmetic: Arithmetic) -> Array:
        return fold_first(np.moveaxis(x, 1, 0), arithmetic)[:, None]

    def take(self, x: Array, order: Order, fill: int) -> Array:
        taken = np.take(x, np.maximum(order, 0), axis=1)
        taken[:, order < 0] = element(x.dtype, fill)
        return taken


ARRAYS: Stacks[Array] = _Arrays()


def fold_first(slabs: Array, arithmetic: Arithmetic) -> Array:
    """Return the left fold of ``slabs`` along the first axis, with the same bits as ``Arithmetic.fold``.

    NumPy reduces the first axis slab by slab if a slab has several elements; otherwise it adds pairwise.
    """
    name, dtype = arithmetic.reduction.name, slabs.dtype
    is_plain = numpy_has(dtype) and dtype.kind == "f" and dtype.itemsize >= 4
    with np.errstate(all="ignore"):
        if len(slabs) > 2 and is_plain and arithmetic.reduction.fold is None:
            contiguous = np.ascontiguousarray(slabs)
            if name in ("maximum", "minimum"):
                return _extreme(contiguous, name)
            if slabs[0].size > 1:
                first = dtype.type(-0.0 if name == "add" else 1.0)  # NumPy's identity 0.0 would turn -0.0 into 0.0
                return np.asarray(UFUNCS[name].reduce(contiguous, axis=0, initial=first))
            return np.asarray(UFUNCS[name].accumulate(contiguous, axis=0)[-1])
    return arithmetic.fold([slabs[place, ...] for place in range(len(slabs))])


def _extreme(slabs: Array, name: str) -> Array:
    """Return the IEEE-754 maximum or minimum: NaN propagates, and +0 is greater than -0."""
    array = np.asarray(UFUNCS[name].reduce(slabs, axis=0))
    zero = array == 0
    if not zero.any():
        return array
    negative = np.signbit(slabs)
    wins = ~negative if name == "maximum" else negative
    winner = ((slabs == 0) & wins).any(axis=0)
    sign = np.where(winner == (name == "maximum"), slabs.dtype.type(0.0), slabs.dtype.type(-0.0))
    return np.where(zero, sign, array)
