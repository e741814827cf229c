"""Lowers sort and top_k: other dimensions are sharded instead of the sorted one; top_k exchanges candidates only."""

from __future__ import annotations

from partitioner.lowering.by_rule import by_rule
from partitioner.lowering.core import Lowering, lowers
from partitioner.mesh import Axes
from spmd.ir import Op, Value
from spmd.types import ElementType


@lowers("chlo.top_k")
def top_k(lowering: Lowering, op: Op) -> None:
    """Lower top_k: each process finds the largest of its block, and all of them the largest of these.

    Ties go to the lower index, as in the global op, since blocks are gathered in order.
    """
    value = op.operands[0]
    layout = lowering.current_sharding(value)
    last = value.tensor.rank - 1
    size, taken = value.tensor.static_shape[last], op.results[0].tensor.static_shape[last]
    axes: Axes = layout.dimensions[last] if not layout.partial else ()
    blocks = lowering.mesh.count(axes)
    element = value.tensor.element_type
    if not axes or taken * blocks >= size or size % blocks or not isinstance(element, ElementType):
        by_rule(lowering, op)
        return
    block = size // blocks
    local = lowering.get(value, layout)
    emitter = lowering.emitter
    values, places = _local_top_k(lowering, op, local, min(taken, block))
    offset = emitter.per_device_constant(lowering.mesh.block_index(axes) * block)
    places = emitter.binary("add", places, emitter.broadcast(offset, places.tensor.shape))
    candidates = emitter.all_gather(values, last, axes)
    origins = emitter.all_gather(places, last, axes)
    best, picked = _local_top_k(lowering, op, candidates, taken)
    result = layout.with_dimension(last, ())
    lowering.set(op.results[0], best, result)
    lowering.set(op.results[1], _pick(lowering, origins, picked, last), result)


def _local_top_k(lowering: Lowering, op: Op, local: Value, taken: int) -> tuple[Value, Value]:
    shape = (*local.tensor.static_shape[:-1], taken)
    types = [local.tensor.with_shape(shape), op.results[1].tensor.with_shape(shape)]
    local_results = lowering.clone(op, [local], [None, None], {"k": taken}, types)
    return local_results[0], local_results[1]


def _pick(lowering: Lowering, origins: Value, picked: Value, last: int) -> Value:
    """Return origins[..., picked], by comparing indices, since there are few."""
    emitter = lowering.emitter
    shape = (*picked.tensor.static_shape, origins.tensor.static_shape[last])
    kept = tuple(range(last + 1))
    wide = origins.tensor.with_shape(shape)
    outer = emitter.one("broadcast_in_dim", [origins], wide, broadcast_dimensions=(*kept[:-1], last + 1))
    inner = emitter.one("broadcast_in_dim", [picked], picked.tensor.with_shape(shape), broadcast_dimensions=kept)
    place = emitter.convert(emitter.iota(shape, last + 1), inner.tensor)
    chosen = emitter.select(emitter.compare(place, inner, "EQ"), outer, emitter.splat(0, wide))
    return emitter.reduce("stablehlo.add", chosen, emitter.splat(0, wide.with_shape(())), (last + 1,))
