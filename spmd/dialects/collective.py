"""Ops in which processes of a group take part together. Source: StableHLO specification, "Collective ops"."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, region, result
from spmd.dialects.structs import ChannelHandle, ReplicaGroupMeshAxes
from spmd.types import UI32

_REPLICA_GROUPS = attribute("replica_groups", kinds.either(kinds.I64_DENSE, kinds.struct(ReplicaGroupMeshAxes)))
_CHANNEL = attribute("channel_handle", kinds.struct(ChannelHandle), optional=True)
_GLOBAL_IDS = attribute("use_global_device_ids", kinds.UNIT_FLAG, default=False)
_DYNAMIC_ROOT = attribute("has_dynamic_root", kinds.UNIT_FLAG, default=False)

REPLICA_ID = define(
    "stablehlo.replica_id",
    results=[result("result", kinds.tensor_of_types(UI32))],
    assembly="attr-dict `:` type(results)",
    traits=["pure"],
)

PARTITION_ID = define(
    "stablehlo.partition_id",
    results=[result("result", kinds.tensor_of_types(UI32))],
    assembly="attr-dict `:` type(results)",
    traits=["pure"],
)

ALL_GATHER = define(
    "stablehlo.all_gather",
    operands=[operand("operands", variadic=True)],
    attributes=[attribute("all_gather_dim", kinds.I64), _REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS],
    results=[result("results", variadic=True)],
)

ALL_REDUCE = define(
    "stablehlo.all_reduce",
    operands=[operand("operands", variadic=True)],
    attributes=[_REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS],
    results=[result("results", variadic=True)],
    regions=[region("computation")],
)

ALL_TO_ALL = define(
    "stablehlo.all_to_all",
    operands=[operand("operands", variadic=True)],
    attributes=[
        attribute("split_dimension", kinds.I64),
        attribute("concat_dimension", kinds.I64),
        attribute("split_count", kinds.I64),
        _REPLICA_GROUPS,
        _CHANNEL,
    ],
    results=[result("results", variadic=True)],
)

REDUCE_SCATTER = define(
    "stablehlo.reduce_scatter",
    operands=[operand("operand")],
    attributes=[attribute("scatter_dimension", kinds.I64), _REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS],
    results=[result("result")],
    regions=[region("computation")],
)

COLLECTIVE_BROADCAST = define(
    "stablehlo.collective_broadcast",
    operands=[operand("operands", variadic=True)],
    attributes=[_REPLICA_GROUPS, _CHANNEL, _DYNAMIC_ROOT],
    results=[result("results", variadic=True)],
)

COLLECTIVE_REDUCE = define(
    "stablehlo.collective_reduce",
    operands=[operand("operands", variadic=True)],
    attributes=[_REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS, _DYNAMIC_ROOT],
    results=[result("results", variadic=True)],
    regions=[region("computation")],
)

COLLECTIVE_PERMUTE = define(
    "stablehlo.collective_permute",
    operands=[operand("operand")],
    attributes=[attribute("source_target_pairs", kinds.I64_DENSE), _CHANNEL],
    results=[result("result")],
)

CROSS_REPLICA_SUM = define(
    "stablehlo.cross-replica-sum",
    operands=[operand("operand")],
    attributes=[attribute("replica_groups", kinds.I64_DENSE)],
    results=[result("result")],
    traits=["same_type"],
)

ASYNC_START = define(
    "stablehlo.async_start",
    operands=[operand("operands", variadic=True)],
    results=[result("result", kinds.FUTURE)],
    regions=[region("body")],
    traits=["isolated"],
)

ASYNC_DONE = define(
    "stablehlo.async_done",
    operands=[operand("operand", kinds.FUTURE)],
    results=[result("results", variadic=True)],
)
