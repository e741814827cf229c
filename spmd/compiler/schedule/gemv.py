"""Matrix-vector products as reductions over the matrix, each element of which is read once.

They are bound by memory bandwidth, so the tiling of matrix products gains nothing. StableHLO specification,
"dot_general".
"""

from __future__ import annotations

from math import prod

from spmd.analysis.affine import Affine
from spmd.analysis.index_maps import Index, is_outer_product
from spmd.analysis.matrices import free_dimensions
from spmd.compiler.schedule.sliding import accumulator_of
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Op
from spmd.types import ElementType

DOT_GENERAL = "stablehlo.dot_general"


def is_matrix_vector(op: Op) -> bool:
    """Return whether `op`, of static shape, is a (batched) matrix-vector product; the vector may be a
    one-row matrix.
    """
    if op.name != DOT_GENERAL or op["algorithm"] is not None or is_outer_product(op) or summed_in(op) is None:
        return False
    return _is_vector(op, 0) or _is_vector(op, 1)


def summed_in(op: Op) -> ElementType | None:
    """Return the accumulator type of a product: as for convolutions, or the common integer type; None for any other."""
    elements = [value.tensor.element_type for value in (*op.operands, op.result)]
    (first, *others) = elements
    if isinstance(first, ElementType) and first.is_integer and not first.is_boolean:
        return first if all(other is first for other in others) else None
    return accumulator_of(op)


def matrix_number(op: Op) -> int:
    """Return the number of the matrix operand of `op`, which must be a matrix-vector product."""
    return 0 if _is_vector(op, 1) else 1


def matrix_shape(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the iteration space of `op`, the shape of the matrix, and the reduced dimensions."""
    number = matrix_number(op)
    return op.operands[number].tensor.static_shape, tuple(sorted(_contracting(op, number)))


def indices_of_point(op: Op, index: Index) -> tuple[Index, Index]:
    """Return the vector and result indices of a point."""
    number = matrix_number(op)
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    batching = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
    vector = [Affine()] * op.operands[1 - number].tensor.rank
    pairs = [
        *zip(batching[number], batching[1 - number], strict=True),
        *zip(_contracting(op, number), _contracting(op, 1 - number), strict=True),
    ]
    for ours, theirs in pairs:
        vector[theirs] = index[ours]
    result = [index[dimension] for dimension in batching[number]]
    for each in (0, 1):
        result += [index[d] if each == number else Affine() for d in _free(op, each)]
    return tuple(vector), tuple(result)


def _is_vector(op: Op, number: int) -> bool:
    shape = op.operands[number].tensor.static_shape
    return prod(shape[dimension] for dimension in _free(op, number)) == 1


def _contracting(op: Op, number: int) -> tuple[int, ...]:
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    return (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)[number]


def _free(op: Op, number: int) -> tuple[int, ...]:
    """Return the free dimensions of an operand."""
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    batching = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)[number]
    return free_dimensions(op.operands[number].tensor.rank, batching, _contracting(op, number))
