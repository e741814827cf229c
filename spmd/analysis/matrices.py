"""Operands of products as strided matrices in memory, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.analysis.affine import row_major
from spmd.ir import Value


@dataclass(frozen=True)
class Matrix:
    """An operand as a batch of matrices: sizes, and strides, in elements, of batching dimensions, rows and columns."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    row_stride: int
    column_stride: int

    @property
    def leading(self) -> int:
        """The leading dimension as BLAS defines it."""
        return max(self.row_stride, self.column_stride, 1)


def free_dimensions(rank: int, batching: Sequence[int], contracting: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions of a product's operand that are neither batching nor contracting."""
    return tuple(d for d in range(rank) if d not in batching and d not in contracting)


def _merged(shape: Sequence[int], strides: Sequence[int], dimensions: Sequence[int]) -> tuple[int, int] | None:
    """Return size and stride of several dimensions merged into one, in order; None if they are not contiguous."""
    size, stride = 1, 0
    for dimension in reversed(dimensions):
        if shape[dimension] == 1:
            continue
        if size == 1:
            size, stride = shape[dimension], strides[dimension]
        elif strides[dimension] == stride * size:
            size *= shape[dimension]
        else:
            return None
    return size, stride


def matrix_of(value: Value, batching: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Matrix | None:
    """Return `value`, of static shape, as matrices whose rows and columns are these dimensions merged.

    None if they cannot be merged, or if neither rows nor columns are contiguous in memory.
    """
    shape = value.tensor.static_shape
    strides = row_major(shape)
    by_row, by_column = _merged(shape, strides, rows), _merged(shape, strides, columns)
    if by_row is None or by_column is None:
        return None
    (row_count, row_stride), (column_count, column_stride) = by_row, by_column
    if row_count > 1 and column_count > 1 and 1 not in (row_stride, column_stride):
        return None
    if row_count == 1:
        row_stride = column_count if column_stride in (0, 1) else 1
    if column_count == 1:
        column_stride = 1 if row_stride != 1 else row_count
    if 1 not in (row_stride, column_stride):
        return None
    return Matrix(tuple(strides[d] for d in batching), row_count, column_count, row_stride, column_stride)
