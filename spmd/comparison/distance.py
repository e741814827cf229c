"""The distance of two arrays: in units of the last place, and relative to what rounding explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spmd.comparison.formats import as_wide, format_of
from spmd.support.arrays import Array, DType


@dataclass(frozen=True)
class Distance:
    """The largest difference of two arrays: `left` and `right` at `index`, `ulps` units of their last place apart.

    `share` is the difference relative to what rounding explains at that element: more than 1 is not rounding. `wide` is
    set if the numbers are those of the programs in 64-bit floats.
    """

    index: tuple[int, ...]
    left: object
    right: object
    ulps: float
    share: float
    wide: bool = False

    def __str__(self) -> str:
        index = f"[{', '.join(map(str, self.index))}]" if self.index else "0"
        numbers = f"{self.left} and {self.right}" + " in 64-bit floats" * self.wide
        ulps = "" if np.isinf(self.ulps) else f", {self.ulps:.3g} units in the last place apart"
        share = "" if np.isinf(self.share) else f", {self.share:.3g} times what rounding explains there"
        return f"element {index}: {numbers}{ulps}{share}"

    def to_json(self) -> dict[str, object]:
        """Return the distance as JSON: the elements as text, None for infinite numbers."""
        units, share = (None if np.isinf(each) else each for each in (self.ulps, self.share))
        numbers = {"left": str(self.left), "right": str(self.right), "units": units, "share": share}
        return {"index": list(self.index), **numbers, "wide": self.wide}


def gaps(left: Array, right: Array) -> Array:
    """Return the distances of the elements of two arrays of one dtype, float64.

    0 where they are equal or both NaN, infinite where only one is NaN or infinite.
    """
    if not is_inexact(left.dtype):
        apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
        return np.where(left == right, 0.0, np.maximum(apart, 1.0))
    one, other = as_wide(left), as_wide(right)
    with np.errstate(all="ignore"):
        gap = np.abs(one - other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(same, 0.0, np.where(np.isfinite(gap), gap, np.inf))


def farthest(
    left: Array, right: Array, allowed: Array | float = 0.0, *, wide: bool = False
) -> tuple[int, Distance] | None:
    """Return the process and the element at which arrays with a leading axis of processes differ most.

    Differences are relative to what is `allowed` there (NaN: nothing; infinity: anything); None if the arrays are
    equal. An axis of size 1 is the same for all processes.
    """
    gap, allowed = np.broadcast_arrays(gaps(left, right), np.nan_to_num(allowed, nan=0.0, posinf=np.inf))
    if not gap.any():
        return None
    with np.errstate(all="ignore"):
        share = np.where(gap == 0, 0.0, np.where(np.isinf(allowed), np.finfo(np.float64).tiny, gap / allowed))
    process, *index = (int(at) for at in np.unravel_index(int(np.argmax(share)), share.shape))
    one, other = left[process % len(left)][tuple(index)], right[process % len(right)][tuple(index)]
    far = float(gap[(process, *index)])
    return process, Distance(tuple(index), one, other, _units(far, one, other), float(share[(process, *index)]), wide)


def is_inexact(dtype: DType) -> bool:
    """Return whether elements of `dtype` are rounded: floats of any width, and complex numbers."""
    return dtype.kind in "fc" or (dtype.kind == "V" and not dtype.name.startswith(("int", "uint")))


def of_largest(array: Array, units: float) -> float:
    """Return `units` in the last place of the largest finite element of `array`; 0 for exact types."""
    if not is_inexact(array.dtype) or not array.size:
        return 0.0
    size = np.abs(as_wide(array))
    largest = float(np.max(size, where=np.isfinite(size), initial=0.0))
    format = format_of(array.dtype)
    return units * _spacing(max(largest, float(format.smallest_normal)), float(format.eps))


def _units(gap: float, one: object, other: object) -> float:
    """Return `gap` in units of the last place of the larger of two elements of one type."""
    dtype = np.asarray(one).dtype
    if not is_inexact(dtype):
        return np.inf
    size = max(abs(complex(one)), abs(complex(other)))  # type: ignore[call-overload]
    return gap / _spacing(size, float(format_of(dtype).eps)) if np.isfinite(size) and size else np.inf


def _spacing(size: float, eps: float) -> float:
    """Return the unit in the last place of a number of `size`."""
    return float(np.ldexp(eps, np.frexp(size)[1] - 1))
