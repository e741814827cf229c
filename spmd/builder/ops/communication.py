"""Transfers between host and program, and between programs.

Source: XlaBuilder operation semantics, "Infeed", "Recv", "Send"; Outfeed and the operations on tokens as in XlaBuilder.

The side effects of a computation are ordered as they are added, by a token passed from one to the next. Operations
named ...WithToken take and return that token explicitly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd import types as t
from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation, operation_of
from spmd.builder.ops.source import array_shape_argument, shape_argument
from spmd.builder.options import ChannelHandle, ChannelType
from spmd.builder.shape import Shape
from spmd.builder.xla_op import XlaOp
from spmd.dialects import structs
from spmd.ir import AttributeValue, Value
from spmd.ir.attributes import ArrayAttr, IntegerAttr

Pairs = Sequence[tuple[int, int]] | None


class TransferContext(XlaOp):
    """A pending transfer: the buffer and a request identifier (U32). Only RecvDone or SendDone accept it."""

    __slots__ = ("attributes", "buffer", "done", "sends")

    def __init__(
        self, builder: XlaBuilder, value: Value, buffer: Shape, sends: bool, attributes: dict[str, AttributeValue]
    ) -> None:
        super().__init__(builder, value)
        self.buffer = buffer
        self.sends = sends
        self.attributes = attributes
        self.done = False

    @property
    def shape(self) -> Shape:
        return Shape.tuple_shape([self.buffer, Shape.scalar_shape("u32")])


# --- host streams ----------------------------------------------------------------------------------------------------


def _streamed(shape: object, argument: str) -> Shape:
    data_shape = shape_argument(shape, argument)
    if any(part.is_tuple() for part in data_shape.parts):
        raise ArgumentError(argument, f"nested tuples are not supported, got {data_shape.brief}")
    if any(not leaf.is_array() for leaf in data_shape.leaves()):
        raise ArgumentError(argument, f"must be an array or a tuple of arrays, got {data_shape.brief}")
    return data_shape


def _infeed(builder: XlaBuilder, token: Value, shape: Shape, config: str) -> tuple[list[Value], Value]:
    leaves = shape.leaves()
    attributes: dict[str, AttributeValue] = {"infeed_config": config}
    if any(leaf.order is not None and not leaf.order.is_default for leaf in leaves):
        orders = (leaf.minor_to_major() for leaf in leaves)
        attributes["layout"] = tuple(ArrayAttr(tuple(IntegerAttr(d, t.I64) for d in order)) for order in orders)
    *values, after = builder.emit("stablehlo.infeed", [token], attributes, [*(leaf.tensor for leaf in leaves), t.TOKEN])
    return values, after


@operation
def Infeed(builder: XlaBuilder, shape: Shape, config: str = "") -> XlaOp:
    """Return the next item of this process's infeed, an array or a tuple of arrays of `shape`. Source: "Infeed".

    An empty tuple reads nothing.
    """
    data_shape = _streamed(shape, "shape")
    if not data_shape.leaves():
        return builder.tuple([])
    values, token = _infeed(builder, builder.token(), data_shape, config)
    builder.set_token(token)
    return builder.pack(data_shape.ir_type, values)


@operation_of('"Infeed"')
def InfeedWithToken(builder: XlaBuilder, token: XlaOp, shape: Shape, config: str = "") -> XlaOp:
    """Run Infeed after `token`; return a tuple of the item and the next token."""
    data_shape = _streamed(shape, "shape")
    before = checks.token(builder, token, "token")
    values, after = _infeed(builder, before, data_shape, config) if data_shape.leaves() else ([], before)
    data = builder.value(builder.pack(data_shape.ir_type, values), "shape")
    return builder.tuple([data, after])


def _outfeed(builder: XlaBuilder, operand: object, token: Value, shape: object, config: str) -> Value:
    value = builder.value(operand, "operand")
    if shape is not None and not _streamed(shape, "shape_with_layout").compatible(Shape.of(value.type)):
        raise ArgumentError(
            "shape_with_layout", f"must be the shape of operand {Shape.of(value.type).brief}, got {shape}"
        )
    leaves = builder.unpack(value)
    (after,) = builder.emit("stablehlo.outfeed", [*leaves, token], {"outfeed_config": config}, [t.TOKEN])
    return after


@operation_of('"Infeed"')
def Outfeed(
    builder: XlaBuilder, operand: XlaOp, shape_with_layout: Shape | None = None, outfeed_config: str = ""
) -> XlaOp:
    """Write `operand`, an array or a tuple of arrays, to this process's outfeed; return an empty tuple."""
    builder.set_token(_outfeed(builder, operand, builder.token(), shape_with_layout, outfeed_config))
    return builder.tuple([])


@operation_of('"Infeed"')
def OutfeedWithToken(
    builder: XlaBuilder, operand: XlaOp, token: XlaOp, shape_with_layout: Shape | None = None, outfeed_config: str = ""
) -> XlaOp:
    """Run Outfeed after `token`; return the next token."""
    before = checks.token(builder, token, "token")
    return XlaOp(builder, _outfeed(builder, operand, before, shape_with_layout, outfeed_config))


# --- channels --------------------------------------------------------------------------------------------------------


def _channel(handle: object, argument: str, pairs: Pairs) -> dict[str, AttributeValue]:
    """Return the attributes of a transfer between devices, or with the host if the channel's type says so."""
    channel = handle if isinstance(handle, ChannelHandle) else ChannelHandle(checks.integer(handle, argument, 0))
    host = channel.type in (ChannelType.DEVICE_TO_HOST, ChannelType.HOST_TO_DEVICE)
    attributes: dict[str, AttributeValue] = {
        "channel_handle": structs.ChannelHandleAttr(int(channel.handle), int(channel.type)),
        "is_host_transfer": host,
    }
    if pairs is not None:
        rows = [checks.integers(pair, "source_target_pairs", 2, 0) for pair in pairs]
        attributes["source_target_pairs"] = np.array(rows, dtype=np.int64).reshape(len(rows), 2)
    return attributes


def _send(builder: XlaBuilder, operand: object, token: Value, attributes: dict[str, AttributeValue]) -> Value:
    value = checks.array(builder, operand, "operand")
    (after,) = builder.emit("stablehlo.send", [value, token], attributes, [t.TOKEN])
    return after


def _recv(
    builder: XlaBuilder, shape: Shape, token: Value, attributes: dict[str, AttributeValue]
) -> tuple[Value, Value]:
    data, after = builder.emit("stablehlo.recv", [token], attributes, [shape.tensor, t.TOKEN])
    return data, after


@operation
def Send(
    builder: XlaBuilder, operand: XlaOp, channel_handle: ChannelHandle | int, source_target_pairs: Pairs = None
) -> XlaOp:
    """Send `operand` to the Recv of the same channel. Source: "Send".

    With a ChannelHandle, synchronously: return an empty tuple. With a channel id, start the transfer and return
    a context for SendDone. `source_target_pairs` gives senders and receivers; without it, the two ends are
    different programs.
    """
    attributes = _channel(channel_handle, "channel_handle", source_target_pairs)
    token = _send(builder, operand, builder.token(), attributes)
    builder.set_token(token)
    if isinstance(channel_handle, ChannelHandle):
        return builder.tuple([])
    return TransferContext(builder, token, operand.shape, True, attributes)


@operation
def Recv(
    builder: XlaBuilder, shape: Shape, channel_handle: ChannelHandle | int, source_target_pairs: Pairs = None
) -> XlaOp:
    """Receive an array of `shape` from the Send of the same channel. Source: "Recv".

    With a ChannelHandle, synchronously: return the data. With a channel id, return a context for RecvDone, which
    returns the data.
    """
    result_shape = array_shape_argument(shape)
    attributes = _channel(channel_handle, "channel_handle", source_target_pairs)
    if not isinstance(channel_handle, ChannelHandle):
        return TransferContext(builder, builder.token(), result_shape, False, attributes)
    data, token = _recv(builder, result_shape, builder.token(), attributes)
    builder.set_token(token)
    return XlaOp(builder, data)


def _context(context: object, sends: bool) -> TransferContext:
    name = "Send" if sends else "Recv"
    if not isinstance(context, TransferContext) or context.sends is not sends:
        raise ArgumentError("context", f"must be the context returned by {name} with a channel id")
    if context.done:
        raise ArgumentError("context", f"must not be used twice by {name}Done")
    context.done = True
    return context


@operation
def RecvDone(builder: XlaBuilder, context: XlaOp) -> XlaOp:
    """Wait for the transfer started by a Recv, and return the data. Source: "Recv"."""
    begun = _context(context, False)
    data, token = _recv(builder, begun.buffer, builder.token(), begun.attributes)
    builder.set_token(token)
    return XlaOp(builder, data)


@operation
def SendDone(builder: XlaBuilder, context: XlaOp) -> XlaOp:
    """Wait for the transfer started by a Send; return an empty tuple. Source: "Send"."""
    _context(context, True)
    return builder.tuple([])


@operation_of('"Send" and "Recv"')
def SendWithToken(
    builder: XlaBuilder,
    operand: XlaOp,
    token: XlaOp,
    channel_handle: ChannelHandle | int,
    source_target_pairs: Pairs = None,
) -> XlaOp:
    """Run Send after `token`; return the next token."""
    before = checks.token(builder, token, "token")
    return XlaOp(
        builder, _send(builder, operand, before, _channel(channel_handle, "channel_handle", source_target_pairs))
    )


@operation_of('"Send" and "Recv"')
def RecvWithToken(
    builder: XlaBuilder,
    token: XlaOp,
    shape: Shape,
    channel_handle: ChannelHandle | int,
    source_target_pairs: Pairs = None,
) -> XlaOp:
    """Run Recv after `token`; return a tuple of the data and the next token."""
    before = checks.token(builder, token, "token")
    result_shape = array_shape_argument(shape)
    attributes = _channel(channel_handle, "channel_handle", source_target_pairs)
    return builder.tuple(list(_recv(builder, result_shape, before, attributes)))
