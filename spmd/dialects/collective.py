"""Ops in which processes of a group take part together. Source: StableHLO specification, "Collective ops"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from spmd.attributes import SymbolRefAttr
from spmd.dialects import kinds
from spmd.dialects.checks import (
    at_least,
    compatible_dims,
    dims,
    equal,
    equal_elements,
    in_range,
    listed,
    parameters,
    returned,
    shape_text,
    signature,
    tensors,
)
from spmd.dialects.core import Lookup, OpDef, attribute, define, operand, region, result
from spmd.dialects.reducers import region_fault
from spmd.dialects.shapes import bounds_of, tensor, with_element
from spmd.dialects.structs import ChannelHandle, ReplicaGroupMeshAxes
from spmd.ir import Op, Value
from spmd.types import I32, UI32, FutureType, TensorType, Type

_REPLICA_GROUPS = attribute("replica_groups", kinds.either(kinds.I64_DENSE, kinds.struct(ReplicaGroupMeshAxes)))
_CHANNEL = attribute("channel_handle", kinds.struct(ChannelHandle), optional=True)
_GLOBAL_IDS = attribute("use_global_device_ids", kinds.UNIT_FLAG, default=False)
_DYNAMIC_ROOT = attribute("has_dynamic_root", kinds.UNIT_FLAG, default=False)

def _check_groups(declared: OpDef, unique: str, in_group: str, *, padded: bool = False, partial: bool = False) -> None:
    """Constraints on replica_groups, labelled `unique` and `in_group`.

    `padded` groups may be filled up with -1; `partial` ones need not name every process.
    """

    def on_ids(label: str, text: str, check: Callable[[Op, np.ndarray[Any, Any]], str | None]) -> None:
        def checked(op: Op) -> str | None:
            groups = op["replica_groups"]
            return check(op, groups) if isinstance(groups, np.ndarray) else None

        declared.constraint(label, text)(checked)

    def ids(groups: np.ndarray[Any, Any]) -> list[int]:
        flat: list[int] = groups.ravel().tolist()
        return [process for process in flat if not (padded and process == -1)]

    on_ids("", "replica_groups is a 2-dimensional tensor", lambda op, g: None if g.ndim == 2 else shape_text(g.shape))
    on_ids(
        "",
        "replica_groups is not empty when use_global_device_ids is set",
        lambda op, g: shape_text(g.shape) if "use_global_device_ids" in op.attributes and not g.size else None,
    )
    on_ids(unique, "is_unique(replica_groups)", lambda op, g: _duplicate(ids(g)))
    if partial:
        on_ids(in_group, "0 <= replica_groups", lambda op, g: None if min(ids(g), default=0) >= 0 else dims(ids(g)))
    else:
        on_ids(
            in_group,
            "0 <= replica_groups < size(replica_groups)",
            lambda op, g: None if sorted(ids(g)) == list(range(len(ids(g)))) else str(g.tolist()),
        )

    @declared.symbol_constraint("", "the mesh of replica_groups is a symbol of the module")
    def _(op: Op, lookup: Lookup) -> str | None:
        groups = op["replica_groups"]
        mesh = groups.mesh if isinstance(groups, ReplicaGroupMeshAxes) else None
        return f"@{mesh.root}" if isinstance(mesh, SymbolRefAttr) and lookup(mesh.root) is None else None


def _duplicate(ids: list[int]) -> str | None:
    seen: set[int] = set()
    for process in ids:
        if process in seen:
            return f"{process} twice"
        seen.add(process)
    return None


def _check_channel(declared: OpDef, label: str) -> None:
    @declared.constraint(label, "channel_id > 0 when use_global_device_ids = true")
    def _(op: Op) -> str | None:
        channel: ChannelHandle | None = op["channel_handle"]
        handle = channel.handle if channel is not None else 0
        return str(handle) if op["use_global_device_ids"] and handle <= 0 else None


def _data(op: Op) -> list[Value]:
    """The operands but for the dynamic root."""
    rooted = op.definition is not None and "has_dynamic_root" in op.definition.attribute_table
    return op.operands[:-1] if rooted and op["has_dynamic_root"] else op.operands


def _check_computation(declared: OpDef, label: str) -> None:
    @declared.constraint(label, "computation has type (tensor<E>, tensor<E>) -> tensor<E> that operands widen to")
    def _(op: Op) -> str | None:
        faults = (region_fault(op.regions[0], [value.type]) for value in _data(op))
        return next((fault for fault in faults if fault is not None), None)


def _accumulated(op: Op) -> list[Type]:
    """The types of the operands with the element type that computation gives."""
    result = returned(op.regions[0])[0]
    assert isinstance(result, TensorType)
    return [with_element(value.type, result.element_type) for value in _data(op)]


REPLICA_ID = define(
    "stablehlo.replica_id",
    results=[result("result", kinds.tensor_of_types(UI32))],
    assembly="attr-dict `:` type(results)",
    traits=["pure"],
)

REPLICA_ID.infer(lambda op: [TensorType((), UI32)])

PARTITION_ID = define(
    "stablehlo.partition_id",
    results=[result("result", kinds.tensor_of_types(UI32))],
    assembly="attr-dict `:` type(results)",
    traits=["pure"],
)

PARTITION_ID.infer(lambda op: [TensorType((), UI32)])

ALL_GATHER = define(
    "stablehlo.all_gather",
    operands=[operand("operands", variadic=True)],
    attributes=[attribute("all_gather_dim", kinds.I64), _REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS],
    results=[result("results", variadic=True)],
)

_check_groups(ALL_GATHER, "C2", "C4")
_check_channel(ALL_GATHER, "C5")


@ALL_GATHER.constraint("C1", "0 <= all_gather_dim < rank(operands...)")
def _(op: Op) -> str | None:
    for type in tensors(op.operands):
        fault = in_range([op["all_gather_dim"]], type.rank)
        if fault is not None:
            return fault
    return None


@ALL_GATHER.constraint(
    "C6", "type(results...) = type(operands...) but for a multiple along all_gather_dim", on_results=True
)
def _(op: Op) -> str | None:
    if len(op.operands) != len(op.results):
        return f"{len(op.operands)} operands and {len(op.results)} results"
    for given, found in zip(tensors(op.operands), tensors(op.results), strict=True):
        fault = equal_elements(given, found) or _scaled(given, found, op["all_gather_dim"])
        if fault is not None:
            return fault
    return None


def _scaled(small: TensorType, large: TensorType, dimension: int) -> str | None:
    """Shapes that agree but for a dimension that is a multiple in `large`."""
    sound = small.rank == large.rank and all(
        index == dimension or compatible_dims(*sizes)
        for index, sizes in enumerate(zip(small.shape, large.shape, strict=True))
    )
    if sound:
        part, whole = small.shape[dimension], large.shape[dimension]
        sound = part is None or (part > 0 and (whole is None or whole % part == 0))
    return None if sound else f"{listed(map(shape_text, (small.shape, large.shape)))} along {dimension}"

ALL_REDUCE = define(
    "stablehlo.all_reduce",
    operands=[operand("operands", variadic=True)],
    attributes=[_REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS],
    results=[result("results", variadic=True)],
    regions=[region("computation")],
)

_check_groups(ALL_REDUCE, "C1", "C3", padded=True)
_check_channel(ALL_REDUCE, "C4")
_check_computation(ALL_REDUCE, "C5")
ALL_REDUCE.infers("C6, C7", "results have the shapes of operands and the element type that computation gives")(
    _accumulated
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

ALL_TO_ALL.constraint("C4", "0 < split_count")(lambda op: at_least(op["split_count"], 1))
_check_groups(ALL_TO_ALL, "C5", "C7")


@ALL_TO_ALL.constraint("C8", "dim(replica_groups, 1) = split_count")
def _(op: Op) -> str | None:
    groups = op["replica_groups"]
    if not isinstance(groups, np.ndarray):
        return None
    size = groups.shape[1] if groups.shape[0] else 0
    return equal(size, op["split_count"])


for _label, _name in (("C1", "split_dimension"), ("C3", "concat_dimension")):

    def _inside(op: Op, name: str = _name) -> str | None:
        faults = [in_range([op[name]], type.rank) for type in tensors(op.operands)]
        return next(filter(None, faults), None)

    ALL_TO_ALL.constraint(_label, f"0 <= {_name} < rank(operands...)")(_inside)


@ALL_TO_ALL.constraint("C2", "dim(operands..., split_dimension) % split_count = 0")
def _(op: Op) -> str | None:
    sizes = [type.shape[op["split_dimension"]] for type in tensors(op.operands)]
    sound = all(size is None or size % op["split_count"] == 0 for size in sizes)
    return None if sound else f"{dims(sizes)} and {op['split_count']}"


@ALL_TO_ALL.constraint("C9", "as many results as operands, of the same element types", on_results=True)
def _(op: Op) -> str | None:
    if len(op.operands) != len(op.results):
        return f"{len(op.operands)} operands and {len(op.results)} results"
    faults = map(equal_elements, op.operand_types, op.result_types)
    return next(filter(None, faults), None)


@ALL_TO_ALL.infers("C9", "split_dimension is divided by split_count and concat_dimension multiplied")
def _(op: Op) -> list[Type]:
    count, split, concat = op["split_count"], op["split_dimension"], op["concat_dimension"]
    found: list[Type] = []
    for type in tensors(op.operands):
        shape, bounds = list(type.shape), list(bounds_of(type))
        for sizes in (shape, bounds):
            part, whole = sizes[split], sizes[concat]
            if split != concat:
                sizes[split] = None if part is None else part // count
                sizes[concat] = None if whole is None else whole * count
        found.append(tensor(shape, type.element_type, bounds))
    return found

REDUCE_SCATTER = define(
    "stablehlo.reduce_scatter",
    operands=[operand("operand")],
    attributes=[attribute("scatter_dimension", kinds.I64), _REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS],
    results=[result("result")],
    regions=[region("computation")],
)

_check_groups(REDUCE_SCATTER, "C3", "C5")
_check_computation(REDUCE_SCATTER, "C7")
_check_channel(REDUCE_SCATTER, "C6")
REDUCE_SCATTER.constraint("C2", "0 <= scatter_dimension < rank(operand)")(
    lambda op: in_range([op["scatter_dimension"]], op.operands[0].tensor.rank)
)


@REDUCE_SCATTER.constraint(
    "C8", "shape(result) = shape(operand) but for a divisor along scatter_dimension", on_results=True
)
def _(op: Op) -> str | None:
    operand, result = op.operands[0].tensor, op.result.tensor
    dimension = op["scatter_dimension"]
    empty = dimension < min(operand.rank, result.rank) and 0 in (operand.shape[dimension], result.shape[dimension])
    return _scaled(result, operand, dimension) or (f"{operand} and {result}" if empty else None)


@REDUCE_SCATTER.constraint("C1", "dim(operand, scatter_dimension) % dim(process_groups, 1) = 0")
def _(op: Op) -> str | None:
    groups, size = op["replica_groups"], op.operands[0].tensor.shape[op["scatter_dimension"]]
    known = isinstance(groups, np.ndarray) and _is_whole_group(op) and groups.shape[1] > 0
    return f"{size} and {groups.shape[1]}" if known and size is not None and size % groups.shape[1] else None


def _is_whole_group(op: Op) -> bool:
    """Whether a process group is a row of replica_groups, and not one for each partition of its replicas."""
    channel: ChannelHandle | None = op["channel_handle"]
    return bool(op["use_global_device_ids"]) or channel is None or channel.handle <= 0


REDUCE_SCATTER.constraint("C9", "element_type(result) is what computation gives", on_results=True)(
    lambda op: equal_elements(op.result.type, returned(op.regions[0])[0])
)

COLLECTIVE_BROADCAST = define(
    "stablehlo.collective_broadcast",
    operands=[operand("operands", variadic=True)],
    attributes=[_REPLICA_GROUPS, _CHANNEL, _DYNAMIC_ROOT],
    results=[result("results", variadic=True)],
)

def _check_root(declared: OpDef, label: str, rooted_label: str) -> None:
    """Operands: at least one, and with has_dynamic_root at last a tensor of one root for each of the others."""

    @declared.constraint(label, "there is an operand")
    def _(op: Op) -> str | None:
        return at_least(len(_data(op)), 1)

    @declared.constraint(rooted_label, "the last operand with has_dynamic_root = true is tensor<Nxi32> for N others")
    def _(op: Op) -> str | None:
        if not op["has_dynamic_root"]:
            return None
        root, count = op.operands[-1].tensor, len(op.operands) - 1
        return None if root.element_type is I32 and root.shape == (count,) else f"{root} for {count}"


_check_groups(COLLECTIVE_BROADCAST, "C1", "C2", partial=True)
_check_root(COLLECTIVE_BROADCAST, "C3", "C4")


@COLLECTIVE_BROADCAST.constraint("C5", "size(results) = size(operands) - (has_dynamic_root ? 1 : 0)", on_results=True)
def _(op: Op) -> str | None:
    return equal(len(op.results), len(_data(op)))


COLLECTIVE_BROADCAST.infers("C3, C4", "type(results[j]) = type(operands[j])")(
    lambda op: [value.type for value in _data(op)]
)

COLLECTIVE_REDUCE = define(
    "stablehlo.collective_reduce",
    operands=[operand("operands", variadic=True)],
    attributes=[_REPLICA_GROUPS, _CHANNEL, _GLOBAL_IDS, _DYNAMIC_ROOT],
    results=[result("results", variadic=True)],
    regions=[region("computation")],
)

_check_groups(COLLECTIVE_REDUCE, "C1", "C2", padded=True)
_check_channel(COLLECTIVE_REDUCE, "")
_check_root(COLLECTIVE_REDUCE, "", "C3")
_check_computation(COLLECTIVE_REDUCE, "C4")
COLLECTIVE_REDUCE.infers("C3", "results have the shapes of operands and the element type that computation gives")(
    _accumulated
)

COLLECTIVE_PERMUTE = define(
    "stablehlo.collective_permute",
    operands=[operand("operand")],
    attributes=[attribute("source_target_pairs", kinds.I64_DENSE), _CHANNEL],
    results=[result("result")],
)

def check_pairs(declared: OpDef, labels: tuple[str, str, str, str]) -> None:
    """Constraints on source_target_pairs: its shape, unique sources, unique targets, and ids that are not negative."""

    def on_pairs(label: str, text: str, check: Callable[[np.ndarray[Any, Any]], str | None]) -> None:
        def checked(op: Op) -> str | None:
            pairs = op["source_target_pairs"]
            return None if pairs is None else check(pairs)

        declared.constraint(label, text)(checked)

    def two_columns(pairs: np.ndarray[Any, Any]) -> str | None:
        return None if pairs.ndim == 2 and pairs.shape[1] == 2 else shape_text(pairs.shape)

    def no_negative(pairs: np.ndarray[Any, Any]) -> str | None:
        return str(pairs.tolist()) if (pairs < 0).any() else None

    on_pairs(labels[0], "dim(source_target_pairs, 1) = 2", two_columns)
    on_pairs(labels[1], "is_unique(source_target_pairs[:, 0])", lambda pairs: _duplicate(pairs[:, 0].tolist()))
    on_pairs(labels[2], "is_unique(source_target_pairs[:, 1])", lambda pairs: _duplicate(pairs[:, 1].tolist()))
    on_pairs(labels[3], "0 <= source_target_pairs", no_negative)


check_pairs(COLLECTIVE_PERMUTE, ("C1", "C2", "C3", "C4"))
COLLECTIVE_PERMUTE.constraint("C5", "type(result) = type(operand)", on_results=True)(
    lambda op: equal_elements(op.operands[0].type, op.result.type)
)
COLLECTIVE_PERMUTE.infers("C5", "type(result) = type(operand)")(lambda op: [op.operands[0].type])

CROSS_REPLICA_SUM = define(
    "stablehlo.cross-replica-sum",
    operands=[operand("operand")],
    attributes=[attribute("replica_groups", kinds.I64_DENSE)],
    results=[result("result")],
    traits=["same_type"],
)

CROSS_REPLICA_SUM.infers("", "type(result) = type(operand)")(lambda op: [op.operands[0].type])

ASYNC_START = define(
    "stablehlo.async_start",
    operands=[operand("operands", variadic=True)],
    results=[result("result", kinds.FUTURE)],
    regions=[region("body")],
    traits=["isolated", "reads_context"],
)

_ASYNC = {
    f"stablehlo.{name}"
    for name in (
        "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "collective_reduce",
        "dynamic_slice", "dynamic_update_slice", "reduce_scatter", "slice",
    )
}  # fmt: skip


@ASYNC_START.constraint("C1", "body has one op and a return")
def _(op: Op) -> str | None:
    count = len(op.regions[0].block.ops)
    return None if count == 2 else f"{count} ops"


@ASYNC_START.constraint("C2", "the op in body is a collective or a slice")
def _(op: Op) -> str | None:
    inner = op.regions[0].block.ops[0]
    return None if inner.name in _ASYNC else inner.name


@ASYNC_START.constraint("C3", "operands have the types of body's arguments")
def _(op: Op) -> str | None:
    body = op.regions[0]
    return None if op.operand_types == parameters(body) else f"{listed(op.operand_types)} for {signature(body)}"


@ASYNC_START.constraint("C4", "body returns one value")
def _(op: Op) -> str | None:
    return None if len(returned(op.regions[0])) == 1 else signature(op.regions[0])


ASYNC_START.infers("C4", "the result is a future of what body returns")(
    lambda op: [FutureType(tuple(returned(op.regions[0])))]
)

ASYNC_DONE = define(
    "stablehlo.async_done",
    operands=[operand("operand", kinds.FUTURE)],
    results=[result("results", variadic=True)],
)

@ASYNC_DONE.infers("C1", "the results are what the future holds")
def _(op: Op) -> list[Type]:
    future = op.operands[0].type
    assert isinstance(future, FutureType)
    return list(future.types)


@ASYNC_DONE.constraint("C1", "the future holds one value")
def _(op: Op) -> str | None:
    future = op.operands[0].type
    assert isinstance(future, FutureType)
    return None if len(future.types) == 1 else str(future)
