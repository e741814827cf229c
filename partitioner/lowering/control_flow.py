"""Local forms of loops and branches, and of GSPMD's way into and out of manual code."""

from __future__ import annotations

from partitioner.lowering.core import Lowering, by_rule, lowers
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


@lowers("stablehlo.custom_call")
def custom_call(lowering: Lowering, op: Op) -> None:
    target = op["call_target_name"]
    if target == TO_SHARD_CALL:
        asked = lowering.program.asked.get(op.operands[0])
        layout = lowering.wanted(op.operands[0]) if asked is None else asked.sharding
        local = lowering.get(op.operands[0], layout)
        lowering.set(op.result, local, _free(lowering, layout, local, op.result))
    elif target == TO_FULL_CALL:
        (asked,) = lowering.reader.of_attributes(op.discardable, op.result_types, op)
        layout = lowering.wanted(op.result) if asked is None else asked.sharding
        free = _free(lowering, layout, None, op.operands[0], whole=op.result)
        lowering.set(op.result, lowering.get(op.operands[0], free), layout)
    else:
        by_rule(lowering, op)


def _free(lowering: Lowering, layout: Sharding, local: Value | None, part: Value, whole: Value | None = None) -> Sharding:
    """What of a layout is left for the part of a value inside manual code: the atoms that cut it there."""
    dimensions = []
    outer = whole.tensor.static_shape if whole is not None else None
    for index, axes in enumerate(layout.dimensions):
        inside = part.tensor.static_shape[index]
        total = outer[index] if outer is not None else local.tensor.static_shape[index] * lowering.mesh.count(axes)  # type: ignore[union-attr]
        manual = -(-total // inside)
        kept: tuple[int, ...] = axes
        while kept and lowering.mesh.count(axes) // lowering.mesh.count(kept) < manual:
            kept = kept[1:]
        dimensions.append(kept)
    return Sharding(lowering.mesh, tuple(dimensions))
