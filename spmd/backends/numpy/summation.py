"""How many floats are added up or multiplied: in one association, whatever the array's layout and its other dimensions.

Neighbouring dimensions that are reduced count as one, of their elements in row-major order; separated ones are reduced
one after another, the last first. Along one of n elements,

- products are taken in order, x0 * x1 * x2 * ...;
- sums of up to 1,024 elements are NumPy's pairwise ones: up to 7 in order; up to 128 in eight accumulators, element k
  to accumulator k mod 8, which are then added as ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), and what is left after the
  last eight in order; more than 128 as the sum of the two halves, the first rounded down to a multiple of eight. Of
  more elements each 1,024 (in the end what is left) are summed so, and these sums in the same manner.

The initial value comes first. (Up to 16 elements in all never come here: they are taken in order, from the initial
value on; see `reduction`.) The error of a sum so grows with the logarithm of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import prod

import numpy as np

from spmd.backends.numpy.regions import Loop
from spmd.support.arrays import Array

#: (outer, n, inner) -> (outer, inner).
Stage = Callable[[Array], Array]

_LANES, _LEAF, _BLOCK = 8, 128, 1024


def summation(loop: Loop, shape: Sequence[int], axes: Sequence[int]) -> Callable[[Array], Array]:
    """Function that folds arrays of `shape` and of the loop's compute dtype over `axes`, none of them away from the
    order above; of no elements the neutral one."""
    runs = [
        (reduced, prod(shape[axis] for axis in run))
        for reduced, run in groupby(range(len(shape)), lambda axis: axis in axes)
    ]
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    stage = _stage(loop)
    sizes = [size for _, size in runs]
    forms, inner = [], 1
    for position in reversed(range(len(runs))):
        reduced, size = runs[position]
        if reduced:
            forms.append((prod(sizes[:position]), size, inner))
        else:
            inner *= size

    def call(array: Array) -> Array:
        for form in forms:
            array = stage(array.reshape(form))
        return array.reshape(kept)

    return call


def _stage(loop: Loop) -> Stage:
    if loop.kind == "multiply":
        return _product if loop.compute.kind == "f" else _complex_product
    return _sum if loop.compute.kind == "f" else _complex_sum


def _product(array: Array) -> Array:
    product: Array = np.multiply.reduce(_usual(array), axis=1, initial=1)
    return product


def _complex_product(array: Array) -> Array:
    """Along contiguous rows: across rows NumPy's loop leaves out the rounding of a product's terms."""
    rows = np.ascontiguousarray(array.swapaxes(1, 2))
    product: Array = np.multiply.reduce(rows, axis=2, initial=1)
    return product


def _complex_sum(array: Array) -> Array:
    total = np.empty((array.shape[0], array.shape[2]), array.dtype)
    total.real, total.imag = _sum(array.real), _sum(array.imag)
    return total


def _sum(array: Array) -> Array:
    outer, size, inner = array.shape
    if not outer or not inner:
        return np.empty((outer, inner), array.dtype)
    if size > _BLOCK:
        whole = size - size % _BLOCK
        sums = _blocks(_usual(array[:, :whole]))
        if whole < size:
            sums = np.concatenate([sums, _sum(array[:, whole:])[:, None]], axis=1)
        return _sum(sums)
    array = _usual(array)
    if inner == 1 and size >= _LANES:
        total: Array = np.add.reduce(array, axis=1, initial=-0.0)
        return total
    return _pairwise(array)


def _blocks(array: Array) -> Array:
    """The sums of whole blocks: (outer, blocks * _BLOCK, inner) -> (outer, blocks, inner)."""
    outer, size, inner = array.shape
    blocks = size // _BLOCK
    if inner == 1:
        rows: Array = np.add.reduce(array.reshape(outer, blocks, _BLOCK), axis=2, initial=-0.0)
        return rows[:, :, None]
    lanes = np.add.reduce(array.reshape(outer, size // _LEAF, _LEAF // _LANES, _LANES * inner), axis=2, initial=-0.0)
    return _neighbours(lanes.reshape(outer, size // _LEAF * _LANES, inner), blocks)


def _neighbours(parts: Array, count: int) -> Array:
    """`parts` along the second axis added to their neighbours until `count` are left."""
    while parts.shape[1] > count:
        parts = parts[:, 0::2] + parts[:, 1::2]
    return parts


def _usual(array: Array) -> Array:
    """`array`, which NumPy takes as it is: not through a buffer, in pieces."""
    return array if array.flags.aligned else array.copy()


def _pairwise(array: Array) -> Array:
    """The same sums as NumPy's of rows, of slabs array[:, k]."""
    outer, size, inner = array.shape
    if size > _LEAF:
        half = size // 2
        half -= half % _LANES
        pair_total: Array = np.add(_pairwise(array[:, :half]), _pairwise(array[:, half:]))
        return pair_total
    start = size - size % _LANES
    if not start:
        total = np.full((outer, inner), -0.0, array.dtype)
    else:
        lanes = np.add.reduce(array[:, :start].reshape(outer, -1, _LANES, inner), axis=1, initial=-0.0)
        total = _neighbours(lanes, 1)[:, 0]
    for index in range(start, size):
        total += array[:, index]
    return total
