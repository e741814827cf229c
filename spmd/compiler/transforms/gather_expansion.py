"""Gathers of a few known places along a dimension: slices, one after another.

Channels that change places (`image[..., [2, 1, 0]]`) and columns that are picked are then copied from where they are
known to be; nothing is looked up.
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
#: Places that are taken as slices at most.
_MOST = 8


def expand_gathers(block: Block) -> None:
    """Rewrites the gathers of known places of `block` and of the regions inside it; in place."""
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
    places = [min(max(int(place), 0), last) for place in array.reshape(-1)]  # as the specification clamps them
    begins = [0, *(k + 1 for k, (one, other) in enumerate(pairwise(places)) if other != one + 1), len(places)]
    parts = [_slice(builder, operand, axis, places[begin], end - begin) for begin, end in pairwise(begins)]
    if len(parts) == 1:
        return parts
    return [builder.one("concatenate", parts, op.result.tensor, dimension=axis)]


def _axis(op: Op) -> int | None:
    """The dimension along which elements are taken, where the result has them in their place; None elsewhere."""
    numbers: GatherDimensionNumbersAttr = op["dimension_numbers"]
    shape, rank = op.operands[0].tensor.static_shape, op.result.tensor.rank
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims or rank != len(shape):
        return None
    (axis,) = numbers.start_index_map
    sizes = tuple(1 if d == axis else size for d, size in enumerate(shape))
    beside = tuple(d for d in range(rank) if d != axis)
    is_taken = tuple(numbers.collapsed_slice_dims) == (axis,) and tuple(op["slice_sizes"]) == sizes
    return axis if is_taken and tuple(numbers.offset_dims) == beside and shape[axis] else None


def _slice(builder: OpBuilder, operand: Value, axis: int, place: int, count: int) -> Value:
    shape = operand.tensor.static_shape
    starts = tuple(place if d == axis else 0 for d in range(len(shape)))
    limits = tuple(place + count if d == axis else size for d, size in enumerate(shape))
    type = operand.tensor.with_shape(tuple(count if d == axis else size for d, size in enumerate(shape)))
    ones = (1,) * len(shape)
    return builder.one("slice", [operand], type, start_indices=starts, limit_indices=limits, strides=ones)
