"""Monoids as NumPy's loops: what spmd.analysis.reducers recognizes, ready to run on whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spmd.analysis import reducers
from spmd.analysis.reducers import Monoid
from spmd.backends.numpy.pointwise import compute_dtype
from spmd.ir import Region
from spmd.types import ElementType

Array = np.ndarray[Any, Any]

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_LOGICAL: dict[str, np.ufunc] = {
    "add": np.logical_or,
    "multiply": np.logical_and,
    "maximum": np.logical_or,
    "minimum": np.logical_and,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


@dataclass(frozen=True)
class Loop:
    """A monoid as the ufunc with its reduce, accumulate, reduceat and at.

    The ufunc runs in `compute`, to which arrays of `element` are converted and from which results are rounded once.
    """

    kind: str
    element: ElementType
    ufunc: np.ufunc
    compute: np.dtype[Any]

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
    def idempotent(self) -> bool:
        return Monoid(self.kind, self.element).idempotent

    @property
    def identity(self) -> Any:
        """The neutral element, a scalar of `compute`."""
        made = reducers.identity(self.kind, self.element)
        if made is None:
            raise ValueError(f"{self.kind} has no neutral element in {self.element}")
        return made.astype(self.compute)[()]


def loop_of(region: Region) -> Loop | None:
    """The monoid that `region` computes on its two arguments, or None."""
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


def _loop(monoid: Monoid) -> Loop | None:
    element = monoid.element
    if monoid.identity is None:
        return None
    ufunc = (_LOGICAL if element.is_boolean else _UFUNCS)[monoid.kind]
    return Loop(monoid.kind, element, ufunc, compute_dtype(element))
