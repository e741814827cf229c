"""Constraints on process groups that several collectives share.

Source: StableHLO specification, "Collective ops".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.dialects import kinds
from spmd.dialects.checks import at_least, dims, returned, shape_text
from spmd.dialects.core import Lookup, OpDef, attribute
from spmd.dialects.reducers import region_fault, widened_fault
from spmd.dialects.shapes import with_element
from spmd.dialects.structs import ChannelHandleAttr, ReplicaGroupMeshAxesAttr
from spmd.ir import Op, Region, Value
from spmd.ir.attributes import SymbolRefAttr
from spmd.support.arrays import Array
from spmd.types import I32, TensorType, Type

REPLICA_GROUPS = attribute("replica_groups", kinds.either(kinds.I64_DENSE, kinds.struct(ReplicaGroupMeshAxesAttr)))
CHANNEL = attribute("channel_handle", kinds.struct(ChannelHandleAttr), optional=True)
GLOBAL_IDS = attribute("use_global_device_ids", kinds.FLAG, default=False)
DYNAMIC_ROOT = attribute("has_dynamic_root", kinds.UNIT_FLAG, default=False)


def check_groups(declared: OpDef, unique: str, in_group: str, *, padded: bool = False, partial: bool = False) -> None:
    """Declare the constraints on replica_groups, labelled `unique` and `in_group`.

    `padded` groups may be filled with -1; `partial` ones need not contain every process.
    """

    def on_ids(label: str, text: str, check: Callable[[Op, Array], str | None]) -> None:
        def checked(op: Op) -> str | None:
            groups = op["replica_groups"]
            return check(op, groups) if isinstance(groups, np.ndarray) else None

        declared.constraint(label, text)(checked)

    def ids(groups: Array) -> list[int]:
        flat: list[int] = groups.ravel().tolist()
        return [process for process in flat if not (padded and process == -1)]

    on_ids("", "replica_groups is a 2-dimensional tensor", lambda op, g: None if g.ndim == 2 else shape_text(g.shape))
    on_ids(
        "",
        "replica_groups is not empty when use_global_device_ids is set",
        lambda op, g: shape_text(g.shape) if op.attributes.get("use_global_device_ids") and not g.size else None,
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

    @declared.symbol_constraint("", "the mesh of replica_groups must be a symbol of the module")
    def _(op: Op, lookup: Lookup) -> str | None:
        groups = op["replica_groups"]
        mesh = groups.mesh if isinstance(groups, ReplicaGroupMeshAxesAttr) else None
        return f"@{mesh.root}" if isinstance(mesh, SymbolRefAttr) and lookup(mesh.root) is None else None


def _duplicate(ids: list[int]) -> str | None:
    seen: set[int] = set()
    for process in ids:
        if process in seen:
            return f"{process} twice"
        seen.add(process)
    return None


def check_channel(declared: OpDef, label: str, *, advisory: bool = False) -> None:
    """Declare the constraint on channels of global ids; if `advisory`, the reference accepts zero, but no negatives."""
    if advisory:

        @declared.constraint(label, "channel_id must not be negative if use_global_device_ids = true")
        def negative(op: Op) -> str | None:
            channel: ChannelHandleAttr | None = op["channel_handle"]
            below = op["use_global_device_ids"] and channel is not None and channel.handle < 0
            return str(channel.handle) if below and channel is not None else None

    @declared.constraint(label, "channel_id > 0 if use_global_device_ids = true", advisory=advisory)
    def _(op: Op) -> str | None:
        channel: ChannelHandleAttr | None = op["channel_handle"]
        handle = channel.handle if channel is not None else 0
        return str(handle) if op["use_global_device_ids"] and handle <= 0 else None


def refuse_channel_id(declared: OpDef) -> None:
    """Declare that `channel_id`, the name in the specification's table, must be written as `channel_handle`."""

    @declared.constraint("", "the channel must be given as channel_handle")
    def _(op: Op) -> str | None:
        if "channel_id" not in op.discardable:
            return None
        return "channel_id: write channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


def data_operands(op: Op) -> tuple[Value, ...]:
    """Return the operands without the dynamic root."""
    rooted = op.definition is not None and "has_dynamic_root" in op.definition.attribute_table
    return op.operands[:-1] if rooted and op["has_dynamic_root"] else op.operands


def check_computation(declared: OpDef, label: str) -> None:
    """Declare the constraint on a computation: the part with a meaning, and the specification's text."""
    text = "computation has type (tensor<E>, tensor<E>) -> tensor<E> that operands widen to"
    for fault, customary in ((region_fault, False), (widened_fault, True)):

        def check(op: Op, fault: Callable[[Region, Sequence[Type]], str | None] = fault) -> str | None:
            faults = (fault(op.regions[0], [value.type]) for value in data_operands(op))
            return next(filter(None, faults), None)

        declared.constraint(label, text, customary=customary)(check)


def accumulated_operands(op: Op) -> list[Type]:
    """Return the types of the operands with the element type of the computation's results."""
    result = returned(op.regions[0])[0]
    assert isinstance(result, TensorType)
    return [with_element(value.type, result.element_type) for value in data_operands(op)]


def check_root(declared: OpDef, label: str, rooted_label: str) -> None:
    """Declare that there is an operand, and with has_dynamic_root a last one with a root for each other operand."""

    @declared.constraint(label, "there must be an operand")
    def _(op: Op) -> str | None:
        return at_least(len(data_operands(op)), 1)

    @declared.constraint(rooted_label, "the last operand must be tensor<Nxi32> for N others if has_dynamic_root = true")
    def _(op: Op) -> str | None:
        if not op["has_dynamic_root"]:
            return None
        root, count = op.operands[-1].tensor, len(op.operands) - 1
        return None if root.element_type is I32 and root.shape == (count,) else f"{root} for {count}"


def check_pairs(declared: OpDef, labels: tuple[str, str, str, str], *, meaningless: bool = False) -> None:
    """Declare the constraints on source_target_pairs: shape, unique sources, unique targets, non-negative ids.

    `meaningless`: the reference accepts violations.
    """

    def on_pairs(label: str, text: str, check: Callable[[Array], str | None]) -> None:
        def checked(op: Op) -> str | None:
            pairs = op["source_target_pairs"]
            return None if pairs is None else check(pairs)

        declared.constraint(label, text, meaningless=meaningless)(checked)

    def two_columns(pairs: Array) -> str | None:
        return None if pairs.ndim == 2 and pairs.shape[1] == 2 else shape_text(pairs.shape)

    def no_negative(pairs: Array) -> str | None:
        return str(pairs.tolist()) if (pairs < 0).any() else None

    on_pairs(labels[0], "dim(source_target_pairs, 1) = 2", two_columns)
    on_pairs(labels[1], "is_unique(source_target_pairs[:, 0])", lambda pairs: _duplicate(pairs[:, 0].tolist()))
    on_pairs(labels[2], "is_unique(source_target_pairs[:, 1])", lambda pairs: _duplicate(pairs[:, 1].tolist()))
    on_pairs(labels[3], "0 <= source_target_pairs", no_negative)
