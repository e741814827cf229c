"""How many floats are added up or multiplied: in one association, whatever the array's layout and its other dimensions.

Neighbouring dimensions that are reduced count as one, of their elements in row-major order; separated ones are reduced
one after another, the last first. Along one of n elements,

- products are taken in order, x0 * x1 * x2 * ...;
- sums are NumPy's pairwise ones: up to 7 elements in order; up to 128 in eight accumulators, element k to accumulator
  k mod 8, which are then added as ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), and what is left after the last eight
  in order; more than 128 as the sum of the two halves, the first rounded down to a multiple of eight.

The initial value comes first. (Up to 16 elements in all never come here: they are taken in order, from the initial
value on; see `reduction`.) The error of a sum so grows with the logarithm of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from spmd.backends.numpy.regions import Loop

Array = np.ndarray[Any, Any]
#: (outer, n, inner) -> (outer, inner).
Stage = Callable[[Array], Array]

_LANES, _LEAF = 8, 128
#: Elements side by side that make a leaf worth calls of its own.
_WIDE = 256
#: Elements of leaves that are added up at once.
_TOGETHER = 1 << 20


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
    made: Array = np.multiply.reduce(_usual(array), axis=1, initial=1)
    return made


def _complex_product(array: Array) -> Array:
    """Along contiguous rows: across rows NumPy's loop leaves out the rounding of a product's terms."""
    rows = np.ascontiguousarray(array.swapaxes(1, 2))
    made: Array = np.multiply.reduce(rows, axis=2, initial=1)
    return made


def _complex_sum(array: Array) -> Array:
    made = np.empty((array.shape[0], array.shape[2]), array.dtype)
    made.real, made.imag = _sum(array.real), _sum(array.imag)
    return made


def _sum(array: Array) -> Array:
    size, inner = array.shape[1:]
    array = _usual(array)
    if inner == 1 and size >= _LANES:
        made: Array = np.add.reduce(array, axis=1, initial=-0.0)
        return made
    return _leaves(array) if inner < _WIDE and size > 2 * _LEAF else _pairwise(array)


def _usual(array: Array) -> Array:
    """`array`, which NumPy takes as it is: not through a buffer, in pieces."""
    return array if array.flags.aligned else array.copy()


def _pairwise(array: Array) -> Array:
    """The same sums as NumPy's of rows, of slabs array[:, k]."""
    outer, size, inner = array.shape
    if size > _LEAF:
        half = size // 2
        half -= half % _LANES
        made: Array = np.add(_pairwise(array[:, :half]), _pairwise(array[:, half:]))
        return made
    start = size - size % _LANES
    if not start:
        total = np.full((outer, inner), -0.0, array.dtype)
    else:
        lanes = np.add.reduce(array[:, :start].reshape(outer, -1, _LANES, inner), axis=1)
        pairs = lanes[:, 0::2] + lanes[:, 1::2]
        total = (pairs[:, 0] + pairs[:, 1]) + (pairs[:, 2] + pairs[:, 3])
    for index in range(start, size):
        total += array[:, index]
    return total


def _leaves(array: Array) -> Array:
    """The same for short slabs: leaves of one length at once, then the sums of neighbours, level by level."""
    outer, size, inner = array.shape
    starts, sizes, levels, count = _tree(size)
    sums = np.empty((outer, count, inner), array.dtype)
    for length in np.unique(sizes):
        (chosen,) = np.nonzero(sizes == length)
        step = max(1, _TOGETHER // int(length * inner * outer))
        for first in range(0, len(chosen), step):
            some = chosen[first : first + step]
            places = starts[some, None] + np.arange(length)
            held = array[:, places].swapaxes(1, 2).reshape(outer, int(length), len(some) * inner)
            sums[:, some] = _pairwise(held).reshape(outer, len(some), inner)
    for results, left, right in levels:
        sums[:, results] = sums[:, left] + sums[:, right]
    return sums[:, -1]


@lru_cache(64)
def _tree(size: int) -> tuple[Array, Array, list[tuple[Array, Array, Array]], int]:
    """The leaves' starts and sizes; the nodes (results, left, right) of each level of sums; how many nodes, leaves
    first."""
    leaves: list[tuple[int, int]] = []
    halves: list[tuple[int, int, int]] = []  # (height, left, right); halves count -1, -2, ...

    def split(start: int, size: int) -> tuple[int, int]:
        """A node's height and number."""
        if size <= _LEAF:
            leaves.append((start, size))
            return 0, len(leaves) - 1
        half = size // 2
        half -= half % _LANES
        (low, left), (high, right) = split(start, half), split(start + half, size - half)
        halves.append((max(low, high) + 1, left, right))
        return halves[-1][0], -len(halves)

    split(0, size)

    def number(node: int) -> int:
        return node if node >= 0 else len(leaves) - node - 1

    levels = []
    for height in range(1, halves[-1][0] + 1):
        found = [(-1 - index, left, right) for index, (own, left, right) in enumerate(halves) if own == height]
        results, left, right = (np.array([number(node) for node in column]) for column in zip(*found, strict=True))
        levels.append((results, left, right))
    starts, sizes = (np.array(column) for column in zip(*leaves, strict=True))
    return starts, sizes, levels, len(leaves) + len(halves)
