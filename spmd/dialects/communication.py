"""Transfers between two processes, and between a process and its host. Source: StableHLO specification,
"Point-to-point communication" and "Streaming communication"."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, result
from spmd.dialects.structs import ChannelHandle

_CHANNEL = attribute("channel_handle", kinds.struct(ChannelHandle))
_HOST = attribute("is_host_transfer", kinds.BOOL, default=False)
_PAIRS = attribute("source_target_pairs", kinds.I64_DENSE, optional=True)
_RECEIVED = kinds.STATIC_TENSOR | kinds.TOKEN

INFEED = define(
    "stablehlo.infeed",
    operands=[operand("token", kinds.TOKEN)],
    attributes=[
        attribute("infeed_config", kinds.STRING, default=""),
        attribute("layout", kinds.array_of(kinds.ANY), optional=True),
    ],
    results=[result("results", _RECEIVED, variadic=True)],
)

OUTFEED = define(
    "stablehlo.outfeed",
    operands=[operand("inputs", kinds.TENSOR_OR_PER_AXIS, variadic=True), operand("token", kinds.TOKEN)],
    attributes=[attribute("outfeed_config", kinds.STRING, default="")],
    results=[result("result", kinds.TOKEN)],
)

SEND = define(
    "stablehlo.send",
    operands=[operand("inputs", kinds.TENSOR_OR_PER_AXIS, variadic=True), operand("token", kinds.TOKEN)],
    attributes=[_CHANNEL, _HOST, _PAIRS],
    results=[result("result", kinds.TOKEN)],
)

RECV = define(
    "stablehlo.recv",
    operands=[operand("token", kinds.TOKEN)],
    attributes=[_CHANNEL, _HOST, _PAIRS],
    results=[result("results", _RECEIVED, variadic=True)],
)
