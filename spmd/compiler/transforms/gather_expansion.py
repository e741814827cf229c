"""Expansion of gathers with a few constant indices along one dimension into slices.

Permuted channels (`image[..., [2, 1, 0]]`) and selected columns are then copied from static offsets.
"""

from __future__ import annotations

from itertools import pairwise

from spmd.analysis.constants import constant_array
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import GatherDimensionNumbersAttr
from spmd.ir import Block, Op, Value

GATHER = "stablehlo.gather"
#: Most indices that become slices.
_MOST = 8


def expand_gathers(block: Block) -> None:
    """Rewrite gathers with constant indices in `block` and its regions; in place."""
    rewrite(block, (GATHER,), lambda block: _rule)


def _rule(op: Op, builder: OpBuilder) -> list[Value] | None:
    operand, indices = op.operands
    array = constant_array(indices.defining_op)
    if array is None or not 1 <= array.size <= _MOST or not is_plain(operand.type):
        return None
    axis = _axis(op)
    if axis is None:
        return None
    last = operand.tensor.static_shape[axis] - 1
    starts = [min(max(int(start), 0), last) for start in array.reshape(-1)]  # clamped as in the specification
    begins = [0, *(k + 1 for k, (one, other) in enumerate(pairwise(starts)) if other != one + 1), len(starts)]
    parts = [_slice(builder, operand, axis, starts[begin], end - begin) for begin, end in pairwise(begins)]
    if len(parts) == 1:
        return parts
    return [builder.one("concatenate", parts, op.result.tensor, dimension=axis)]


def _axis(op: Op) -> int | None:
    """Return the gathered dimension if it keeps its position in the result; else None."""
    numbers: GatherDimensionNumbersAttr = op["dimension_numbers"]
    shape, rank = op.operands[0].tensor.static_shape, op.result.tensor.rank
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims or rank != len(shape):
        return None
    (axis,) = numbers.start_index_map
    sizes = tuple(1 if d == axis else size for d, size in enumerate(shape))
    beside = tuple(d for d in range(rank) if d != axis)
    is_taken = tuple(numbers.collapsed_slice_dims) == (axis,) and tuple(op["slice_sizes"]) == sizes
    return axis if is_taken and tuple(numbers.offset_dims) == beside and shape[axis] else None


def _slice(builder: OpBuilder, operand: Value, axis: int, start: int, count: int) -> Value:
    shape = operand.tensor.static_shape
    starts = tuple(start if d == axis else 0 for d in range(len(shape)))
    limits = tuple(start + count if d == axis else size for d, size in enumerate(shape))
    type = operand.tensor.with_shape(tuple(count if d == axis else size for d, size in enumerate(shape)))
    ones = (1,) * len(shape)
    return builder.one("slice", [operand], type, start_indices=starts, limit_indices=limits, strides=ones)
