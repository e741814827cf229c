"""Indexing of gather and scatter: StableHLO specification, "gather" and "scatter".

Both move slices between an array and a table of updates, at index vectors. `IndexPlacement` is the static part:
trailing dimensions that are moved whole are a row's payload, and all other elements of a slice are rows with numbers.
What remains at run time is arithmetic on row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.dialects.core import OPS
from spmd.dialects.faults import run_time_faults
from spmd.dialects.make import make_op
from spmd.dialects.structs import GatherDimensionNumbersAttr
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.support.arrays import Array


class IndexPlacement:
    """Slices of `slice_sizes` of an array of `shape` at index vectors.

    `mapped[k]` is the array's dimension that component k of an index vector indexes; `batching` pairs batching
    dimensions of array and indices. The batch shape is that of the indices without the index vector's dimension; a
    table of slices has shape (*batch, *slice). With `whole` a slice that is partly out of bounds is dropped, else only
    its elements out of bounds.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        slice_sizes: Sequence[int],
        index_shape: tuple[int, ...],
        index_vector_dim: int,
        mapped: Sequence[int],
        batching: Sequence[tuple[int, int]],
        *,
        whole: bool = False,
    ) -> None:
        self.shape, self.slice_sizes, self.mapped = shape, tuple(slice_sizes), tuple(mapped)
        self.whole = whole
        self._vector_dim = index_vector_dim
        self._has_vector = index_vector_dim < len(index_shape)
        self.batch_shape = tuple(size for axis, size in enumerate(index_shape) if axis != index_vector_dim)
        self._batching = tuple((mine, theirs - (theirs > index_vector_dim)) for mine, theirs in batching)
        self.limits = tuple(shape[axis] - self.slice_sizes[axis] for axis in mapped)
        placed = {*mapped, *(mine for mine, _ in batching)}
        rank = len(shape)
        # The payload: trailing dimensions that are not indexed and taken whole.
        first = rank
        while first and first - 1 not in placed and self.slice_sizes[first - 1] == shape[first - 1]:
            first -= 1
        self.payload = prod(shape[first:])
        self.row_count = prod(shape[:first])
        self._strides = [prod(shape[axis + 1 : first]) for axis in range(first)]
        self.rows_of_slice = self._slice_rows(first)
        self._batch_rows = self._batching_rows()

    def _slice_rows(self, first: int) -> Array:
        """Return the row numbers of a slice that starts at 0, in row-major order."""
        rows = np.zeros((), np.int64)
        for axis in range(first):
            rows = np.add.outer(rows, np.arange(self.slice_sizes[axis], dtype=np.int64) * self._strides[axis])
        return rows.reshape(-1)

    def _batching_rows(self) -> Array:
        rows = np.zeros((1,) * len(self.batch_shape), np.int64)
        for mine, theirs in self._batching:
            size = self.batch_shape[theirs]
            steps = np.arange(size, dtype=np.int64) * self._strides[mine]
            rows = rows + steps.reshape([size if axis == theirs else 1 for axis in range(len(self.batch_shape))])
        return rows

    def starts(self, indices: Array) -> list[Array]:
        """Return the components of the index vectors as int64 arrays of the batch shape."""
        if indices.dtype == np.uint64:
            indices = np.minimum(indices, np.uint64(2**62))
        indices = indices.astype(np.int64, copy=False)
        if not self._has_vector:
            return [indices]
        selector: list[slice | Array | int] = [slice(None)] * indices.ndim
        columns = []
        for component in range(len(self.mapped)):
            selector[self._vector_dim] = component
            columns.append(indices[tuple(selector)])
        return columns

    def rows(self, starts: Sequence[Array]) -> Array:
        """Return row numbers, (slices, rows of a slice)."""
        parts = [self._batch_rows] if self._batching or not starts else []
        for start, axis in zip(starts, self.mapped, strict=True):
            stride = self._strides[axis]
            parts.append(start if stride == 1 else start * stride)
        first = np.broadcast_to(sum(parts[1:], parts[0]), self.batch_shape).reshape(-1, 1)
        return first if len(self.rows_of_slice) == 1 else first + self.rows_of_slice

    def inside(self, starts: Sequence[Array]) -> Array | None:
        """Return which rows are in bounds, (slices, rows of a slice); None if all are."""
        if all(
            limit >= 0 and int(start.view(np.uint64).max(initial=0)) <= limit
            for start, limit in zip(starts, self.limits, strict=True)
        ):
            return None
        if self.whole:
            fits = [(start >= 0) & (start <= limit) for start, limit in zip(starts, self.limits, strict=True)]
            slices = np.logical_and.reduce(np.broadcast_arrays(*fits)).reshape(-1, 1)
            return np.broadcast_to(slices, (len(slices), len(self.rows_of_slice)))
        first = len(self._strides)
        sizes = self.slice_sizes[:first]
        valid = np.ones((prod(self.batch_shape), *sizes), np.bool_)
        for start, axis in zip(starts, self.mapped, strict=True):
            places = start.reshape(-1, 1) + np.arange(sizes[axis])
            here = (places >= 0) & (places < self.shape[axis])
            valid &= here.reshape([-1, *(sizes[axis] if k == axis else 1 for k in range(first))])
        return valid.reshape(-1, len(self.rows_of_slice))


# --- gather ----------------------------------------------------------------------------------------------------------


@kernel("stablehlo.gather")
def gather(op: Op, context: Context) -> Kernel:
    return gatherer(
        op.operands[0].tensor.static_shape,
        op.operands[1].tensor.static_shape,
        op["slice_sizes"],
        op["dimension_numbers"],
    )


@kernel("stablehlo.dynamic_gather")
def dynamic_gather(op: Op, context: Context) -> Kernel:
    """Return a gather with dynamic slice sizes; kernels are cached by sizes."""
    shape, index_shape = op.operands[0].tensor.static_shape, op.operands[1].tensor.static_shape
    kernels: dict[tuple[int, ...], Kernel] = {}

    def call(operand: Array, indices: Array, slice_sizes: Array) -> Array:
        sizes = tuple(np.asarray(slice_sizes).tolist())
        if sizes not in kernels:
            _check_sizes(op, sizes)
            kernels[sizes] = gatherer(shape, index_shape, sizes, op["dimension_numbers"])
        gathered: Array = kernels[sizes].call(operand, indices)
        return gathered

    return Kernel(call)


def _check_sizes(op: Op, sizes: tuple[int, ...]) -> None:
    """Raise ExecutionError if a gather of slices of `sizes` violates a constraint."""
    attributes = {**op.attributes, "slice_sizes": sizes}
    static = make_op("stablehlo.gather", op.operands[:2], op.result_types, attributes, location=op.location)
    for label, fault in run_time_faults(static, OPS["stablehlo.gather"]):
        raise ExecutionError(Diagnostic(op.location, fault, op.name, label))


def gatherer(
    shape: tuple[int, ...], index_shape: tuple[int, ...], sizes: Sequence[int], numbers: GatherDimensionNumbersAttr
) -> Kernel:
    """Return the kernel of a gather on (operand, indices); starts are clamped so that slices are in bounds."""
    placement = IndexPlacement(
        shape,
        sizes,
        index_shape,
        numbers.index_vector_dim,
        numbers.start_index_map,
        list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
    )
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    batch = placement.batch_shape
    kept = [axis for axis in range(len(shape)) if axis not in dropped]
    table = (*batch, *(sizes[axis] for axis in kept))
    arrange = _arrangement(len(batch), len(kept), numbers.offset_dims)
    result_shape = table if arrange is None else tuple(table[axis] for axis in arrange)
    if 0 in table:
        return Kernel(lambda operand, indices: np.empty(result_shape, operand.dtype))
    payload, row_count = placement.payload, placement.row_count

    def call(operand: Array, indices: Array) -> Array:
        limited = zip(placement.starts(indices), placement.limits, strict=True)
        starts = [_clamped(start, limit) for start, limit in limited]
        rows = placement.rows(starts)
        taken = operand.reshape(row_count, payload).take(rows, axis=0).reshape(table)
        return taken if arrange is None else taken.transpose(arrange)

    return Kernel(call)


def _clamped(start: Array, limit: int) -> Array:
    """Return `start` clamped to [0, limit]; unchanged, after one unsigned comparison, if it is in range."""
    if start.size and int(start.view(np.uint64).max()) <= limit:
        return start
    return np.clip(start, 0, limit)


def _arrangement(batch_rank: int, slice_rank: int, offset_dims: Sequence[int]) -> list[int] | None:
    """Return the permutation from (batch..., slice...) to the result, whose dimensions `offset_dims` are the slice's;
    None if it is the identity.
    """
    order = [-1] * (batch_rank + slice_rank)
    for number, position in enumerate(sorted(offset_dims)):
        order[position] = batch_rank + number
    batches = iter(range(batch_rank))
    order = [next(batches) if axis < 0 else axis for axis in order]
    return None if order == sorted(order) else order
