"""Resharding between layouts that may be partial: blocks and copies become partial values.

Source: Shardy's dialect documentation, ShardedToUnreducedOp and ReplicatedToUnreducedOp.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.emit import Emitter
from partitioner.lowering.sums import additive_identity
from partitioner.mesh import Axes
from partitioner.reshard import cost, nests, reshard
from partitioner.sharding import Sharding
from spmd.ir import Value
from spmd.types import TensorType

_ADD = "stablehlo.add"


def same_layout(layout: Sharding, other: Sharding) -> bool:
    """Return whether two layouts are the same; the reduction matters only if they are partial."""
    if layout.dimensions != other.dimensions or layout.partial != other.partial:
        return False
    return not layout.partial or layout.reduction == other.reduction


def layout_cost(type: TensorType, source: Sharding, target: Sharding) -> float:
    """Return the bytes that a process sends to reshard a value of `type`; either layout may be partial."""
    kept, blocks, whole = _steps(type, source, target)
    return cost(type, source, kept) + cost(type, kept, blocks) + cost(type, whole, target)


def to_layout(emitter: Emitter, local: Value, type: TensorType, source: Sharding, target: Sharding) -> Value:
    """Return the block `local` of layout `source` in layout `target`, either of which may be partial.

    A block becomes a partial value by padding with the identity. Of copies, the first process keeps its value and the
    others get the identity; for a maximum or minimum, copies are partial values already.
    """
    kept, blocks, whole = _steps(type, source, target)
    local = reshard(emitter, local, type, source, kept)
    local = reshard(emitter, local, type, kept, blocks)
    for dimension, (outer, inner) in enumerate(zip(whole.dimensions, blocks.dimensions, strict=True)):
        if len(outer) < len(inner):
            size = whole.local_shape(type.static_shape)[dimension]
            local = _placed(emitter, local, size, blocks, dimension, inner[len(outer) :])
    copies = tuple(axis for axis in whole.partial if axis not in blocks.used)
    if copies and whole.reduction == _ADD:
        first = emitter.broadcast(emitter.is_first(copies), local.tensor.shape)
        local = emitter.select(first, local, _nothing(emitter, local.tensor))
    return reshard(emitter, local, type, whole, target)


def _steps(type: TensorType, source: Sharding, target: Sharding) -> tuple[Sharding, Sharding, Sharding]:
    """Return the intermediate layouts: after reduction, with blocks that become partial values, and after that."""
    if target.partial and target.reduction != source.reduction:
        source = source.without_partial()
    kept = source
    extra = set(target.partial) - set(source.partial)
    blocks, whole = kept, kept
    for dimension, axes in enumerate(kept.dimensions):
        outer = tuple(axis for axis in axes if axis not in extra)
        whole = whole.with_dimension(dimension, outer)
        size, mesh = type.static_shape[dimension], kept.mesh
        fits = axes[: len(outer)] == outer and nests(size, mesh.count(outer), mesh.count(axes))
        if target.reduction != _ADD or not fits:
            blocks = blocks.with_dimension(dimension, outer)
    if extra:
        whole = replace(whole, partial=tuple(sorted({*whole.partial, *extra})), reduction=target.reduction)
    return kept, blocks, whole


def _nothing(emitter: Emitter, type: TensorType) -> Value:
    nothing = additive_identity(type)
    return emitter.splat(0 if nothing is None else nothing, type)


def _placed(emitter: Emitter, local: Value, size: int, blocks: Sharding, dimension: int, axes: Axes) -> Value:
    """Return the blocks along `axes`, of total `size` along `dimension`, with the identity for those of others."""
    shape = list(local.tensor.static_shape)
    extent = shape[dimension]
    shape[dimension] = extent * blocks.mesh.count(axes)
    surrounding = _nothing(emitter, local.tensor.with_shape(tuple(shape)))
    start = emitter.per_device_constant(blocks.mesh.block_index(axes) * extent)
    return emitter.slice(emitter.dynamic_update(surrounding, local, dimension, start), dimension, 0, size)
