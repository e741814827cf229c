"""Lowers ops with run-time indices: each process reads or writes the elements in its block.

A read from a sharded dimension gives zeros on all processes but the owner of the element, hence a partial sum. A write
to a sharded dimension is performed by the process that owns the index and needs no communication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from partitioner import window as win
from partitioner.emit import Emitter
from partitioner.lowering.assign import Assignment, reduced, sharding_of
from partitioner.lowering.core import Lowering, lowers
from partitioner.lowering.data_movement import sum_rule
from partitioner.lowering.reduction import folding
from partitioner.lowering.sums import additive_identity, summing_op
from partitioner.mesh import Axes
from partitioner.rules.core import PASS, REDUCE, Rule, local_rule
from partitioner.sharding import Sharding
from spmd.ir import Op, Value
from spmd.support.arrays import Array
from spmd.types import I1, ElementType, TensorType, storage_range


def _as_index(emitter: Emitter, value: Value) -> Value:
    """Return an index in the index type; clamped, so that values beyond that type stay out of bounds."""
    element = value.tensor.element_type
    assert isinstance(element, ElementType)
    low, high = storage_range(element)
    limits = np.iinfo(emitter.index_type.dtype)
    if low < limits.min or high > limits.max:
        scalar = value.tensor.with_shape(())
        ends = [emitter.splat(end, scalar) for end in (max(low, limits.min), min(high, limits.max))]
        value = emitter.one("clamp", [ends[0], value, ends[1]], value.type)
    return emitter.convert(value, TensorType(value.tensor.shape, emitter.index_type))


def _clamped(emitter: Emitter, index: Value, limit: int) -> Value:
    """Return a scalar index in the index type, clamped to [0, limit]."""
    low, high = emitter.index(0), emitter.index(limit)
    return emitter.one("clamp", [low, _as_index(emitter, index), high], low.type)


# --- dynamic_slice, dynamic_update_slice -----------------------------------------------------------------------------


@lowers("stablehlo.dynamic_slice")
def dynamic_slice(lowering: Lowering, op: Op) -> None:
    """Lower a slice of sharded dimensions as a partial sum of the elements that each process holds."""
    value = op.operands[0]
    size, taken = value.tensor.static_shape, op.result.tensor.static_shape
    rule = sum_rule(op)
    nothing = additive_identity(value.tensor)
    kinds = (PASS,) if nothing is None else (PASS, REDUCE)
    assignment = lowering.choose(op, rule, lambda factor: rule.kinds[factor] in kinds)
    pending = _linear_pending(lowering, value)
    assignment = tuple(tuple(axis for axis in axes if axis not in pending[0]) for axes in assignment)
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    layout = replace(layout, partial=pending[0], reduction=pending[1])
    result = sharding_of(lowering.mesh, rule.results[0], assignment)
    emitter = lowering.emitter
    local = lowering.get(value, layout)
    starts = [lowering.replicated(start) for start in op.operands[1:]]
    inside: list[Callable[[Value], Value]] = []
    cut = [d for d in range(len(size)) if layout.dimensions[d] and taken[d] != size[d]]
    for dimension in cut:
        extent = taken[dimension]
        block = local.tensor.static_shape[dimension]
        begin = _clamped(emitter, starts[dimension], size[dimension] - extent)
        offset = emitter.per_device_constant(lowering.mesh.block_index(layout.dimensions[dimension]) * block)
        place = emitter.binary("subtract", begin, offset)
        # Padded by the slice's length, the block can be sliced at the global start minus the block's offset.
        local = emitter.pad(local, dimension, extent, extent)
        starts[dimension] = emitter.binary("add", place, emitter.index(extent))
        inside.append(_inside(emitter, dimension, place, begin, block, size[dimension]))
    if cut:
        starts = [_as_index(emitter, start) for start in starts]
    shape = result.local_shape(taken)
    part = lowering.clone(op, [local, *starts], [result], {"slice_sizes": shape})[0]
    for test in inside:
        assert nothing is not None
        part = emitter.select(test(part), part, emitter.splat(nothing, part.tensor))
    axes = reduced(rule, assignment)
    partial = tuple(sorted((*axes, *pending[0])))
    lowering.set(op.result, part, replace(result, partial=partial, reduction=summing_op(value.tensor)))


def _linear_pending(lowering: Lowering, value: Value) -> tuple[Axes, str]:
    layouts = lowering.layouts_of(value)
    is_alone = len(layouts) == 1 and lowering.uses.get(value) == 1
    if is_alone and layouts[0].partial and layouts[0].reduction == summing_op(value.tensor):
        return layouts[0].partial, layouts[0].reduction
    return (), "stablehlo.add"


def _inside(
    emitter: Emitter, dimension: int, place: Value, begin: Value, block: int, size: int
) -> Callable[[Value], Value]:
    """Return a test of whether elements of a slice that starts at `place` in the block are in the block, unpadded."""

    def test(piece: Value) -> Value:
        position = win.positions(emitter, piece, dimension, place)
        whole = win.positions(emitter, piece, dimension, begin)
        limit = emitter.broadcast(emitter.index(size), piece.tensor.shape)
        return emitter.binary("and", win.within(emitter, position, 0, block), emitter.compare(whole, limit, "LT"))

    return test


@lowers("stablehlo.dynamic_update_slice")
def dynamic_update_slice(lowering: Lowering, op: Op) -> None:
    """Lower an update that is replicated along sharded dimensions; each process writes the part in its block."""
    rule = local_rule(op)
    assignment = lowering.choose(op, rule)
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    other = sharding_of(lowering.mesh, rule.operands[1], assignment)
    emitter = lowering.emitter
    local, update = lowering.get(op.operands[0], layout), lowering.get(op.operands[1], other)
    size, updated = op.operands[0].tensor.static_shape, op.operands[1].tensor.static_shape
    starts = [lowering.replicated(start) for start in op.operands[2:]]
    cut = [d for d in range(len(size)) if layout.dimensions[d] and updated[d] != size[d]]
    for dimension in cut:
        extent, block = updated[dimension], local.tensor.static_shape[dimension]
        begin = _clamped(emitter, starts[dimension], size[dimension] - extent)
        offset = emitter.per_device_constant(lowering.mesh.block_index(layout.dimensions[dimension]) * block - extent)
        place = emitter.binary("subtract", begin, offset)
        # An update outside the block is clamped into the margins on either side.
        starts[dimension] = place
        local = emitter.pad(local, dimension, extent, extent)
    if cut:
        starts = [_as_index(emitter, start) for start in starts]
    padded = lowering.clone(op, [local, update, *starts], [layout], None, [local.tensor])[0]
    for dimension in cut:
        extent = updated[dimension]
        padded = emitter.slice(padded, dimension, extent, padded.tensor.static_shape[dimension] - extent)
    lowering.set(op.result, padded, layout)


# --- gather, scatter -------------------------------------------------------------------------------------------------


@lowers("stablehlo.gather")
def gather(lowering: Lowering, op: Op) -> None:
    """Lower a gather as a partial sum: along sharded dimensions each process has the elements in its block, or zeros.

    Along dimensions without index, which are read at 0, the owner is the first process.
    """
    rule = local_rule(op)
    value = op.operands[0]
    numbers = op["dimension_numbers"]
    nothing = additive_identity(value.tensor)

    def allowed(factor: int) -> bool:
        return rule.kinds[factor] == PASS or (rule.kinds[factor] == REDUCE and nothing is not None)

    assignment = lowering.choose(op, rule, allowed)
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    other = sharding_of(lowering.mesh, rule.operands[1], assignment)
    result = sharding_of(lowering.mesh, rule.results[0], assignment)
    local, indices = lowering.get(value, layout), lowering.get(op.operands[1], other)
    sizes = list(op["slice_sizes"])
    single = []
    for dimension, size in enumerate(value.tensor.static_shape):
        if not layout.dimensions[dimension] or dimension in numbers.operand_batching_dims:
            continue
        if sizes[dimension] == size:
            sizes[dimension] = local.tensor.static_shape[dimension]
        else:
            single.append(dimension)
    emitter = lowering.emitter
    tests: list[Value] = []
    indexed = [dimension for dimension in single if dimension in numbers.start_index_map]
    if indexed:
        indices, test = _own_indices(
            lowering, indices, numbers.start_index_map, numbers.index_vector_dim, layout, value, indexed, True
        )
        tests.append(test)
    rows = lowering.clone(op, [local, indices], [result], {"slice_sizes": tuple(sizes)})[0]
    batch = [d for d in range(rows.tensor.rank) if d not in numbers.offset_dims]
    if indexed:
        type = TensorType(rows.tensor.shape, I1)
        tests = [emitter.one("broadcast_in_dim", tests, type, broadcast_dimensions=tuple(batch))]
    first = [axis for dimension in single if dimension not in indexed for axis in layout.dimensions[dimension]]
    if first:
        tests.append(emitter.broadcast(emitter.is_first(tuple(first)), rows.tensor.shape))
    for test in tests:
        assert nothing is not None
        rows = emitter.select(test, rows, emitter.splat(nothing, rows.tensor))
    partial = reduced(rule, assignment)
    lowering.set(op.result, rows, replace(result, partial=partial, reduction=summing_op(value.tensor)))


def _own_indices(
    lowering: Lowering,
    indices: Value,
    index_map: tuple[int, ...],
    vector: int,
    layout: Sharding,
    value: Value,
    cut: list[int],
    clamp: bool,
) -> tuple[Value, Value]:
    """Return indices relative to this process's block, and whether each index vector is inside it.

    With `clamp` (gather), indices are first clamped to the global operand. Without (scatter), indices that are out of
    bounds globally are outside every block.
    """
    emitter = lowering.emitter
    wide = _as_index(emitter, indices)
    shape = wide.tensor.static_shape
    has_vector = vector < len(shape)
    batch = tuple(size for d, size in enumerate(shape) if d != vector)
    columns: list[Value] = []
    test: Value | None = None
    for position, dimension in enumerate(index_map):
        column = emitter.slice(wide, vector, position, position + 1) if has_vector else wide
        column = emitter.reshape(column, batch)
        if dimension in cut:
            size = value.tensor.static_shape[dimension]
            block = -(-size // layout.count(dimension))
            if clamp:
                low, high = emitter.index(0), emitter.index(size - 1)
                column = emitter.one("clamp", [low, column, high], column.tensor)
            offset = emitter.per_device_constant(lowering.mesh.block_index(layout.dimensions[dimension]) * block)
            mine = emitter.binary("subtract", column, emitter.broadcast(offset, batch))
            inside = win.within(emitter, mine, 0, block)
            inside = emitter.binary("and", inside, win.within(emitter, column, 0, size))
            test = inside if test is None else emitter.binary("and", test, inside)
            column = mine
        columns.append(column)
    assert test is not None
    if has_vector:
        unit = tuple(1 if d == vector else size for d, size in enumerate(shape))
        index_vector = emitter.concatenate([emitter.reshape(column, unit) for column in columns], vector)
    else:
        index_vector = columns[0]
    return index_vector, test


@lowers("stablehlo.scatter")
def scatter(lowering: Lowering, op: Op) -> None:
    """Lower a scatter; updates outside a process's block get out-of-bounds indices, which a scatter ignores."""
    rule = local_rule(op)
    count = len(op.operand_group("inputs"))
    numbers = op["scatter_dimension_numbers"]
    name, zero = folding(op.region("update_computation"), op.operands[0]) if count == 1 else (None, None)
    foldable = zero is not None

    def allowed(factor: int) -> bool:
        return rule.kinds[factor] == PASS or (rule.kinds[factor] == REDUCE and foldable)

    assignment = _without_unknown_places(op, rule, lowering.choose(op, rule, allowed))
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    other = sharding_of(lowering.mesh, rule.operands[count], assignment)
    updates = sharding_of(lowering.mesh, rule.operands[count + 1], assignment)
    emitter = lowering.emitter
    inputs = [lowering.get(value, layout) for value in op.operands[:count]]
    indices = lowering.get(op.operands[count], other)
    update_values = [lowering.get(value, updates) for value in op.operands[count + 1 :]]
    places, vector = numbers.scatter_dims_to_operand_dims, numbers.index_vector_dim
    cut = [dimension for dimension in places if layout.dimensions[dimension]]
    if cut:
        indices, _ = _own_indices(lowering, indices, places, vector, layout, op.operands[0], cut, False)
    indices = _without_padding(lowering, indices, op.operands[count], other, vector)
    partial = reduced(rule, assignment)
    if partial:
        assert name is not None and zero is not None
        if not places:
            # Without indices no update can be out of bounds, so padding must not change the result.
            update_values = [_padded_with_identity(lowering, value, updates, op, zero) for value in update_values]
        first = emitter.is_first(partial)
        inputs = [
            emitter.select(emitter.broadcast(first, v.tensor.shape), v, emitter.splat(zero, v.tensor)) for v in inputs
        ]
    results = [
        replace(sharding_of(lowering.mesh, mapping, assignment), partial=partial, reduction=name or "stablehlo.add")
        for mapping in rule.results
    ]
    lowering.set_all(op.results, lowering.clone(op, [*inputs, indices, *update_values], results), results)


def _padded_with_identity(lowering: Lowering, local: Value, layout: Sharding, op: Op, zero: Array) -> Value:
    """Return updates with the identity `zero` in the padding of sharded batch dimensions."""
    emitter = lowering.emitter
    windows = op["scatter_dimension_numbers"].update_window_dims
    fill = emitter.splat(zero, local.tensor.with_shape(()))
    for dimension, size in enumerate(op.operand_group("updates")[0].tensor.static_shape):
        if dimension not in windows:
            local = win.mask_padding(emitter, local, dimension, layout.dimensions[dimension], size, fill)
    return local


def _without_unknown_places(op: Op, rule: Rule, assignment: Assignment) -> Assignment:
    """Return the assignment without sharding of dimensions for which a process cannot tell what is in its block.

    Windows at run-time indices span several blocks; dimensions without index are written at 0.
    """
    numbers = op["scatter_dimension_numbers"]
    indexed, inserted = set(numbers.scatter_dims_to_operand_dims), set(numbers.inserted_window_dims)
    whole = {rule.operands[0][dimension][0] for dimension in indexed ^ inserted}
    return tuple(() if factor in whole else axes for factor, axes in enumerate(assignment))


def _without_padding(lowering: Lowering, indices: Value, value: Value, layout: Sharding, vector: int) -> Value:
    """Return indices in which those in the padding of sharded batch dimensions are out of bounds."""
    emitter = lowering.emitter
    for dimension, size in enumerate(value.tensor.static_shape):
        if dimension != vector and layout.is_padded(dimension, size):
            outside = emitter.index(np.iinfo(emitter.index_type.dtype).min // 2)
            indices = _as_index(emitter, indices)
            axes = layout.dimensions[dimension]
            indices = win.mask_padding(emitter, indices, dimension, axes, size, outside)
    return indices
