"""Row permutations of stacked values.

Permutations that a reshape, transpose, slices or broadcast express are recognized; others become gathers at constant
indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spmd.compiler.stack.core import Stacker
from spmd.dialects.structs import GatherDimensionNumbersAttr
from spmd.ir import Value
from spmd.types import I1, TensorType

Order = NDArray[np.int64]


def take_rows(stacker: Stacker, value: Value, order: Order, fill: int = 0) -> Value:
    """Return the rows `order` of `value`; rows of `fill` for negative entries."""
    count = value.tensor.static_shape[0]
    if len(order) == count and (order == np.arange(count)).all():
        return value
    if order.size and (order == order[0]).all() and order[0] >= 0:
        row = stacker.slice(value, 0, int(order[0]), int(order[0]) + 1)
        return repeat(stacker, row, 0, len(order))
    for strategy in (_rotated, _transposed):
        moved = strategy(stacker, value, order, fill)
        if moved is not None:
            return moved
    taken = gather_rows(stacker, value, stacker.constant(np.maximum(order, 0).reshape(-1, 1)))
    return filled(stacker, taken, order >= 0, fill)


def gather_rows(stacker: Stacker, value: Value, indices: Value) -> Value:
    """Return the rows of `value` at `indices` (N x 1)."""
    shape = value.tensor.static_shape
    numbers = GatherDimensionNumbersAttr(
        offset_dims=tuple(range(1, len(shape))),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
    )
    type = value.tensor.with_shape((indices.tensor.static_shape[0], *shape[1:]))
    sizes = np.array((1, *shape[1:]), np.int64)
    return stacker.one("gather", [value, indices], type, dimension_numbers=numbers, slice_sizes=sizes)


def filled(stacker: Stacker, value: Value, present: NDArray[np.bool_], fill: int) -> Value:
    """Return `value` in rows that are `present`, `fill` in others."""
    if present.all():
        return value
    shape = value.tensor.static_shape
    mask = stacker.constant(present)
    if len(shape) > 1:
        mask = stacker.one("broadcast_in_dim", [mask], TensorType(shape, I1), broadcast_dimensions=(0,))
    return stacker.select(mask, value, stacker.splat(fill, value.tensor))


def repeat(stacker: Stacker, value: Value, dimension: int, count: int) -> Value:
    """Return `value` with a dimension of size 1 repeated `count` times."""
    shape = list(value.tensor.static_shape)
    if shape[dimension] == count:
        return value
    shape[dimension] = count
    dimensions = tuple(range(len(shape)))
    type = value.tensor.with_shape(tuple(shape))
    return stacker.one("broadcast_in_dim", [value], type, broadcast_dimensions=dimensions)


def _rotated(stacker: Stacker, value: Value, order: Order, fill: int) -> Value | None:
    """Return blocks of rows rotated, or shifted in `fill`; None if `order` is neither."""
    rotation_by = _rotation_of(order.tobytes()) if len(order) == value.tensor.static_shape[0] else None
    if rotation_by is None:
        return None
    block, by, wraps = rotation_by
    shape = value.tensor.static_shape
    parts = stacker.reshape(value, (shape[0] // block, block, *shape[1:]))
    if wraps:
        ends = [stacker.slice(parts, 1, block - by, block), stacker.slice(parts, 1, 0, block - by)]
        moved_rows = stacker.concatenate(ends, 1)
    else:
        kept = stacker.slice(parts, 1, max(0, -by), min(block, block - by))
        zero = stacker.splat(fill, value.tensor.with_shape(()))
        moved_rows = stacker.pad(kept, 1, max(0, by), max(0, -by), zero)
    return stacker.reshape(moved_rows, shape)


@lru_cache(maxsize=64)
def _rotation_of(order: bytes) -> tuple[int, int, bool] | None:
    """Return `rotation`, cached: programs repeat few orders."""
    return rotation(np.frombuffer(order, np.int64))


@lru_cache(maxsize=64)
def _digits_of(order: bytes) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    return digits(np.frombuffer(order, np.int64))


def rotation(order: Order) -> tuple[int, int, bool] | None:
    """Return (block, by, wraps) if row i of each block of rows comes from its row i - by; else None."""
    count = len(order)
    row = np.arange(count)
    present = order >= 0
    distances = np.unique((row - order)[present])
    if present.all() and len(distances) == 2 and distances[0] < 0 < distances[1]:
        by = int(distances[1])
        block = by - int(distances[0])
        if count % block == 0 and (order == row // block * block + (row - by) % block).all():
            return block, by, True
    if len(distances) == 1 and distances[0] and not present.all():
        by = int(distances[0])
        block, rest = divmod(abs(by) * count, int((~present).sum()))
        if not rest and block > abs(by) and count % block == 0:
            source = row % block - by
            if (present == ((source >= 0) & (source < block))).all():
                return block, by, False
    return None


def _transposed(stacker: Stacker, value: Value, order: Order, fill: int) -> Value | None:
    factors = _digits_of(order.tobytes()) if len(order) == value.tensor.static_shape[0] else None
    if factors is None:
        return None
    shape, permutation = factors
    rest = value.tensor.static_shape[1:]
    parts = stacker.reshape(value, (*shape, *rest))
    moved_rows = stacker.transpose(parts, [*permutation, *range(len(shape), len(shape) + len(rest))])
    return stacker.reshape(moved_rows, value.tensor.static_shape)


def digits(order: Order) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (shape, permutation) such that `order` is `arange(...).reshape(shape).transpose(permutation)`;
    else None.
    """
    runs: list[tuple[int, int]] = []  # (size, stride), the last dimension of the result first
    heads = order
    while len(heads) > 1:
        stride = int(heads[1] - heads[0])
        expected = heads[0] + stride * np.arange(len(heads))
        wrong = np.flatnonzero(heads != expected)
        size = int(wrong[0]) if len(wrong) else len(heads)
        if stride <= 0 or len(heads) % size:
            return None
        runs.append((size, stride))
        heads = heads[::size]
    by_stride = sorted(range(len(runs)), key=lambda run: -runs[run][1])
    shape = tuple(runs[run][0] for run in by_stride)
    permutation = tuple(by_stride.index(run) for run in reversed(range(len(runs))))
    if not shape or not (np.arange(len(order)).reshape(shape).transpose(permutation).ravel() == order).all():
        return None
    return shape, permutation


def inverse(order: Sequence[int] | Order, count: int) -> Order:
    """Return the position of each of `count` rows in `order`; -1 if absent."""
    positions = np.full(count, -1, np.int64)
    positions[np.asarray(order)] = np.arange(len(order))
    return positions
