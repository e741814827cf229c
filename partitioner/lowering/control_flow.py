"""Lowers loops and branches."""

from __future__ import annotations

from dataclasses import replace

from partitioner.lowering.core import Lowering, lowers
from partitioner.mesh import Axes
from partitioner.sharding import Sharding
from spmd.dialects.make import make_op
from spmd.ir import Block, Op, Region, Value
from spmd.types import ElementType, TensorType


@lowers("stablehlo.while")
def while_(lowering: Lowering, op: Op) -> None:
    """Lower a loop; its state has one layout in all iterations, and the predicate is replicated."""
    location = lowering.emitter.location
    layouts = _accumulating_layouts(lowering, op, [_layout(lowering, value) for value in op.results])
    operands = [_get(lowering, value, layout) for value, layout in zip(op.operands, layouts, strict=True)]
    if lowering.on_trial:
        # Only the layouts of the results are needed.
        lowering.set_all(op.results, operands, layouts)
        return
    condition, body = (region.block for region in op.regions)
    regions = []
    for block, block_layouts in ((condition, [None] * 0), (body, layouts)):
        local_block = lowering.block(block, layouts, is_loop=True)
        returned = block.terminator.operands
        if block is condition:
            results = [lowering.replicated(value) for value in returned]
        else:
            results = [_get(lowering, value, layout) for value, layout in zip(returned, block_layouts, strict=True)]
        _end(local_block, results, block)
        lowering.leave()
        regions.append(Region([local_block]))
    lowering.emitter.location = location
    types = [value.type for value in operands]
    clone = lowering.emitter.op(op.name, operands, types, dict(op.attributes), regions)
    lowering.set_all(op.results, clone.results, layouts)


def _accumulating_layouts(lowering: Lowering, op: Op, layouts: list[Sharding | None]) -> list[Sharding | None]:
    """Return the layouts of loop state, where accumulated partial sums stay partial, to be reduced after the loop.

    Such an entry must only be accumulated: state + term, for a partial term of the same sharding.
    """
    shardings = list(layouts)
    for index, axes in _partial_sums(lowering, op, layouts).items():
        target = layouts[index]
        assert target is not None
        shardings[index] = replace(target, partial=axes)
    return shardings


def _partial_sums(lowering: Lowering, op: Op, layouts: list[Sharding | None]) -> dict[int, Axes]:
    """Return the sub-axes over which entries of loop state may stay partial sums.

    The layout of the term is found by lowering the body once per loop and discarding the ops; inner loops are skipped.
    """
    known = lowering.partial_sums.get(op)
    if known is not None:
        return known
    terms = {index: term for index in range(len(op.results)) if (term := _added(lowering, op, index)) is not None}
    partial: dict[int, Axes] = {}
    if terms:
        notes, outer = len(lowering.notes), lowering.on_trial
        lowering.on_trial = True
        lowering.block(op.regions[1].block, layouts, is_loop=True)
        for index, term in terms.items():
            current, target = lowering.current_sharding(term), layouts[index]
            is_sum = bool(current.partial) and current.reduction == "stablehlo.add"
            if is_sum and target is not None and not target.partial and current.dimensions == target.dimensions:
                partial[index] = current.partial
        lowering.leave()
        lowering.on_trial = outer
        del lowering.notes[notes:]
    lowering.partial_sums[op] = partial
    return partial


def _added(lowering: Lowering, op: Op, index: int) -> Value | None:
    """Return the term that a loop's body adds to state entry `index`, if that is the entry's only use; else None."""
    condition, body = (region.block for region in op.regions)
    state, returned = body.arguments[index], body.terminator.operands[index]
    add = returned.defining_op
    if add is None or add.name != "stablehlo.add" or state not in add.operands or add not in body.ops:
        return None
    others = [value for value in add.operands if value is not state]
    element = state.tensor.element_type
    once = all(lowering.uses.get(value, 0) == 1 for value in (state, returned, *others))
    unused = lowering.uses.get(condition.arguments[index], 0) == 0
    is_number = isinstance(element, ElementType) and not element.is_boolean
    return others[0] if len(others) == 1 and once and unused and is_number else None


@lowers("stablehlo.case", "stablehlo.if")
def branches(lowering: Lowering, op: Op) -> None:
    """Lower branches; the index is replicated, so that all processes take the same branch and collectives match."""
    layouts = [_layout(lowering, value) for value in op.results]
    chosen = lowering.replicated(op.operands[0])
    location = lowering.emitter.location
    regions = []
    for region in op.regions:
        local_block = lowering.block(region.block, [], is_loop=False)
        returned = region.block.terminator.operands
        results = [_get(lowering, value, layout) for value, layout in zip(returned, layouts, strict=True)]
        _end(local_block, results, region.block)
        lowering.leave()
        regions.append(Region([local_block]))
    lowering.emitter.location = location
    types = [
        value.type if layout is None else layout.local_type(value.tensor)
        for value, layout in zip(op.results, layouts, strict=True)
    ]
    clone = lowering.emitter.op(op.name, [chosen], types, dict(op.attributes), regions)
    lowering.set_all(op.results, clone.results, layouts)


def _layout(lowering: Lowering, value: Value) -> Sharding | None:
    """Return the layout of the result of control flow, unreduced if the program says so."""
    if not isinstance(value.type, TensorType):
        return None
    return lowering.with_declared_partial(value, lowering.target_sharding(value))


def _get(lowering: Lowering, value: Value, layout: Sharding | None) -> Value:
    return lowering.replicated(value) if layout is None else lowering.get(value, layout)


def _end(block: Block, results: list[Value], source: Block) -> None:
    name = source.terminator.name
    block.ops.append(make_op(name, results, location=source.terminator.location))


@lowers("stablehlo.optimization_barrier")
def optimization_barrier(lowering: Lowering, op: Op) -> None:
    """Lower a barrier; each value has its target layout, or an available one that is cheaper."""
    layouts: list[Sharding | None] = []
    for value, result in zip(op.operands, op.results, strict=True):
        layout = _layout(lowering, result)
        if layout is not None and not layout.partial:
            options = [layout, *(current.without_partial() for current in lowering.layouts_of(value))]
            layout = min(options, key=lambda option: lowering.price(value, option))
        layouts.append(layout)
    operands = [_get(lowering, value, layout) for value, layout in zip(op.operands, layouts, strict=True)]
    lowering.set_all(op.results, lowering.clone(op, operands, layouts), layouts)
