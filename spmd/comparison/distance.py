"""How far two arrays are from each other: in units of the last place, and against what rounding explains."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from spmd.support.arrays import Array, DType

#: Units of the last place of an array's largest element up to which a difference passes for rounding.
ROUNDING = 256.0


@dataclass(frozen=True)
class Distance:
    """The largest difference of two arrays: at `index`, `left` and `right`, `ulps` units of their last place apart.

    `relative` is the difference in units of the last place of the array's largest finite element, which is what sums
    of many terms are to be judged by. Both are infinite where one is NaN or infinite and the other is not.
    """

    index: tuple[int, ...]
    left: object
    right: object
    ulps: float
    relative: float


def distance(left: Array, right: Array) -> Distance | None:
    """Where two arrays of one shape and dtype differ most; None where they are equal, NaNs among themselves."""
    if left.size == 0:
        return None
    if not is_inexact(left.dtype):
        unequal = np.flatnonzero(left != right)
        return None if not unequal.size else _at(left, right, int(unequal[0]), np.inf, np.inf)
    wide_left, wide_right = _wide(left), _wide(right)
    with np.errstate(all="ignore"):
        gap = np.abs(wide_left - wide_right)
    both_nan = np.isnan(wide_left) & np.isnan(wide_right)
    gap = np.where(both_nan | (wide_left == wide_right), 0.0, np.where(np.isfinite(gap), gap, np.inf)).reshape(-1)
    worst = int(np.argmax(gap))
    if not gap[worst]:
        return None
    format = _format(left.dtype)
    eps = float(format.eps)
    size = np.abs(wide_left)
    finite = size[np.isfinite(size)]
    here = max(abs(complex(wide_left.reshape(-1)[worst])), abs(complex(wide_right.reshape(-1)[worst])))
    scale = float(finite.max()) if finite.size else 0.0
    return _at(
        left,
        right,
        worst,
        _units(gap[worst], here, eps),
        _units(gap[worst], max(scale, float(format.smallest_normal)), eps),
    )


def farthest(left: Array, right: Array) -> tuple[int, Distance] | None:
    """The process whose arrays differ most, and how; both have a leading axis of processes, or of one for all."""
    count = max(len(left), len(right))
    found = []
    for process in range(count):
        each = distance(left[process % len(left)], right[process % len(right)])
        if each is not None:
            found.append((process, each))
    return max(found, key=lambda each: each[1].relative, default=None)


def is_inexact(dtype: DType) -> bool:
    """Whether elements of `dtype` are rounded: floats of any width, and complex numbers."""
    return dtype.kind in "fc" or (dtype.kind == "V" and not dtype.name.startswith(("int", "uint")))


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _format(dtype: DType) -> ml_dtypes.finfo:
    """The floating-point format of `dtype`, or of a complex number's parts."""
    return ml_dtypes.finfo(np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype)  # type: ignore[no-untyped-call]


def _units(gap: float, size: float, eps: float) -> float:
    """`gap` in units of the last place of a number of `size`."""
    return float(gap / (eps * 2.0 ** np.floor(np.log2(size)))) if np.isfinite(size) and size else float(np.inf)


def _at(left: Array, right: Array, flat: int, ulps: float, relative: float) -> Distance:
    index = tuple(int(at) for at in np.unravel_index(flat, left.shape))
    return Distance(index, left[index], right[index], ulps, relative)
