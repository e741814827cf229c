"""Monoids as NumPy's loops: what spmd.analysis.reducers recognizes, ready to run on whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collectives.monoids import LOGICAL_UFUNCS, UFUNCS
from spmd.analysis import reducers
from spmd.analysis.reducers import Monoid
from spmd.backends.numpy.pointwise import compute_dtype
from spmd.ir import Region
from spmd.support.arrays import Array, DType
from spmd.types import I32, I64, ElementType


@dataclass(frozen=True)
class Loop:
    """A monoid as the ufunc with its reduce, accumulate, reduceat and at.

    The ufunc runs in `compute`, to which arrays of `element` are converted and from which results are rounded once.
    """

    kind: str
    element: ElementType
    ufunc: np.ufunc
    compute: DType

    @property
    def direct(self) -> bool:
        """Whether arrays of the element type are computed on as they are."""
        return self.compute == self.element.dtype

    @property
    def rounds(self) -> bool:
        """Whether the order of its operands shows in the result."""
        return self.kind in ("add", "multiply") and self.compute.kind in "fc"

    @property
    def multiplies_complex(self) -> bool:
        """Whether NumPy's own loop may leave out the rounding of a product's terms, as the processor likes."""
        return self.kind == "multiply" and self.compute.kind == "c"

    @property
    def identity(self) -> Array:
        """The neutral element, a scalar of `compute`."""
        extreme = reducers.identity(self.kind, self.element)
        if extreme is None:
            raise ValueError(f"{self.kind} has no neutral element in {self.element}")
        return extreme.astype(self.compute)[()]

    @property
    def on_keys(self) -> Loop:
        """The same maximum or minimum on the `keys` of floats."""
        element = I32 if self.compute.itemsize == 4 else I64
        return Loop(self.kind, element, self.ufunc, element.dtype)


#: Folds arrays, the initial value last.
Fold = Callable[[Array, Array], Array]


def with_signs_of_zeros(loop: Loop, make: Callable[[Loop, DType], Fold], target: DType) -> Fold:
    """`make(loop, target)`, a fold of arrays to elements of `target`, where zeros of two signs do not meet.

    Where they do, maximum and minimum of floats are folded again as integers: IEEE 754's +0 is above its -0, and NumPy
    gives whichever comes first.
    """
    plain = make(loop, target)
    if loop.kind not in ("maximum", "minimum") or loop.compute.kind != "f":
        return plain
    compute = loop.compute
    by_keys = make(loop.on_keys, loop.on_keys.compute)

    def call(*arrays: Array) -> Array:
        result = plain(*arrays)
        if np.count_nonzero(result) == result.size:
            return result
        wide = [np.asarray(array).astype(compute, copy=False) for array in arrays]
        if not any(map(has_minus_zero, wide)):
            return result
        folded_keys = by_keys(*[keys(array, loop.kind) for array in wide])
        return from_keys(folded_keys, compute).astype(target, copy=False)

    return call


def has_minus_zero(values: Array) -> bool:
    """Return whether there is a -0.0 among floats."""
    return bool(((values == 0) & np.signbit(values)).any())


def total_order(values: Array) -> Array:
    """Floats of sign and magnitude as integers in IEEE 754's total order. It is its own inverse, on bits."""
    bits = values.view(f"i{values.dtype.itemsize}")
    array: Array = bits ^ ((bits >> bits.dtype.type(8 * bits.dtype.itemsize - 1)) & np.iinfo(bits.dtype).max)
    return array


def keys(values: Array, kind: str) -> Array:
    """f32 or f64 as integers that maximum or minimum orders as IEEE 754 has it: a NaN beyond all others."""
    ordered, nan = np.asarray(total_order(values)), np.isnan(values)
    limits = np.iinfo(ordered.dtype)
    return np.where(nan, limits.max if kind == "maximum" else limits.min, ordered).astype(ordered.dtype, copy=False)


def from_keys(folded_keys: Array, dtype: DType) -> Array:
    """Return the f32 or f64 that have these keys."""
    return np.asarray(total_order(np.asarray(folded_keys))).view(dtype)


def loop_of(region: Region) -> Loop | None:
    """Return the monoid that `region` computes on its two arguments, or None."""
    monoid = reducers.monoid_of(region)
    return None if monoid is None else _loop(monoid)


def loops_of(region: Region) -> list[Loop] | None:
    """For a region on n accumulators and n elements: the monoid of each pair, when each result is that of its own
    pair only; else None."""
    monoids = reducers.monoids_of(region)
    if monoids is None:
        return None
    loops = [_loop(monoid) for monoid in monoids]
    return None if None in loops else [loop for loop in loops if loop is not None]


def running_loop_of(region: Region) -> Loop | None:
    """Return the monoid whose running totals a scan with this body gives, or None."""
    monoid = reducers.running_monoid(region)
    return None if monoid is None else _loop(monoid)


def _loop(monoid: Monoid) -> Loop | None:
    element = monoid.element
    if monoid.identity is None:
        return None
    ufunc = (LOGICAL_UFUNCS if element.is_boolean else UFUNCS)[monoid.kind]
    return Loop(monoid.kind, element, ufunc, compute_dtype(element))
