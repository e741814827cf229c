"""Local forms of loops and branches, and of GSPMD's way into and out of manual code."""

from __future__ import annotations

from partitioner.lowering.by_rule import by_rule
from partitioner.lowering.core import Lowering, lowers
from partitioner.reading import TO_FULL_CALL, TO_SHARD_CALL
from partitioner.sharding import Sharding
from spmd.dialects.core import OPS
from spmd.ir import Block, Op, Region, Value, new_op
from spmd.types import TensorType


@lowers("stablehlo.while")
def while_(lowering: Lowering, op: Op) -> None:
    """The state keeps one layout from turn to turn; the predicate is the same on every process."""
    layouts = [_layout(lowering, value) for value in op.results]
    operands = [_get(lowering, value, layout) for value, layout in zip(op.operands, layouts, strict=True)]
    location = lowering.emitter.location
    condition, body = (region.block for region in op.regions)
    regions = []
    for block, wanted in ((condition, [None] * 0), (body, layouts)):
        made = lowering.block(block, layouts, is_loop=True)
        returned = block.terminator.operands
        if block is condition:
            results = [lowering.whole(value) for value in returned]
        else:
            results = [_get(lowering, value, layout) for value, layout in zip(returned, wanted, strict=True)]
        _end(made, results, block)
        lowering.leave()
        regions.append(Region([made]))
    lowering.emitter.location = location
    types = [value.type for value in operands]
    made_op = lowering.emitter.op(op.name, operands, types, dict(op.attributes), regions)
    for value, local, layout in zip(op.results, made_op.results, layouts, strict=True):
        lowering.set(value, local, layout)


@lowers("stablehlo.case", "stablehlo.if")
def branches(lowering: Lowering, op: Op) -> None:
    """The index is the same on every process, so that all take the same branch and its collectives match."""
    layouts = [_layout(lowering, value) for value in op.results]
    chosen = lowering.whole(op.operands[0])
    location = lowering.emitter.location
    regions = []
    for region in op.regions:
        made = lowering.block(region.block, [], is_loop=False)
        returned = region.block.terminator.operands
        results = [_get(lowering, value, layout) for value, layout in zip(returned, layouts, strict=True)]
        _end(made, results, region.block)
        lowering.leave()
        regions.append(Region([made]))
    lowering.emitter.location = location
    types = [
        value.type if layout is None else layout.local_type(value.tensor)
        for value, layout in zip(op.results, layouts, strict=True)
    ]
    made_op = lowering.emitter.op(op.name, [chosen], types, dict(op.attributes), regions)
    for value, local, layout in zip(op.results, made_op.results, layouts, strict=True):
        lowering.set(value, local, layout)


def _layout(lowering: Lowering, value: Value) -> Sharding | None:
    return lowering.wanted(value).whole() if isinstance(value.type, TensorType) else None


def _get(lowering: Lowering, value: Value, layout: Sharding | None) -> Value:
    return lowering.whole(value) if layout is None else lowering.get(value, layout)


def _end(made: Block, results: list[Value], source: Block) -> None:
    name = source.terminator.name
    made.ops.append(new_op(name, results, definition=OPS[name], location=source.terminator.location))


@lowers("stablehlo.optimization_barrier")
def optimization_barrier(lowering: Lowering, op: Op) -> None:
    """Each value in the layout that it was given, or in the one it has where that costs less."""
    layouts: list[Sharding | None] = []
    for value, result in zip(op.operands, op.results, strict=True):
        layout = _layout(lowering, result)
        if layout is not None:
            options = [layout, *(have.whole() for have in lowering.layouts_of(value))]
            layout = min(options, key=lambda option: lowering.price(value, option))
        layouts.append(layout)
    operands = [_get(lowering, value, layout) for value, layout in zip(op.operands, layouts, strict=True)]
    for value, local, layout in zip(op.results, lowering.clone(op, operands, layouts), layouts, strict=True):
        lowering.set(value, local, layout)


@lowers("stablehlo.custom_call")
def custom_call(lowering: Lowering, op: Op) -> None:
    target = op["call_target_name"]
    if target not in (TO_SHARD_CALL, TO_FULL_CALL):
        by_rule(lowering, op)
        return
    manual = lowering.reader.manual_call(op)
    if target == TO_SHARD_CALL:
        free = lowering.wanted(op.result)
        layout = _with_manual(lowering.wanted(op.operands[0]), free, manual)
        lowering.set(op.result, lowering.get(op.operands[0], layout), free)
    else:
        free = lowering.wanted(op.operands[0]).whole()
        layout = _with_manual(lowering.wanted(op.result), free, manual)
        lowering.set(op.result, lowering.get(op.operands[0], free), layout)


def _with_manual(asked: Sharding, free: Sharding, manual: frozenset[int]) -> Sharding:
    """The layout of a whole value: its manual atoms lead each dimension, the free ones of its part follow."""
    pairs = zip(asked.dimensions, free.dimensions, strict=True)
    return Sharding(asked.mesh, tuple(tuple(a for a in axes if a in manual) + rest for axes, rest in pairs))
