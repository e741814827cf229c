"""Lowers constants, iota, and ops that move elements, which exchange elements along sharded dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from partitioner import window as win
from partitioner.lowering.assign import Assignment, reduced, sharding_of
from partitioner.lowering.by_rule import by_rule, emit_plain
from partitioner.lowering.core import Lowering, lowers
from partitioner.lowering.sums import additive_identity, summing_op
from partitioner.mesh import Axes
from partitioner.rules.core import PASS, PERMUTE, REDUCE, Rule, RuleBuilder, local_rule
from partitioner.sharding import Sharding
from partitioner.window import HaloWindow, Run, contiguous_window
from spmd.ir import AttributeValue, Op, Value
from spmd.ir.attributes import DenseAttr, is_splat


@lowers("stablehlo.constant", "sdy.constant")
def constant(lowering: Lowering, op: Op) -> None:
    """Lower a constant: a splat is made in any layout, any other is replicated."""
    value = op["value"]
    if isinstance(value, DenseAttr) and is_splat(value.array):
        element = value.array.reshape(-1)[:1].reshape(())

        def make(layout: Sharding) -> Value:
            type = layout.local_type(op.result.tensor)
            return lowering.emitter.constant(np.broadcast_to(element, type.static_shape), type)

        lowering.set_rematerializable(op.result, make)
        return
    constant_value = lowering.emitter.op("stablehlo.constant", (), op.result_types, {"value": value}).results[0]
    lowering.set(op.result, constant_value, Sharding(lowering.mesh, ((),) * op.result.tensor.rank))


@lowers("stablehlo.iota")
def iota(lowering: Lowering, op: Op) -> None:
    """Lower iota: each process counts from the offset of its block in the index type, and converts once."""
    emitter, dimension = lowering.emitter, op["iota_dimension"]

    def make(layout: Sharding) -> Value:
        axes = layout.dimensions[dimension]
        if not axes:
            return lowering.clone(op, (), [layout])[0]
        type = layout.local_type(op.result.tensor)
        starts = lowering.mesh.block_index(axes) * type.static_shape[dimension]
        count = emitter.iota(type.static_shape, dimension)
        start = emitter.broadcast(emitter.per_device_constant(starts), type.shape)
        return emitter.convert(emitter.binary("add", count, start), type)

    lowering.set_rematerializable(op.result, make)


@lowers("stablehlo.broadcast_in_dim")
def broadcast_in_dim(lowering: Lowering, op: Op) -> None:
    """Lower a broadcast: of a scalar in any layout, of anything else by its rule."""
    value = op.operands[0]
    if value.tensor.rank or lowering.current_sharding(value).partial:
        by_rule(lowering, op)
        return

    def make(layout: Sharding) -> Value:
        return lowering.clone(op, [lowering.replicated(value)], [layout])[0]

    lowering.set_rematerializable(op.result, make)


@lowers("stablehlo.broadcast")
def broadcast(lowering: Lowering, op: Op) -> None:
    """Lower a broadcast of blocks; along new dimensions each process makes its own block."""
    rule = local_rule(op)
    assignment = lowering.choose(op, rule)
    shape = sharding_of(lowering.mesh, rule.results[0], assignment).local_shape(op.result.tensor.static_shape)
    sizes = shape[: len(op["broadcast_sizes"])]
    emit_plain(lowering, op, rule, assignment, {"broadcast_sizes": sizes})


#: Returns the halo window of operand i along a dimension for a number of blocks.
Windows = Callable[[int, int, int], HaloWindow]


def _permuted(lowering: Lowering, op: Op, windows: Windows) -> tuple[Rule, Assignment, float]:
    """Return the assignment of an op that may shard dimensions along which elements move, and its cost."""
    rule = local_rule(op)
    (value,) = op.operands[:1]

    def extra(assignment: Assignment) -> float:
        layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
        spent = 0.0
        for dimension, factors in enumerate(rule.operands[0]):
            blocks = layout.count(dimension)
            if blocks > 1 and rule.kinds[factors[0]] == PERMUTE:
                row = win.row_bytes(value, layout, dimension)
                spent += win.price(windows(0, dimension, blocks), row)
        return spent

    assignment = lowering.choose(op, rule, lambda factor: rule.kinds[factor] in (PASS, PERMUTE), extra)
    return rule, assignment, lowering.assignment_cost(op, rule, assignment) + extra(assignment)


def _exchange(
    lowering: Lowering,
    op: Op,
    windows: Windows,
    local_form: Callable[[Value, list[int], Sharding], Value],
    fill: Value | None,
) -> None:
    """Exchange halos along all permuted dimensions, then apply the op locally."""
    rule, assignment, _ = _permuted(lowering, op, windows)
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    local = lowering.get(op.operands[0], layout)
    moved = []
    for dimension, factors in enumerate(rule.operands[0]):
        blocks = layout.count(dimension)
        if blocks > 1 and rule.kinds[factors[0]] == PERMUTE:
            local = win.halo_exchange(
                lowering.emitter, local, dimension, layout.dimensions[dimension], windows(0, dimension, blocks), fill
            )
            moved.append(dimension)
    result = sharding_of(lowering.mesh, rule.results[0], assignment)
    lowering.set(op.result, local_form(local, moved, result), result)


@lowers("stablehlo.slice")
def slice_(lowering: Lowering, op: Op) -> None:
    """Lower a slice; each process fetches the elements of its block of the result."""
    starts, strides = op["start_indices"], op["strides"]
    size, out = op.operands[0].tensor.static_shape, op.result.tensor.static_shape

    def windows(_: int, dimension: int, blocks: int) -> HaloWindow:
        block = -(-out[dimension] // blocks)
        step = strides[dimension]
        first = tuple(starts[dimension] + index * block * step for index in range(blocks))
        return contiguous_window(size[dimension], blocks, first, max(0, (block - 1) * step + 1))

    def local_form(local: Value, moved: list[int], layout: Sharding) -> Value:
        shape = local.tensor.static_shape
        begin = [0 if d in moved or layout.dimensions[d] else starts[d] for d in range(len(shape))]
        limit = [shape[d] if d in moved or layout.dimensions[d] else op["limit_indices"][d] for d in range(len(shape))]
        attributes = {"start_indices": tuple(begin), "limit_indices": tuple(limit)}
        return lowering.clone(op, [local], [layout], attributes)[0]

    if _is_deferrable(lowering, op):
        lowering.defer(op)
    elif not _slice_as_partial_sum(lowering, op, _permuted(lowering, op, windows)[2]):
        _exchange(lowering, op, windows, local_form, None)


def _is_deferrable(lowering: Lowering, op: Op) -> bool:
    """Return whether only concatenations use a slice, which then read its operand instead."""
    if lowering.is_forced(op.result):
        return False
    source, _ = _origin(op.result, _sliced_dimension(op))
    users = lowering.users.get(op.result, [])
    return source is not op.result and all(
        user.name == "stablehlo.concatenate" and user["dimension"] == _sliced_dimension(op) for user in users
    )


def _sliced_dimension(op: Op) -> int:
    """Return the first dimension that a slice shortens; 0 if there is none."""
    shape = op.operands[0].tensor.static_shape
    return next((d for d, size in enumerate(op.result.tensor.static_shape) if size != shape[d]), 0)


def sum_rule(op: Op) -> Rule:
    """Return the rule of a slice as a partial sum: along sliced dimensions each process has its elements, or zeros."""
    builder = RuleBuilder(op)
    taken = op.result.tensor.static_shape
    for dimension, extent in enumerate(op.operands[0].tensor.static_shape):
        if taken[dimension] == extent:
            builder.factor([dimension], [dimension], extent)
        else:
            builder.factor([dimension], [], extent, REDUCE)
    return builder.build()


def _slice_as_partial_sum(lowering: Lowering, op: Op, otherwise: float) -> bool:
    """Lower a slice of sharded dimensions as a partial sum; return False if that is not cheaper than `otherwise`."""
    value = op.operands[0]
    size, taken = value.tensor.static_shape, op.result.tensor.static_shape
    nothing = additive_identity(value.tensor)
    if otherwise == 0 or any(step != 1 for step in op["strides"]) or nothing is None:
        return False
    rule = sum_rule(op)
    assignment = lowering.choose(op, rule)
    axes = reduced(rule, assignment)
    if lowering.assignment_cost(op, rule, assignment) >= otherwise or not axes:
        return False
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    result = sharding_of(lowering.mesh, rule.results[0], assignment)
    local, emitter = lowering.get(value, layout), lowering.emitter
    zero = emitter.constant(nothing, value.tensor.with_shape(()))
    starts, limits = list(op["start_indices"]), list(op["limit_indices"])
    for dimension, extent in enumerate(taken):
        blocks = layout.count(dimension)
        if blocks == 1:
            continue
        if extent != size[dimension]:
            block, begin = local.tensor.static_shape[dimension], op["start_indices"][dimension]
            runs = []
            for index in range(blocks):
                low, high = max(begin, index * block), min(begin + extent, (index + 1) * block)
                runs.append(((low - begin, low, high - low),) if high > low else ())
            window = HaloWindow(size[dimension], blocks, extent, tuple(runs))
            local = win.halo_exchange(emitter, local, dimension, layout.dimensions[dimension], window, zero)
        starts[dimension], limits[dimension] = 0, local.tensor.static_shape[dimension]
    attributes = {"start_indices": tuple(starts), "limit_indices": tuple(limits)}
    summed = replace(result, partial=axes, reduction=summing_op(value.tensor))
    lowering.set(op.result, lowering.clone(op, [local], [summed], attributes)[0], summed)
    return True


@lowers("stablehlo.reverse")
def reverse(lowering: Lowering, op: Op) -> None:
    """Lower a reverse; each process fetches the elements of its block of the result and reverses them."""
    size = op.operands[0].tensor.static_shape

    def windows(_: int, dimension: int, blocks: int) -> HaloWindow:
        block = -(-size[dimension] // blocks)
        first = tuple(size[dimension] - (index + 1) * block for index in range(blocks))
        return contiguous_window(size[dimension], blocks, first, block)

    _exchange(lowering, op, windows, lambda local, moved, layout: lowering.clone(op, [local], [layout])[0], None)


@lowers("stablehlo.pad")
def pad(lowering: Lowering, op: Op) -> None:
    """Lower a pad; each process fetches the operand's elements in its block of the result and pads them."""
    lows, interiors = op["edge_padding_low"], op["interior_padding"]
    highs = op["edge_padding_high"]
    size, out = op.operands[0].tensor.static_shape, op.result.tensor.static_shape
    emitter = lowering.emitter
    fill = lowering.replicated(op.operands[1])

    def windows(_: int, dimension: int, blocks: int) -> HaloWindow:
        block, step = -(-out[dimension] // blocks), interiors[dimension] + 1
        return contiguous_window(size[dimension], blocks, first_elements(dimension, blocks), -(-block // step))

    def first_elements(dimension: int, blocks: int) -> list[int]:
        block, step = -(-out[dimension] // blocks), interiors[dimension] + 1
        return [-(-(index * block - lows[dimension]) // step) for index in range(blocks)]

    def local_form(local: Value, moved: list[int], layout: Sharding) -> Value:
        low, high, inner = list(lows), list(highs), list(interiors)
        offsets: dict[int, list[int]] = {}
        for dimension in moved:
            step, blocks = interiors[dimension] + 1, layout.count(dimension)
            block = layout.local_shape(out)[dimension]
            window = windows(0, dimension, blocks)
            spread = (window.width - 1) * step + 1
            offsets[dimension] = [
                step - 1 - (lows[dimension] + start * step - index * block)
                for index, start in enumerate(first_elements(dimension, blocks))
            ]
            low[dimension], high[dimension] = step - 1, block - spread
        shape = list(layout.local_shape(out))
        for dimension in moved:
            shape[dimension] += interiors[dimension]
        attributes: dict[str, AttributeValue] = {
            "edge_padding_low": tuple(low),
            "edge_padding_high": tuple(high),
            "interior_padding": tuple(inner),
        }
        value = lowering.clone(op, [local, fill], [layout], attributes, [op.result.tensor.with_shape(tuple(shape))])[0]
        for dimension, places in offsets.items():
            if interiors[dimension]:
                axes = layout.dimensions[dimension]
                start = emitter.per_device_constant(win.by_device(lowering.mesh, axes, places))
                value = emitter.dynamic_slice(value, dimension, start, layout.local_shape(out)[dimension])
        return value

    _exchange(lowering, op, windows, local_form, fill)


@lowers("stablehlo.concatenate")
def concatenate(lowering: Lowering, op: Op) -> None:
    """Lower a concatenation; along a sharded dimension each process takes its part from the inputs or their sources."""
    joined = op["dimension"]
    rule = local_rule(op)
    target = lowering.target_sharding(op.result).without_partial()
    partial = _all_partial(lowering, op)
    if partial is not None:
        _concatenate_partial(lowering, op, rule, partial)
        return
    axes = target.dimensions[joined]
    plain = replace(
        rule, kinds=tuple(PASS if f != rule.results[0][joined][0] else "replicate" for f in range(len(rule.kinds)))
    )
    assignment = lowering.choose(op, plain)
    if not axes:
        emit_plain(lowering, op, plain, assignment)
        return
    spent = lowering.assignment_cost(op, plain, assignment)
    sources = _sources(lowering, op, target, axes)
    if sum(source.price() for source in sources) >= spent:
        emit_plain(lowering, op, plain, assignment)
        return
    emitter = lowering.emitter
    value: Value | None = None
    for source in sources:
        part = source.take()
        if value is None:
            value = part
        else:
            value = emitter.select(win.covered(emitter, part, joined, axes, source.window), part, value)
    assert value is not None
    lowering.set(op.result, value, target)


def _all_partial(lowering: Lowering, op: Op) -> tuple[Axes, str] | None:
    """Return the axes and the reduction if every input is partial over the same axes and has no other user."""
    layouts = [lowering.layouts_of(value) for value in op.operands]
    first = layouts[0][0]
    same = all(
        len(layouts_of_value) == 1 and layouts_of_value[0].partial == first.partial for layouts_of_value in layouts
    )
    if first.partial and same and all(lowering.uses.get(value, 0) == 1 for value in op.operands):
        return first.partial, first.reduction
    return None


def _concatenate_partial(lowering: Lowering, op: Op, rule: Rule, partial: tuple[Axes, str]) -> None:
    axes, reduction = partial
    assignment: Assignment = ((),) * len(rule.sizes)
    layout = replace(sharding_of(lowering.mesh, rule.results[0], assignment), partial=axes, reduction=reduction)
    operands = [lowering.get(value, layout) for value in op.operands]
    lowering.set(op.result, lowering.clone(op, operands, [layout])[0], layout)


def _sources(lowering: Lowering, op: Op, target: Sharding, axes: Axes) -> list[_Source]:
    """Return the sources of a concatenation along a sharded dimension, merging slices of the same value."""
    joined = op["dimension"]
    blocks = lowering.mesh.count(axes)
    block = -(-op.result.tensor.static_shape[joined] // blocks)
    runs: dict[Value, list[list[Run]]] = {}
    offset = 0
    for value in op.operands:
        extent = value.tensor.static_shape[joined]
        source, begin = _origin(value, joined)
        for index, mine in enumerate(runs.setdefault(source, [[] for _ in range(blocks)])):
            low, high = max(offset, index * block), min(offset + extent, (index + 1) * block)
            if high > low:
                mine.append((low - index * block, begin + low - offset, high - low))
        offset += extent
    return [
        _Source(
            lowering,
            source,
            joined,
            target,
            HaloWindow(source.tensor.static_shape[joined], blocks, block, tuple(map(tuple, runs_of_source))),
        )
        for source, runs_of_source in runs.items()
    ]


class _Source:
    """A value from which a concatenation takes elements: from its blocks, or replicated if that is cheaper."""

    def __init__(self, lowering: Lowering, source: Value, dimension: int, target: Sharding, window: HaloWindow) -> None:
        self.lowering, self.source, self.dimension, self.window = lowering, source, dimension, window
        self.layout = Sharding(lowering.mesh, target.dimensions)
        self.whole = self.layout.with_dimension(dimension, ())
        row = win.row_bytes(source, self.layout, dimension)
        self.by_window = lowering.price(source, self.layout) + win.price(window, row)
        self.by_whole = lowering.price(source, self.whole)

    def price(self) -> float:
        """Return the cost, in bytes sent."""
        return min(self.by_window, self.by_whole)

    def take(self) -> Value:
        """Return this process's window of the value."""
        lowering, axes = self.lowering, self.layout.dimensions[self.dimension]
        if self.by_whole <= self.by_window:
            whole = lowering.get(self.source, self.whole)
            return win.own(lowering.emitter, whole, self.dimension, axes, self.window)
        local = lowering.get(self.source, self.layout)
        return win.halo_exchange(lowering.emitter, local, self.dimension, axes, self.window)


def _origin(value: Value, dimension: int) -> tuple[Value, int]:
    """Return the value that `value` is a slice of along `dimension` only, and the start index."""
    op = value.defining_op
    if op is None or op.name != "stablehlo.slice":
        return value, 0
    source = op.operands[0]
    for other, size in enumerate(source.tensor.static_shape):
        whole = (op["start_indices"][other], op["limit_indices"][other]) == (0, size)
        if op["strides"][other] != 1 or (other != dimension and not whole):
            return value, 0
    return source, op["start_indices"][dimension]
