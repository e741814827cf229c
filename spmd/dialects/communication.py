"""Transfers between two processes, and between a process and its host. Source: StableHLO specification,
"Point-to-point communication" and "Streaming communication"."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import at_least, listed
from spmd.dialects.core import OpDef, attribute, define, operand, result
from spmd.dialects.process_groups import check_pairs
from spmd.dialects.structs import ChannelHandleAttr
from spmd.ir import Op
from spmd.ir.attributes import ArrayAttr, IntegerAttr
from spmd.support.editions import of_earlier_edition
from spmd.types import TOKEN, TensorType

_CHANNEL = attribute("channel_handle", kinds.struct(ChannelHandleAttr))
_HOST = attribute("is_host_transfer", kinds.BOOL, default=False)
_PAIRS = attribute("source_target_pairs", kinds.I64_DENSE, optional=True)
_RECEIVED = type_sets.STATIC_TENSOR | type_sets.TOKEN


def _check_received(declared: OpDef, labels: Sequence[str]) -> None:
    """Declare that the results are tensors and a final token."""
    declared.constraint(labels[0], "0 < size(results)", on_results=True)(lambda op: at_least(len(op.results), 1))
    declared.constraint(labels[1], "is_tensor(type(results[:-1]))", on_results=True)(
        lambda op: (
            None if all(isinstance(type, TensorType) for type in op.result_types[:-1]) else listed(op.result_types)
        )
    )
    declared.constraint(labels[2], "is_token(type(results[-1]))", on_results=True)(
        lambda op: None if op.result_types[-1] is TOKEN else str(op.result_types[-1])
    )


def _check_channel_type(declared: OpDef, host: int, name: str) -> None:
    @declared.constraint("C5", f"channel_type is {name} when is_host_transfer = true, DEVICE_TO_DEVICE otherwise")
    def _(op: Op) -> str | None:
        handle: ChannelHandleAttr = op["channel_handle"]
        return None if handle.type == (host if op["is_host_transfer"] else 1) else str(handle.type)


INFEED = define(
    "stablehlo.infeed",
    operands=[operand("token", type_sets.TOKEN)],
    attributes=[
        attribute("infeed_config", kinds.STRING, default=""),
        attribute("layout", kinds.array_of(kinds.ANY), optional=True),
    ],
    results=[result("results", _RECEIVED, variadic=True)],
)

_check_received(INFEED, ("C1", "C2", "C3"))


@INFEED.constraint("", "layout has an array of integers for each result but the token", on_results=True)
def _(op: Op) -> str | None:
    layout = op["layout"]
    if layout is None:
        return None
    if len(layout) != len(op.results) - 1:
        return f"{len(layout)} for {len(op.results)} results"
    for entry in layout:
        if not isinstance(entry, ArrayAttr) or not all(isinstance(leaf, IntegerAttr) for leaf in entry.elements):
            return f"{entry}"
    return None


OUTFEED = define(
    "stablehlo.outfeed",
    operands=[operand("inputs", type_sets.TENSOR_OR_PER_AXIS, variadic=True), operand("token", type_sets.TOKEN)],
    attributes=[attribute("outfeed_config", kinds.STRING, default="")],
    results=[result("result", type_sets.TOKEN)],
)

OUTFEED.infer(lambda op: [TOKEN])

SEND = define(
    "stablehlo.send",
    operands=[operand("inputs", type_sets.TENSOR_OR_PER_AXIS, variadic=True), operand("token", type_sets.TOKEN)],
    attributes=[_CHANNEL, _HOST, _PAIRS],
    results=[result("result", type_sets.TOKEN)],
)

_check_channel_type(SEND, 2, "DEVICE_TO_HOST")
check_pairs(SEND, ("C1", "C2", "C3", "C4"), meaningless=True)
SEND.infer(lambda op: [TOKEN])

RECV = define(
    "stablehlo.recv",
    operands=[operand("token", type_sets.TOKEN)],
    attributes=[_CHANNEL, _HOST, _PAIRS],
    results=[result("results", _RECEIVED, variadic=True, label=of_earlier_edition("C3"))],
)

_check_channel_type(RECV, 3, "HOST_TO_DEVICE")
check_pairs(RECV, ("C1", "C2", "C3", "C4"), meaningless=True)
_check_received(RECV, [of_earlier_edition(label) for label in ("C2", "C3", "C4")])
