"""Monoids as NumPy ufuncs: regions recognized by spmd.analysis.reducers, ready to run on whole arrays."""

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
    """A monoid as a ufunc with reduce, accumulate, reduceat and at.

    The ufunc runs in `compute`, to which arrays of `element` are converted and from which results are rounded once.
    """

    kind: str
    element: ElementType
    ufunc: np.ufunc
    compute: DType

    @property
    def direct(self) -> bool:
        """Whether elements are computed in their own type."""
        return self.compute == self.element.dtype

    @property
    def rounds(self) -> bool:
        """Whether the result depends on the order of operands."""
        return self.kind in ("add", "multiply") and self.compute.kind in "fc"

    @property
    def multiplies_complex(self) -> bool:
        """Whether NumPy's own loop may contract products, depending on the processor."""
        return self.kind == "multiply" and self.compute.kind == "c"

    @property
    def identity(self) -> Array:
        """The identity, a scalar of `compute`."""
        extreme = reducers.identity(self.kind, self.element)
        if extreme is None:
            raise ValueError(f"{self.kind} has no identity in {self.element}")
        return extreme.astype(self.compute)[()]

    @property
    def on_keys(self) -> Loop:
        """The same maximum or minimum on the `keys` of floats."""
        element = I32 if self.compute.itemsize == 4 else I64
        return Loop(self.kind, element, self.ufunc, element.dtype)


#: Reduces arrays, the initial value last.
Fold = Callable[[Array, Array], Array]


def with_signs_of_zeros(loop: Loop, make: Callable[[Loop, DType], Fold], target: DType) -> Fold:
    """Return `make(loop, target)`, a reduction of arrays to `target`, made exact for zeros of both signs.

    If they meet, maximum and minimum of floats are recomputed on integers: in IEEE 754 +0 is above -0, and NumPy
    returns whichever comes first.
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
    """Return whether floats contain -0.0."""
    return bool(((values == 0) & np.signbit(values)).any())


def total_order(values: Array) -> Array:
    """Return sign-and-magnitude floats as integers in IEEE 754's total order. On bits it is its own inverse."""
    bits = values.view(f"i{values.dtype.itemsize}")
    array: Array = bits ^ ((bits >> bits.dtype.type(8 * bits.dtype.itemsize - 1)) & np.iinfo(bits.dtype).max)
    return array


def keys(values: Array, kind: str) -> Array:
    """Return f32 or f64 as integers whose maximum or minimum is IEEE 754's: NaN is beyond all others."""
    ordered, nan = np.asarray(total_order(values)), np.isnan(values)
    limits = np.iinfo(ordered.dtype)
    return np.where(nan, limits.max if kind == "maximum" else limits.min, ordered).astype(ordered.dtype, copy=False)


def from_keys(folded_keys: Array, dtype: DType) -> Array:
    """Return the f32 or f64 with these keys."""
    return np.asarray(total_order(np.asarray(folded_keys))).view(dtype)


def loop_of(region: Region) -> Loop | None:
    """Return the monoid that `region` computes on its two arguments, or None."""
    monoid = reducers.monoid_of(region)
    return None if monoid is None else _loop(monoid)


def loops_of(region: Region) -> list[Loop] | None:
    """Return the monoid of each accumulator and element of a region, if each result depends on its own pair only; else
    None.
    """
    monoids = reducers.monoids_of(region)
    if monoids is None:
        return None
    loops = [_loop(monoid) for monoid in monoids]
    return None if None in loops else [loop for loop in loops if loop is not None]


def running_loop_of(region: Region) -> Loop | None:
    """Return the monoid whose prefix sums a scan with this body computes, or None."""
    monoid = reducers.scan_monoid(region)
    return None if monoid is None else _loop(monoid)


def _loop(monoid: Monoid) -> Loop | None:
    element = monoid.element
    if monoid.identity is None:
        return None
    ufunc = (LOGICAL_UFUNCS if element.is_boolean else UFUNCS)[monoid.kind]
    return Loop(monoid.kind, element, ufunc, compute_dtype(element))
