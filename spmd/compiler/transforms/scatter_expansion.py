"""Scatters of one element to each row of one value: a selection, which loop nests take in.

The gradient of taking an element of each row (a cross-entropy's, above all) is such a scatter. As a selection it is
computed where it is read, and the array of mostly one value is never stored.
"""

from __future__ import annotations

from math import prod

import numpy as np

from spmd.analysis.reducers import binary_of
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import ScatterDimensionNumbersAttr
from spmd.ir import Block, Op, Value
from spmd.ir.attributes import is_splat
from spmd.types import I32, I64, ElementType, TensorType

SCATTER = "stablehlo.scatter"


def expand_scatters(block: Block) -> None:
    """Rewrites the scatters to rows of `block` and of the regions inside it; in place."""
    rewrite(block, (SCATTER,), lambda block: _rule)


def _rule(op: Op, builder: OpBuilder) -> list[Value] | None:
    if len(op.operands) != 3 or not all(is_plain(value.type) for value in op.operands):
        return None
    operand, indices, updates = op.operands
    combination = binary_of(op.regions[0])
    if combination is None or not _is_of_one_value(operand) or not _is_one_of_a_row(op):
        return None
    if operand.type != op.result.type or updates.tensor.element_type != operand.tensor.element_type:
        return None
    numbers: ScatterDimensionNumbersAttr = op["scatter_dimension_numbers"]
    (axis,) = numbers.scatter_dims_to_operand_dims
    types = TensorType(operand.tensor.shape, _index_element(indices, operand.tensor.static_shape[axis]))
    places = builder.one("iota", (), types, iota_dimension=axis)
    place = _along_rows(builder, op, builder.convert(indices, indices.tensor.with_element_type(types.element_type)))
    combined = builder.binary(combination, operand, _along_rows(builder, op, updates))
    return [builder.select(builder.compare(places, place, "EQ"), combined, operand)]


def _is_of_one_value(value: Value) -> bool:
    """Whether all elements are one: others must be read anyway, and may rather be written over where they lie."""
    op = value.defining_op
    while op is not None and op.name == "stablehlo.broadcast_in_dim":
        value = op.operands[0]
        op = value.defining_op
    return value.tensor.rank == 0 or (
        op is not None and op.name == "stablehlo.constant" and is_splat(op["value"].array)
    )


def _is_one_of_a_row(op: Op) -> bool:
    """Whether the dimensions beside the one that indices count are batching ones, with an index for each place."""
    numbers: ScatterDimensionNumbersAttr = op["scatter_dimension_numbers"]
    axes, rank = numbers.scatter_dims_to_operand_dims, op.operands[0].tensor.rank
    rows = {*range(rank)} - {*axes}
    alone = len(axes) == 1 and numbers.inserted_window_dims == axes and not numbers.update_window_dims
    updates = op.operands[2].tensor.static_shape
    shape = op.operands[0].tensor.static_shape
    return alone and rows == {*numbers.input_batching_dims} and prod(updates) == prod(shape[d] for d in rows)


def _index_element(indices: Value, extent: int) -> ElementType:
    """A type in which places and indices compare: an index too large for it is in no row, as a negative one."""
    element = indices.tensor.element_type
    assert isinstance(element, ElementType)
    narrow = element.bits < 32 or (element.bits == 32 and element.is_signed)
    return I32 if narrow and extent <= np.iinfo(np.int32).max else I64


def _along_rows(builder: OpBuilder, op: Op, values: Value) -> Value:
    """Indices or updates, one for each row, everywhere in their rows."""
    numbers: ScatterDimensionNumbersAttr = op["scatter_dimension_numbers"]
    vector = numbers.index_vector_dim
    batching = [d - (d > vector) for d in numbers.scatter_indices_batching_dims]
    shape = op.operands[0].tensor.static_shape
    rows = builder.reshape(values, op.operands[2].tensor.static_shape)
    rows = builder.reshape(rows, [rows.tensor.static_shape[d] for d in sorted(batching)])
    dimensions = [numbers.input_batching_dims[batching.index(d)] for d in sorted(batching)]
    return builder.one(
        "broadcast_in_dim", [rows], rows.tensor.with_shape(shape), broadcast_dimensions=tuple(dimensions)
    )
