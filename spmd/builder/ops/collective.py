"""Collective operations.

Source: XlaBuilder operation semantics, "AllGather", "AllReduce", "AllToAll", "CollectivePermute", "CrossReplicaSum",
"ReduceScatter", "ReplicaId".

`replica_groups` is a sequence of ReplicaGroup or of id sequences; if empty, all replicas are one group. The order of
ids in a group is the order of its blocks. Collectives with equal `channel_id` communicate across modules and
partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.shapes import scale_shape, split_shape
from spmd import types as t
from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.checks import Groups
from spmd.builder.computation import XlaComputation, region_of
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation
from spmd.builder.options import ChannelHandle
from spmd.builder.shape import Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp
from spmd.dialects import structs
from spmd.ir import AttributeValue, Value

Channel = int | ChannelHandle | None


def _common(
    replica_groups: Groups, channel_id: Channel, use_global_device_ids: bool = False
) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"replica_groups": checks.groups(replica_groups), **channel(channel_id)}
    if use_global_device_ids:
        if not attributes.get("channel_handle"):
            raise ArgumentError("use_global_device_ids", "must have a channel_id")
        if not attributes["replica_groups"].size:
            raise ArgumentError("replica_groups", "must be given with use_global_device_ids")
        attributes["use_global_device_ids"] = True
    return attributes


def channel(channel_id: Channel) -> dict[str, AttributeValue]:
    """Return the attribute of a channel, if one is given."""
    if channel_id is None:
        return {}
    handle = (
        channel_id
        if isinstance(channel_id, ChannelHandle)
        else ChannelHandle(checks.integer(channel_id, "channel_id", 1))
    )
    return {"channel_handle": structs.ChannelHandleAttr(int(handle.handle), int(handle.type))}


def _sized(attributes: dict[str, AttributeValue], count: object, argument: str, *, joined: bool = False) -> int:
    """Return the number of shards, which must be the size of every given group.

    If groups of replicas are `joined` over all partitions, whose number the builder does not know, it must be a
    multiple of that size.
    """
    shards = checks.integer(count, argument, 1)
    groups = attributes["replica_groups"]
    if groups.size:
        sizes = [int((row >= 0).sum()) for row in groups]
        if len(set(sizes)) > 1 or not sizes[0] or (shards % sizes[0] if joined else shards != sizes[0]):
            what = "a multiple of the size" if joined else "the size"
            raise ArgumentError(argument, f"must be {what} of every replica group, {sizes}, got {shards}")
    return shards


def _is_joined(attributes: dict[str, AttributeValue]) -> bool:
    """Return whether the groups of an all_gather or reduce_scatter are cross-replica-and-partition ones."""
    handle: structs.ChannelHandleAttr | None = attributes.get("channel_handle")
    return handle is not None and handle.handle > 0 and not attributes.get("use_global_device_ids", False)


@operation
def AllReduce(
    builder: XlaBuilder,
    operand: XlaOp,
    computation: XlaComputation,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Return the operands of a replica group reduced by `computation`, on every replica. Source:
    "AllReduce".

    `operand` is an array, or a tuple of arrays, each reduced separately; the result has its shape.
    """
    value = builder.value(operand, "operand")
    leaves = builder.unpack(value)
    if not leaves:
        raise ArgumentError("operand", "must be an array or a tuple of at least one array")
    arrays = [checks.array(builder, XlaOp(builder, leaf), "operand") for leaf in leaves]
    for leaf in arrays:
        used = checks.reducer(builder, computation, "computation", [leaf])
    attributes = _common(replica_groups, channel_id, use_global_device_ids)
    region = region_of(used, [t.TensorType((), arrays[0].tensor.element_type)] * 2)
    types = [leaf.type for leaf in arrays]
    return builder.pack(value.type, builder.emit("stablehlo.all_reduce", arrays, attributes, types, [region]))


@operation
def CrossReplicaSum(builder: XlaBuilder, operand: XlaOp, replica_groups: Groups = ()) -> XlaOp:
    """Return AllReduce with addition. Source: "CrossReplicaSum"."""
    leaves = builder.unpack(builder.value(operand, "operand"))
    if not leaves:
        raise ArgumentError("operand", "must be an array or a tuple of at least one array")
    scalar = Shape.of(leaves[0].tensor.with_shape(()))
    inner = XlaBuilder("sum")
    left, right = (OPERATIONS["Parameter"](inner, number, scalar, f"p{number}") for number in range(2))
    OPERATIONS["Add"](left, right)
    return OPERATIONS["AllReduce"](builder, operand, inner.Build(), replica_groups)


@operation
def AllGather(
    builder: XlaBuilder,
    operand: XlaOp,
    all_gather_dim: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Return the operands of a replica group concatenated along `all_gather_dim`. Source: "AllGather".

    `shard_count` is the number of concatenated blocks.
    """
    value = checks.array(builder, operand, "operand")
    number = checks.dimension(all_gather_dim, value.tensor.rank, "all_gather_dim")
    attributes = {"all_gather_dim": number, **_common(replica_groups, channel_id, use_global_device_ids)}
    shards = _sized(attributes, shard_count, "shard_count", joined=_is_joined(attributes))
    kind = value.tensor.with_shape(scale_shape(value.tensor.static_shape, number, shards))
    return builder.emit_one("stablehlo.all_gather", [value], attributes, kind)


@operation
def AllToAll(
    builder: XlaBuilder,
    operand: XlaOp,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
) -> XlaOp:
    """Return `operand` split along `split_dimension`, block i sent to replica i, received blocks concatenated.

    `split_count`, the group size, must divide the size of `split_dimension`. Source: "AllToAll".
    """
    value = checks.array(builder, operand, "operand")
    split = checks.dimension(split_dimension, value.tensor.rank, "split_dimension")
    concat = checks.dimension(concat_dimension, value.tensor.rank, "concat_dimension")
    attributes = _common(replica_groups, channel_id)
    count = _sized(attributes, split_count, "split_count")
    if value.tensor.static_shape[split] % count:
        size = value.tensor.static_shape[split]
        raise ArgumentError("split_count", f"must divide the size {size} of dimension {split}, got {count}")
    if not attributes["replica_groups"].size:  # all replicas, of which there are split_count
        attributes["replica_groups"] = np.arange(count, dtype=np.int64).reshape(1, count)
    attributes |= {"split_dimension": split, "concat_dimension": concat, "split_count": count}
    return builder.emit_one("stablehlo.all_to_all", [value], attributes)


@operation
def ReduceScatter(
    builder: XlaBuilder,
    operand: XlaOp,
    computation: XlaComputation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Return block i of the AllReduce, cut in `shard_count` along `scatter_dimension`, on replica i of a group.

    `operand` is an array, or a tuple of arrays, each scattered separately. Source: "ReduceScatter".
    """
    value = builder.value(operand, "operand")
    leaves = builder.unpack(value)
    if not leaves:
        raise ArgumentError("operand", "must be an array or a tuple of at least one array")
    attributes = _common(replica_groups, channel_id, use_global_device_ids)
    shards = _sized(attributes, shard_count, "shard_count", joined=_is_joined(attributes))
    results: list[Value] = []
    for leaf in leaves:
        part = checks.array(builder, XlaOp(builder, leaf), "operand")
        number = checks.dimension(scatter_dimension, part.tensor.rank, "scatter_dimension")
        if part.tensor.static_shape[number] % shards:
            size = part.tensor.static_shape[number]
            raise ArgumentError("shard_count", f"must divide the size {size} of dimension {number}, got {shards}")
        used = checks.reducer(builder, computation, "computation", [part])
        region = region_of(used, [t.TensorType((), part.tensor.element_type)] * 2)
        kind = part.tensor.with_shape(split_shape(part.tensor.static_shape, number, shards))
        scatter_attributes = {"scatter_dimension": number, **attributes}
        results += builder.emit("stablehlo.reduce_scatter", [part], scatter_attributes, [kind], [region])
    return builder.collate(results) if not isinstance(value.type, t.TupleType) else builder.tuple(results)


@operation
def CollectivePermute(
    builder: XlaBuilder, operand: XlaOp, source_target_pairs: Sequence[tuple[int, int]], channel_id: Channel = None
) -> XlaOp:
    """Return `operand` sent from each source to its target; zeros on replicas that are no target.

    Sources must be distinct, and so must targets. Source: "CollectivePermute".
    """
    value = checks.array(builder, operand, "operand")
    pairs = [checks.integers(pair, "source_target_pairs", 2, 0) for pair in source_target_pairs]
    for end, ids in zip(("source", "target"), zip(*pairs, strict=True), strict=False):
        if len(set(ids)) != len(ids):
            raise ArgumentError("source_target_pairs", f"each {end} replica id must be in one pair, got {pairs}")
    table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    attributes = {"source_target_pairs": table, **channel(channel_id)}
    return builder.emit_one("stablehlo.collective_permute", [value], attributes)


@operation
def CollectiveBroadcast(
    builder: XlaBuilder, operand: XlaOp, replica_groups: Groups, channel_id: Channel = None
) -> XlaOp:
    """Return the operand of each group's first replica on the whole group; zeros on replicas in no group."""
    value = checks.array(builder, operand, "operand")
    attributes = _common(replica_groups, channel_id)
    return builder.emit_one("stablehlo.collective_broadcast", [value], attributes)


@operation
def ReplicaId(builder: XlaBuilder) -> XlaOp:
    """Return the id of this replica, a U32 scalar in [0, number of replicas). Source: "ReplicaId"."""
    return builder.emit_one("stablehlo.replica_id", [])


@operation
def PartitionId(builder: XlaBuilder) -> XlaOp:
    """Return the id of this partition, a U32 scalar in [0, number of partitions). Source: "ReplicaId"."""
    return builder.emit_one("stablehlo.partition_id", [])
