"""Products of a matrix and a vector as folds over the matrix, each element of which is read once.

Nothing is gained by what products of matrices do to use an element again: memory is all that these wait for. StableHLO
specification, "dot_general".
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
    """Whether `op`, of static shape, sums the products of matrices and vectors, be these of one row or column."""
    if op.name != DOT_GENERAL or op["algorithm"] is not None or is_outer_product(op) or summed_in(op) is None:
        return False
    return _is_vector(op, 0) or _is_vector(op, 1)


def summed_in(op: Op) -> ElementType | None:
    """What a product is summed in: as convolutions are, or the one type of integers; None of what is neither."""
    elements = [value.tensor.element_type for value in (*op.operands, op.result)]
    (first, *others) = elements
    if isinstance(first, ElementType) and first.is_integer and not first.is_boolean:
        return first if all(other is first for other in others) else None
    return accumulator_of(op)


def matrix_number(op: Op) -> int:
    """The number of the operand of `op`, of which `is_matrix_vector` holds, that is the matrix."""
    return 0 if _is_vector(op, 1) else 1


def matrix_shape(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The points of `op`, which are the matrix's elements, and the dimensions that are folded."""
    number = matrix_number(op)
    return op.operands[number].tensor.static_shape, tuple(sorted(_contracting(op, number)))


def places_of_point(op: Op, index: Index) -> tuple[Index, Index]:
    """The place in the vector of what is multiplied at a point, and the one in the result of where it is summed."""
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
    """The dimensions of an operand that are dimensions of the result, and of that operand alone."""
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    batching = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)[number]
    return free_dimensions(op.operands[number].tensor.rank, batching, _contracting(op, number))
