"""Layouts: how elements lie in memory. All of this client's are dense and in C order.

Source: pjrt_c_api_layouts_extension.h; a layout is serialized as text, `{1,0}`: the dimensions from the fastest on.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from spmd.pjrt.entries import entry
from spmd.pjrt.errors import Code, PjrtError, unimplemented
from spmd.pjrt.handles import Handle
from spmd.pjrt.structs import struct

_TILED = 0
_MOST_DIMENSIONS = 64


class Layout(Handle):
    """The layout of arrays of so many dimensions."""

    KIND = "Layout"
    #: A function of C that does nothing: the text is never freed.
    deleter = 0

    def __init__(self, rank: int) -> None:
        super().__init__()
        order = range(rank - 1, -1, -1)
        self.put_text("serialized_bytes", f"{{{','.join(map(str, order))}}}")
        self.minor_to_major = self.keep((ctypes.c_int64 * max(rank, 1))(*order))
        self.record.serialized_layout_deleter = self.deleter


@cache
def layout_of(rank: int) -> Layout:
    """Return the layout of arrays of `rank` dimensions: one for all of them."""
    return Layout(rank)


def order_of(address: int, rank: int, *, any_order: bool = False) -> tuple[int, ...] | None:
    """Return the dimensions from the slowest to the fastest of a layout in memory; None for C order.

    PjrtError for one that is not C order, unless `any_order`, and for what is no layout of `rank` dimensions.
    """
    layout = struct("MemoryLayout").from_address(address)
    if layout.type != _TILED:
        if layout.first_size == 0:
            return None
        raise unimplemented("layouts given by strides are not supported")
    if layout.num_tiles:
        raise unimplemented("tiled layouts are not supported")
    if layout.first_size != rank:
        raise PjrtError(Code.INVALID_ARGUMENT, f"a layout of {layout.first_size} dimensions for {rank}")
    order = tuple((ctypes.c_int64 * rank).from_address(layout.first))[::-1] if rank else ()
    if sorted(order) != list(range(rank)):
        raise PjrtError(Code.INVALID_ARGUMENT, f"{order} is no order of {rank} dimensions")
    if order == tuple(range(rank)):
        return None
    if not any_order:
        raise unimplemented(f"arrays lie in C order here, not from dimension {order[0]} to {order[-1]}")
    return order


@entry("Layouts_MemoryLayout_Destroy", fails=False)
def _(args: Any) -> None:
    """Layouts are shared, and stay."""


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
