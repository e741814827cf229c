"""Operations that read or write at runtime indices.

Source: XlaBuilder operation semantics, "DynamicSlice", "DynamicUpdateSlice", "Gather", "Scatter".
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd import types as t
from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation, region_of
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation
from spmd.builder.options import GatherDimensionNumbers, ScatterDimensionNumbers
from spmd.builder.shape import Shape
from spmd.builder.xla_op import XlaOp
from spmd.ir import Value


def _starts(builder: XlaBuilder, start_indices: object, rank: int) -> list[Value]:
    """Return one integer scalar per dimension, from scalars or from a vector."""
    if isinstance(start_indices, XlaOp) and start_indices.shape.rank() == 1:
        vector = checks.array(builder, start_indices, "start_indices")
        if checks.sizes(vector) != (rank,):
            raise ArgumentError(
                "start_indices", f"must be a vector of {rank} entries, got {Shape.of(vector.type).brief}"
            )
        values = [_entry(builder, vector, i) for i in range(rank)]
    else:
        starts = start_indices if isinstance(start_indices, (list, tuple)) else [start_indices]
        if len(starts) != rank:
            raise ArgumentError("start_indices", f"must be {rank} scalars, one per dimension, got {len(starts)}")
        values = [checks.scalar(builder, one, f"start_indices[{i}]") for i, one in enumerate(starts)]
    for value in values:
        checks.kind(value, "start_indices", "of an integer type", "signed", "unsigned")
        checks.same_element_type(value, values[0], "start_indices")
    return values


def _entry(builder: XlaBuilder, vector: Value, index: int) -> Value:
    attributes = {"start_indices": (index,), "limit_indices": (index + 1,), "strides": (1,)}
    (part,) = builder.emit("stablehlo.slice", [vector], attributes)
    (value,) = builder.emit("stablehlo.reshape", [part], None, [part.tensor.with_shape(())])
    return value


@operation
def DynamicSlice(
    builder: XlaBuilder, operand: XlaOp, start_indices: Sequence[XlaOp] | XlaOp, size_indices: Sequence[int]
) -> XlaOp:
    """Return the slice of `operand` of sizes `size_indices` at `start_indices`, clamped to stay in bounds.

    `start_indices`: one integer scalar per dimension, or a vector of them. Source: "DynamicSlice".
    """
    value = checks.array(builder, operand, "operand")
    rank = value.tensor.rank
    sizes = checks.integers(size_indices, "size_indices", rank, 0)
    for number, (size, limit) in enumerate(zip(sizes, checks.sizes(value), strict=True)):
        if size > limit:
            raise ArgumentError("size_indices", f"must be at most {limit} in dimension {number}, got {size}")
    starts = _starts(builder, start_indices, rank)
    return builder.emit_one("stablehlo.dynamic_slice", [value, *starts], {"slice_sizes": sizes})


@operation
def DynamicUpdateSlice(
    builder: XlaBuilder, operand: XlaOp, update: XlaOp, start_indices: Sequence[XlaOp] | XlaOp
) -> XlaOp:
    """Return `operand` with `update` written at `start_indices`, clamped to stay in bounds.

    `update` has the operand's rank and element type, and no larger dimension. Source: "DynamicUpdateSlice".
    """
    value, part = checks.array(builder, operand, "operand"), checks.array(builder, update, "update")
    checks.same_element_type(part, value, "update")
    sizes, limit = checks.sizes(part), checks.sizes(value)
    if len(sizes) != len(limit) or any(one > two for one, two in zip(sizes, limit, strict=True)):
        raise ArgumentError(
            "update", f"must fit into operand {Shape.of(value.type).brief}, got {Shape.of(part.type).brief}"
        )
    starts = _starts(builder, start_indices, value.tensor.rank)
    return builder.emit_one("stablehlo.dynamic_update_slice", [value, part, *starts])


@operation
def Gather(
    builder: XlaBuilder,
    operand: XlaOp,
    start_indices: XlaOp,
    offset_dims: Sequence[int] | GatherDimensionNumbers = (),
    collapsed_slice_dims: Sequence[int] = (),
    slice_sizes: Sequence[int] | bool = (),
    start_index_map: Sequence[int] = (),
    index_vector_dim: int | None = None,
    indices_are_sorted: bool = False,
    *,
    dimension_numbers: GatherDimensionNumbers | None = None,
) -> XlaOp:
    """Return slices of `operand`, of `slice_sizes`, at the indices in `start_indices`, assembled. Source: "Gather".

    `index_vector_dim` is the dimension of `start_indices` that holds an index vector (its rank: an implicit last
    dimension of size 1); by default the last one. `start_index_map[i]` is the operand's dimension indexed by entry
    i. `collapsed_slice_dims`, of slice size 1, are dropped from the result; the others become its `offset_dims`.
    Also Gather(operand, start_indices, dimension_numbers, slice_sizes, indices_are_sorted), as xla_client has it.
    """
    value, indices = checks.array(builder, operand, "operand"), checks.array(builder, start_indices, "start_indices")
    checks.kind(indices, "start_indices", "of an integer type", "signed", "unsigned")
    if isinstance(offset_dims, GatherDimensionNumbers):
        if isinstance(slice_sizes, bool):  # (dimension_numbers, slice_sizes, indices_are_sorted)
            indices_are_sorted, slice_sizes = slice_sizes, ()
        dimension_numbers, slice_sizes = offset_dims, slice_sizes or collapsed_slice_dims
    rank = value.tensor.rank
    if dimension_numbers is None:
        vector = indices.tensor.rank - 1 if index_vector_dim is None else index_vector_dim
        dimension_numbers = GatherDimensionNumbers(
            list(checks.integers(offset_dims, "offset_dims")),
            list(checks.dimensions(collapsed_slice_dims, rank, "collapsed_slice_dims")),
            list(checks.dimensions(start_index_map, rank, "start_index_map")),
            checks.dimension(vector, indices.tensor.rank + 1, "index_vector_dim"),
        )
    numbers = dimension_numbers
    sizes = checks.integers(slice_sizes, "slice_sizes", rank, 0)
    for number, (size, limit) in enumerate(zip(sizes, checks.sizes(value), strict=True)):
        if size > limit:
            raise ArgumentError("slice_sizes", f"must be at most {limit} in dimension {number} of operand, got {size}")
    for number in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims):
        if sizes[number] > 1:
            raise ArgumentError(
                "collapsed_slice_dims", f"the slice size of dimension {number} must be 1, got {sizes[number]}"
            )
    dropped = len(numbers.collapsed_slice_dims) + len(numbers.operand_batching_dims)
    if rank != len(numbers.offset_dims) + dropped:
        kept = len(numbers.offset_dims)
        message = f"offset and collapsed dimensions must add up to the rank {rank}, got {kept} and {dropped}"
        raise ArgumentError("offset_dims", message)
    attributes = {
        "dimension_numbers": numbers.attribute(),
        "slice_sizes": sizes,
        "indices_are_sorted": bool(indices_are_sorted),
    }
    return builder.emit_one("stablehlo.gather", [value, indices], attributes)


@operation
def Scatter(
    builder: XlaBuilder,
    operands: XlaOp | Sequence[XlaOp],
    scatter_indices: XlaOp,
    updates: XlaOp | Sequence[XlaOp],
    update_computation: XlaComputation,
    index_vector_dim: int | ScatterDimensionNumbers | None = None,
    update_window_dims: Sequence[int] | bool = (),
    inserted_window_dims: Sequence[int] | bool = (),
    scatter_dims_to_operand_dims: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    *,
    dimension_numbers: ScatterDimensionNumbers | None = None,
) -> XlaOp:
    """Return `operands` updated at `scatter_indices` with `updates`, by `update_computation`. Source: "Scatter".

    Update elements whose own index is out of bounds are skipped.
    The computation takes the current value of each operand, then each update, and returns the new values. Several
    operands, all of one shape, return a tuple. Also Scatter(operands, scatter_indices, updates, computation,
    dimension_numbers, indices_are_sorted, unique_indices), as xla_client has it.
    """
    values = checks.arrays(builder, operands, "operands")
    indices = checks.array(builder, scatter_indices, "scatter_indices")
    checks.kind(indices, "scatter_indices", "of an integer type", "signed", "unsigned")
    changes = checks.arrays(builder, updates, "updates")
    if len(changes) != len(values):
        raise ArgumentError("updates", f"must be {len(values)}, one per operand, got {len(changes)}")
    checks.same_dimensions(values, "operands")
    checks.same_dimensions(changes, "updates")
    for i, (change, value) in enumerate(zip(changes, values, strict=True)):
        checks.same_element_type(change, value, f"updates[{i}]")
    if isinstance(index_vector_dim, ScatterDimensionNumbers):
        dimension_numbers = index_vector_dim
        if isinstance(update_window_dims, bool):
            indices_are_sorted = update_window_dims
        if isinstance(inserted_window_dims, bool):
            unique_indices = inserted_window_dims
    elif dimension_numbers is None:
        vector = indices.tensor.rank - 1 if index_vector_dim is None else index_vector_dim
        rank = values[0].tensor.rank
        dimension_numbers = ScatterDimensionNumbers(
            list(_ascending(update_window_dims, changes[0].tensor.rank, "update_window_dims")),
            list(_ascending(inserted_window_dims, rank, "inserted_window_dims")),
            list(checks.dimensions(scatter_dims_to_operand_dims, rank, "scatter_dims_to_operand_dims")),
            checks.dimension(vector, indices.tensor.rank + 1, "index_vector_dim"),
        )
    used = checks.reducer(builder, update_computation, "update_computation", values)
    scalars = [t.TensorType((), value.tensor.element_type) for value in values] * 2
    attributes = {
        "scatter_dimension_numbers": dimension_numbers.attribute(),
        "indices_are_sorted": bool(indices_are_sorted),
        "unique_indices": bool(unique_indices),
    }
    everything = [*values, indices, *changes]
    types = [value.type for value in values]
    results = builder.emit("stablehlo.scatter", everything, attributes, types, [region_of(used, scalars)])
    return builder.collate(results)


def _ascending(values: object, rank: int, argument: str) -> tuple[int, ...]:
    numbers = checks.dimensions(values, rank, argument)
    if list(numbers) != sorted(numbers):
        raise ArgumentError(argument, f"must be in increasing order, got {list(numbers)}")
    return numbers
