"""How a monoid that does not round reduces an array over given axes with NumPy: which axes first, in which pieces.

NumPy reduces well along long contiguous rows, and across rows that are long. Anything else (short rows, a few dozen
columns) is brought into one of these forms. The order, which these plans take as they like, does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import prod

import numpy as np

from spmd.backends.numpy.regions import Loop
from spmd.support.arrays import Array

Stage = Callable[[Array], Array]

_WIDE = 2048  # elements in a row that make calls by row cheap
_FEW = 8  # columns that are cheapest taken one by one
_SHORT = 96  # rows so short that they are worth transposing
_FOLDED = 192  # rows so short that they are worth it once they are folded to a few elements
_FOLDS_TO = 24  # elements of a row that are not folded any more
_SOME, _MANY = 128, 512  # rows that make their number worth a thought
_BLOCK = 2048  # short rows transposed at a time


def reducer(monoid: Loop, shape: tuple[int, ...], axes: Sequence[int]) -> Stage:
    """Function that reduces arrays of `shape` and of the monoid's compute dtype over `axes`; nothing there gives
    the identity."""
    reduce, identity, over = monoid.ufunc.reduce, monoid.identity, tuple(axes)
    dtype = monoid.compute

    def plain(array: Array) -> Array:
        return np.asarray(reduce(array, axis=over, initial=identity, dtype=dtype))

    kept = tuple(size for axis, size in enumerate(shape) if axis not in over)
    if not over:
        return lambda array: array.copy()
    if all(shape[axis] == 1 for axis in over):
        combine, neutral = monoid.ufunc, np.array(identity, dtype)
        return lambda array: np.asarray(combine(array.reshape(kept), neutral))
    if prod(shape) < _WIDE:
        return plain
    stages, merged = _stages(monoid, shape, over)
    if not stages:
        return plain

    transposed: dict[tuple[int, ...], Stage] = {}

    def in_memory_order(array: Array) -> Array:
        """A transposed array is reduced as it lies; any other view as NumPy does it."""
        order = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
        straight = array.transpose(order)
        if not straight.flags.c_contiguous:
            return plain(array)
        if order not in transposed:
            transposed[order] = reducer(monoid, straight.shape, [order.index(axis) for axis in over])
        rest = [axis for axis in order if axis not in over]
        return transposed[order](straight).transpose(sorted(range(len(rest)), key=rest.__getitem__))

    def planned(array: Array) -> Array:
        if not array.flags.c_contiguous:
            return in_memory_order(array)
        array = array.reshape(merged)
        for stage in stages:
            array = stage(array)
        return array.reshape(kept)

    return planned


def _stages(monoid: Loop, shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[list[Stage], tuple[int, ...]]:
    """Neighbouring axes that are all kept or all reduced count as one; each reduced one is a stage, the last first."""
    runs = [
        (reduced, prod(shape[axis] for axis in run))
        for reduced, run in groupby((axis for axis in range(len(shape)) if shape[axis] != 1), lambda axis: axis in axes)
    ]
    merged = tuple(size for _, size in runs)
    stages: list[Stage] = []
    inner = 1
    for position in reversed(range(len(runs))):
        reduced, size = runs[position]
        if not reduced:
            inner *= size
            continue
        outer = prod(merged[:position])
        stages.append(_regrouped(_rows if inner == 1 else _columns, monoid, (outer, size, inner)))
    return stages, merged


def _regrouped(make: Callable[[Loop, int, int, int], Stage], monoid: Loop, sizes: tuple[int, int, int]) -> Stage:
    stage, (outer, size, inner) = make(monoid, *sizes), sizes
    return lambda array: stage(array.reshape(outer, size, inner))


# --- along rows: (outer, size, 1) -> (outer,) ------------------------------------------------------------------------


def _rows(monoid: Loop, outer: int, size: int, _: int) -> Stage:
    reduce, identity = monoid.ufunc.reduce, monoid.identity
    if size <= _FEW and outer >= _MANY:
        return _slice_by_slice(monoid, size)
    if size <= _SHORT and outer >= _SOME:
        return _transposed_rows(monoid, outer)
    if size <= _FOLDED and outer >= _MANY:
        return _folded_rows(monoid, outer)
    dtype = monoid.compute
    return lambda array: np.asarray(reduce(array[:, :, 0], axis=1, initial=identity, dtype=dtype))


def _slice_by_slice(monoid: Loop, size: int) -> Stage:
    ufunc = monoid.ufunc

    def call(array: Array) -> Array:
        total = array[:, 0, 0].copy() if size == 1 else ufunc(array[:, 0, 0], array[:, 1, 0])
        for index in range(2, size):
            ufunc(total, array[:, index, 0], out=total)
        return total

    return call


def _transposed_rows(monoid: Loop, outer: int) -> Stage:
    reduce, dtype = monoid.ufunc.reduce, monoid.compute

    def call(array: Array) -> Array:
        rows, out = array[:, :, 0], np.empty(outer, dtype)
        for start in range(0, outer, _BLOCK):
            block = rows[start : start + _BLOCK]
            reduce(np.ascontiguousarray(block.T), axis=0, out=out[start : start + _BLOCK])
        return out

    return call


def _folded_rows(monoid: Loop, outer: int) -> Stage:
    """Folded to a few elements, which is one call for all rows each time, then transposed."""
    finish = _transposed_rows(monoid, outer)
    return lambda array: finish(_folded(monoid.ufunc, array, _FOLDS_TO))


def _folded(ufunc: np.ufunc, array: Array, most: int) -> Array:
    """Half of the second dimension combined with the other half until no more than `most` are left."""
    left = array.shape[1]
    while left > most:
        half = left // 2
        folded = ufunc(array[:, :half], array[:, half : 2 * half])
        if left % 2:
            ufunc(folded[:, 0], array[:, left - 1], out=folded[:, 0])
        array, left = folded, half
    return array


# --- across rows: (outer, size, inner) -> (outer, inner) -------------------------------------------------------------


def _columns(monoid: Loop, outer: int, size: int, inner: int) -> Stage:
    reduce, ufunc = monoid.ufunc.reduce, monoid.ufunc
    dtype = monoid.compute
    # As many rows side by side as make one wide row.
    together = max(1, _WIDE // inner)
    if size < 2 * together or size == 1:
        identity = monoid.identity
        if size > 1 and outer >= _FEW and outer * inner >= _WIDE:
            return _halving(monoid)
        return lambda array: np.asarray(reduce(array, axis=1, initial=identity, dtype=dtype))
    groups, rest = divmod(size, together)
    whole, identity = groups * together, monoid.identity

    def call(array: Array) -> Array:
        wide = array[:, :whole].reshape(outer, groups, together * inner)
        partial = reduce(wide, axis=1, dtype=dtype).reshape(outer, together, inner)
        total: Array = reduce(partial, axis=1, initial=identity, dtype=dtype)
        return ufunc(total, reduce(array[:, whole:], axis=1, dtype=dtype), out=total) if rest else total

    return call


def _halving(monoid: Loop) -> Stage:
    """Rows folded until one is left: long runs of memory, however short the rows."""
    return lambda array: _folded(monoid.ufunc, array, 1)[:, 0]
