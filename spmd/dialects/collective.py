"""Collective ops of process groups. Source: StableHLO specification, "Collective ops"."""

from __future__ import annotations

import numpy as np

from spmd.dialects import checks, kinds, type_sets
from spmd.dialects.core import Trait, attribute, define, operand, region, result
from spmd.dialects.process_groups import (
    CHANNEL,
    DYNAMIC_ROOT,
    GLOBAL_IDS,
    REPLICA_GROUPS,
    accumulated_operands,
    check_channel,
    check_computation,
    check_groups,
    check_pairs,
    check_root,
    data_operands,
    refuse_channel_id,
)
from spmd.dialects.result_types import keeps_type
from spmd.dialects.shapes import bounds_of, tensor
from spmd.dialects.structs import ChannelHandleAttr
from spmd.ir import Op
from spmd.types import UI32, TensorType, Type

for _name in ("replica_id", "partition_id"):
    define(
        f"stablehlo.{_name}",
        results=[result("result", type_sets.tensor_of_types(UI32))],
        assembly="attr-dict `:` type(results)",
        traits=[Trait.PURE],
    ).infer(lambda op: [TensorType((), UI32)])

ALL_GATHER = define(
    "stablehlo.all_gather",
    operands=[operand("operands", variadic=True)],
    attributes=[attribute("all_gather_dim", kinds.I64), REPLICA_GROUPS, CHANNEL, GLOBAL_IDS],
    results=[result("results", variadic=True)],
    traits=[Trait.COLLECTIVE],
)

check_groups(ALL_GATHER, "C2", "C4")
check_channel(ALL_GATHER, "C5", advisory=True)


@ALL_GATHER.constraint("C1", "0 <= all_gather_dim < rank(operands...)")
def _(op: Op) -> str | None:
    for type in checks.tensors(op.operands):
        fault = checks.in_range([op["all_gather_dim"]], type.rank)
        if fault is not None:
            return fault
    return None


@ALL_GATHER.constraint(
    "C6", "type(results...) = type(operands...) but for a multiple along all_gather_dim", on_results=True
)
def _(op: Op) -> str | None:
    if len(op.operands) != len(op.results):
        return f"{len(op.operands)} operands and {len(op.results)} results"
    for result_type, operand_type in zip(checks.tensors(op.operands), checks.tensors(op.results), strict=True):
        fault = checks.equal_elements(result_type, operand_type) or _scaled(
            result_type, operand_type, op["all_gather_dim"]
        )
        if fault is not None:
            return fault
    return None


def _scaled(small: TensorType, large: TensorType, dimension: int) -> str | None:
    """Check that shapes are equal except for `dimension`, which is a multiple in `large`: the factor is the grid's."""
    sound = small.rank == large.rank and all(
        index == dimension or checks.compatible_dims(*sizes)
        for index, sizes in enumerate(zip(small.shape, large.shape, strict=True))
    )
    if sound:
        part, whole = small.shape[dimension], large.shape[dimension]
        sound = part is None or whole is None or (whole >= part and whole % part == 0 if part else whole == 0)
    return None if sound else f"{checks.listed(map(checks.shape_text, (small.shape, large.shape)))} along {dimension}"


ALL_REDUCE = define(
    "stablehlo.all_reduce",
    operands=[operand("operands", variadic=True)],
    attributes=[REPLICA_GROUPS, CHANNEL, GLOBAL_IDS],
    results=[result("results", variadic=True)],
    regions=[region("computation")],
    traits=[Trait.COLLECTIVE],
)

check_groups(ALL_REDUCE, "C1", "C3", padded=True)
check_channel(ALL_REDUCE, "C4")
check_computation(ALL_REDUCE, "C5")
ALL_REDUCE.infers("C6, C7", "results have the shapes of operands and the element type that computation gives")(
    accumulated_operands
)

ALL_TO_ALL = define(
    "stablehlo.all_to_all",
    operands=[operand("operands", variadic=True)],
    attributes=[
        attribute("split_dimension", kinds.I64),
        attribute("concat_dimension", kinds.I64),
        attribute("split_count", kinds.I64),
        REPLICA_GROUPS,
        CHANNEL,
    ],
    results=[result("results", variadic=True)],
    traits=[Trait.COLLECTIVE],
)

ALL_TO_ALL.constraint("C4", "0 < split_count")(lambda op: checks.at_least(op["split_count"], 1))
check_groups(ALL_TO_ALL, "C5", "C7")


@ALL_TO_ALL.constraint("C8", "dim(replica_groups, 1) = split_count")
def _(op: Op) -> str | None:
    groups = op["replica_groups"]
    if not isinstance(groups, np.ndarray):
        return None
    size = groups.shape[1] if groups.shape[0] else 0
    return checks.equal(size, op["split_count"])


for _label, _name in (("C1", "split_dimension"), ("C3", "concat_dimension")):

    def _inside(op: Op, name: str = _name) -> str | None:
        faults = [checks.in_range([op[name]], type.rank) for type in checks.tensors(op.operands)]
        return next(filter(None, faults), None)

    ALL_TO_ALL.constraint(_label, f"0 <= {_name} < rank(operands...)")(_inside)


@ALL_TO_ALL.constraint("C2", "dim(operands..., split_dimension) % split_count = 0")
def _(op: Op) -> str | None:
    sizes = [type.shape[op["split_dimension"]] for type in checks.tensors(op.operands)]
    sound = all(size is None or size % op["split_count"] == 0 for size in sizes)
    return None if sound else f"{checks.dims(sizes)} and {op['split_count']}"


@ALL_TO_ALL.constraint("C9", "as many results as operands, of the same element types", on_results=True)
def _(op: Op) -> str | None:
    if len(op.operands) != len(op.results):
        return f"{len(op.operands)} operands and {len(op.results)} results"
    faults = map(checks.equal_elements, op.operand_types, op.result_types)
    return next(filter(None, faults), None)


@ALL_TO_ALL.infers("C9", "split_dimension is divided by split_count and concat_dimension multiplied")
def _(op: Op) -> list[Type]:
    count, split, concat = op["split_count"], op["split_dimension"], op["concat_dimension"]
    types: list[Type] = []
    for type in checks.tensors(op.operands):
        shape, bounds = list(type.shape), list(bounds_of(type))
        for sizes in (shape, bounds):
            part, whole = sizes[split], sizes[concat]
            if split != concat:
                sizes[split] = None if part is None else part // count
                sizes[concat] = None if whole is None else whole * count
        types.append(tensor(shape, type.element_type, bounds))
    return types


REDUCE_SCATTER = define(
    "stablehlo.reduce_scatter",
    operands=[operand("operand")],
    attributes=[attribute("scatter_dimension", kinds.I64), REPLICA_GROUPS, CHANNEL, GLOBAL_IDS],
    results=[result("result")],
    regions=[region("computation")],
    traits=[Trait.COLLECTIVE],
)

check_groups(REDUCE_SCATTER, "C3", "C5")
check_computation(REDUCE_SCATTER, "C7")
check_channel(REDUCE_SCATTER, "C6")
REDUCE_SCATTER.constraint("C2", "0 <= scatter_dimension < rank(operand)")(
    lambda op: checks.in_range([op["scatter_dimension"]], op.operands[0].tensor.rank)
)


@REDUCE_SCATTER.constraint(
    "C8", "shape(result) = shape(operand) but for a divisor along scatter_dimension", on_results=True
)
def _(op: Op) -> str | None:
    operand, result = op.operands[0].tensor, op.result.tensor
    dimension = op["scatter_dimension"]
    empty = dimension < min(operand.rank, result.rank) and 0 in (operand.shape[dimension], result.shape[dimension])
    return _scaled(result, operand, dimension) or (f"{operand} and {result}" if empty else None)


@REDUCE_SCATTER.constraint("C1", "dim(operand, scatter_dimension) % dim(process_groups, 1) = 0", meaningless=True)
def _(op: Op) -> str | None:
    groups, size = op["replica_groups"], op.operands[0].tensor.shape[op["scatter_dimension"]]
    known = isinstance(groups, np.ndarray) and _is_whole_group(op) and groups.shape[1] > 0
    return f"{size} and {groups.shape[1]}" if known and size is not None and size % groups.shape[1] else None


def _is_whole_group(op: Op) -> bool:
    """Return whether process groups are the rows of replica_groups, rather than one per partition of each."""
    channel: ChannelHandleAttr | None = op["channel_handle"]
    return bool(op["use_global_device_ids"]) or channel is None or channel.handle <= 0


REDUCE_SCATTER.constraint("C9", "element_type(result) is what computation gives", on_results=True)(
    lambda op: checks.equal_elements(op.result.type, checks.returned(op.regions[0])[0])
)

COLLECTIVE_BROADCAST = define(
    "stablehlo.collective_broadcast",
    operands=[operand("operands", variadic=True)],
    attributes=[REPLICA_GROUPS, CHANNEL, DYNAMIC_ROOT],
    results=[result("results", variadic=True)],
    traits=[Trait.COLLECTIVE],
)

check_groups(COLLECTIVE_BROADCAST, "C1", "C2", partial=True)
check_root(COLLECTIVE_BROADCAST, "C3", "C4")


@COLLECTIVE_BROADCAST.constraint("C5", "size(results) = size(operands) - (has_dynamic_root ? 1 : 0)", on_results=True)
def _(op: Op) -> str | None:
    return checks.equal(len(op.results), len(data_operands(op)))


COLLECTIVE_BROADCAST.infers("C3, C4", "type(results[j]) = type(operands[j])")(
    lambda op: [value.type for value in data_operands(op)]
)

COLLECTIVE_REDUCE = define(
    "stablehlo.collective_reduce",
    operands=[operand("operands", variadic=True)],
    attributes=[REPLICA_GROUPS, CHANNEL, GLOBAL_IDS, DYNAMIC_ROOT],
    results=[result("results", variadic=True)],
    regions=[region("computation")],
    traits=[Trait.COLLECTIVE],
)

check_groups(COLLECTIVE_REDUCE, "C1", "C2", padded=True)
check_channel(COLLECTIVE_REDUCE, "")
check_root(COLLECTIVE_REDUCE, "", "C3")
check_computation(COLLECTIVE_REDUCE, "C4")
COLLECTIVE_REDUCE.infers("C3", "results have the shapes of operands and the element type that computation gives")(
    accumulated_operands
)

COLLECTIVE_PERMUTE = define(
    "stablehlo.collective_permute",
    operands=[operand("operand")],
    attributes=[attribute("source_target_pairs", kinds.I64_DENSE), CHANNEL],
    results=[result("result")],
    traits=[Trait.COLLECTIVE],
)

check_pairs(COLLECTIVE_PERMUTE, ("C1", "C2", "C3", "C4"))
keeps_type(COLLECTIVE_PERMUTE, "C5", "type(result) = type(operand)")

CROSS_REPLICA_SUM = define(
    "stablehlo.cross-replica-sum",
    operands=[operand("operand")],
    attributes=[attribute("replica_groups", kinds.I64_DENSE)],
    results=[result("result")],
    traits=[Trait.COLLECTIVE, Trait.SAME_TYPE],
)

CROSS_REPLICA_SUM.infers("", "type(result) = type(operand)")(lambda op: [op.operands[0].type])


for _declared in (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_REDUCE,
    COLLECTIVE_PERMUTE,
):
    refuse_channel_id(_declared)
