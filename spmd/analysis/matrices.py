"""Operands of products as matrices that lie in memory as they are: of which numbers and strides one is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.analysis.affine import row_major
from spmd.ir import Value


@dataclass(frozen=True)
class Matrix:
    """An operand as matrices: the strides of its batching dimensions, of its rows and of its columns, in elements."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    row_stride: int
    column_stride: int

    @property
    def leading(self) -> int:
        """BLAS's leading dimension."""
        return max(self.row_stride, self.column_stride, 1)


def free_dimensions(rank: int, batching: Sequence[int], contracting: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions of an operand of a product that are neither batched nor summed over."""
    return tuple(d for d in range(rank) if d not in batching and d not in contracting)


def _merged(shape: Sequence[int], strides: Sequence[int], dimensions: Sequence[int]) -> tuple[int, int] | None:
    """Size and stride of several dimensions taken as one, in their order; None where they are no one dimension."""
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
    """`value`, of static shape, as matrices whose rows and columns are counted by those dimensions, or by one of them
    taken as one; None where neither rows nor columns are neighbours in memory."""
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
