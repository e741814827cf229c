"""Expansion of scatters of one element per row, into a splat, to selects.

The gradient of selecting an element of each row (as in cross-entropy) is such a scatter. A select is fused into its
users, and the mostly constant array is never stored.
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
    """Rewrite scatters of one element per row in `block` and its regions; in place."""
    rewrite(block, (SCATTER,), lambda block: _rule)


def _rule(op: Op, builder: OpBuilder) -> list[Value] | None:
    if len(op.operands) != 3 or not all(is_plain(value.type) for value in op.operands):
        return None
    operand, indices, updates = op.operands
    combination = binary_of(op.regions[0])
    if combination is None or not _is_splat_value(operand) or not _is_one_per_row(op):
        return None
    if operand.type != op.result.type or updates.tensor.element_type != operand.tensor.element_type:
        return None
    numbers: ScatterDimensionNumbersAttr = op["scatter_dimension_numbers"]
    (axis,) = numbers.scatter_dims_to_operand_dims
    types = TensorType(operand.tensor.shape, _index_element(indices, operand.tensor.static_shape[axis]))
    columns = builder.one("iota", (), types, iota_dimension=axis)
    column = _along_rows(builder, op, builder.convert(indices, indices.tensor.with_element_type(types.element_type)))
    combined = builder.binary(combination, operand, _along_rows(builder, op, updates))
    return [builder.select(builder.compare(columns, column, "EQ"), combined, operand)]


def _is_splat_value(value: Value) -> bool:
    """Return whether `value` is a splat: any other operand must be read anyway, and may be updated in place."""
    op = value.defining_op
    while op is not None and op.name == "stablehlo.broadcast_in_dim":
        value = op.operands[0]
        op = value.defining_op
    return value.tensor.rank == 0 or (
        op is not None and op.name == "stablehlo.constant" and is_splat(op["value"].array)
    )


def _is_one_per_row(op: Op) -> bool:
    """Return whether `op` scatters one element to each row: all dimensions except the indexed one are batching."""
    numbers: ScatterDimensionNumbersAttr = op["scatter_dimension_numbers"]
    axes, rank = numbers.scatter_dims_to_operand_dims, op.operands[0].tensor.rank
    rows = {*range(rank)} - {*axes}
    alone = len(axes) == 1 and numbers.inserted_window_dims == axes and not numbers.update_window_dims
    updates = op.operands[2].tensor.static_shape
    shape = op.operands[0].tensor.static_shape
    return alone and rows == {*numbers.input_batching_dims} and prod(updates) == prod(shape[d] for d in rows)


def _index_element(indices: Value, extent: int) -> ElementType:
    """Return the type in which indices are compared: it represents every valid index, and none wraps to one."""
    element = indices.tensor.element_type
    assert isinstance(element, ElementType)
    narrow = element.bits < 32 or (element.bits == 32 and element.is_signed)
    return I32 if narrow and extent <= np.iinfo(np.int32).max else I64


def _along_rows(builder: OpBuilder, op: Op, values: Value) -> Value:
    """Return indices or updates, one per row, broadcast along the rows."""
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
