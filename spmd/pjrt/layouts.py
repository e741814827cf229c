"""Layouts: in which order the dimensions of dense arrays lie in memory.

An order has the dimensions from the slowest to the fastest; None is C order. Programs compute in C order: arguments and
results that a program declares in another are moved. Source: pjrt_c_api_layouts_extension.h; a layout is serialized as
text, `{1,0}`: the dimensions from the fastest on, which is also how programs declare it (mhlo.layout_mode).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from spmd.ir import Value
from spmd.ir.attributes import Attribute, StringAttr
from spmd.pjrt.entries import entry
from spmd.pjrt.errors import Code, PjrtError, unimplemented
from spmd.pjrt.handles import Handle
from spmd.pjrt.structs import struct
from spmd.support.arrays import Array
from spmd.types import TensorType

Order = tuple[int, ...] | None

_TILED = 0
_MODE = "mhlo.layout_mode"
_MOST_DIMENSIONS = 64


class Layout(Handle):
    """The layout of arrays whose dimensions lie in an order, from the slowest to the fastest."""

    KIND = "Layout"
    #: A function of C that does nothing: the text is never freed.
    deleter = 0

    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        from_fastest = order[::-1]
        self.put_text("serialized_bytes", f"{{{','.join(map(str, from_fastest))}}}")
        self.minor_to_major = self.keep((ctypes.c_int64 * max(len(order), 1))(*from_fastest))
        self.record.serialized_layout_deleter = self.deleter


@cache
def layout_of(rank: int, order: Order = None) -> Layout:
    """Return the layout of arrays of `rank` dimensions in an order: one for all of them."""
    return Layout(tuple(range(rank)) if order is None else order)


def is_laid(array: Array, order: Order) -> bool:
    """Return whether an array is dense, and its dimensions lie in an order."""
    return bool((array if order is None else array.transpose(order)).flags.c_contiguous)


def laid(array: Array, order: Order) -> Array:
    """Return `array` if it lies in an order, else a copy that does."""
    return array if is_laid(array, order) else copied_in(array, order)


def copied_in(array: Array, order: Order) -> Array:
    """Return a copy of `array` whose dimensions lie in an order."""
    if order is None:
        return array.copy(order="C")
    return as_laid(array.transpose(order).copy(order="C"), order)


def as_laid(memory: Array, order: Order) -> Array:
    """Return the array whose dimensions, from the slowest to the fastest, are those of `memory`."""
    return memory if order is None else memory.transpose(np.argsort(order))


def in_memory(shape: tuple[int, ...], order: Order) -> tuple[int, ...]:
    """Return the sizes of an array's dimensions from the slowest to the fastest."""
    return shape if order is None else tuple(shape[dimension] for dimension in order)


def declared_orders(attributes: Iterable[Mapping[str, Attribute]], values: Iterable[Value]) -> list[Order]:
    """Return the orders that a program declares of its arguments, or of its results: the values that it returns.

    It may leave an order open: a result that is the transpose of an array in C order needs not be moved then.
    """
    return [_declared(entries.get(_MODE), value) for entries, value in zip(attributes, values, strict=True)]


def _declared(mode: Attribute | None, value: Value) -> Order:
    if not isinstance(mode, StringAttr) or mode.value == "default" or not isinstance(value.type, TensorType):
        return None
    if mode.value == "auto":
        op = value.defining_op
        if op is None or op.name != "stablehlo.transpose":
            return None
        return _checked(tuple(np.argsort(op["permutation"]).tolist()), value.type.rank)
    text = mode.value.strip("{}")
    if ":" in text:
        raise unimplemented(f"an argument or a result lies as {mode.value}: tiled layouts are not supported")
    return _checked(tuple(int(number) for number in text.split(",") if number)[::-1], value.type.rank)


def order_of(address: int, rank: int) -> Order:
    """Return the order of a layout in memory; PjrtError for what is no layout of `rank` dimensions."""
    layout = struct("MemoryLayout").from_address(address)
    if layout.type != _TILED:
        if layout.first_size == 0:
            return None
        raise unimplemented("layouts given by strides are not supported")
    if layout.num_tiles:
        raise unimplemented("tiled layouts are not supported")
    if layout.first_size != rank:
        raise PjrtError(Code.INVALID_ARGUMENT, f"a layout of {layout.first_size} dimensions for {rank}")
    return _checked(tuple((ctypes.c_int64 * rank).from_address(layout.first))[::-1] if rank else (), rank)


def _checked(order: tuple[int, ...], rank: int) -> Order:
    if sorted(order) != list(range(rank)):
        raise PjrtError(Code.INVALID_ARGUMENT, f"{order} is no order of {rank} dimensions")
    return None if order == tuple(range(rank)) else order


@entry("Layouts_PJRT_Client_GetDefaultLayout")
def _(args: Any) -> None:
    args.layout = _of(args.num_dims).address


@entry("Layouts_PJRT_Topology_GetDefaultLayout")
def _(args: Any) -> None:
    args.layout = _of(args.num_dims).address


def _of(rank: int) -> Layout:
    if rank > _MOST_DIMENSIONS:
        raise unimplemented(f"an array of {rank} dimensions: NumPy's have {_MOST_DIMENSIONS} at most")
    return layout_of(rank)
