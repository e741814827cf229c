"""Counts that exceed MPI's integers: operands of 2^31 elements and more.

Elementwise reductions, and broadcasts or permutes of whole arrays, are split into several calls. Gathers and exchanges
of chunks pass each chunk as one element of a derived datatype of the chunk's size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import chain
from math import prod
from typing import TypeVar

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from collectives.arrays import Array, DType
from collectives.mpi.transfer import Transfer
from collectives.mpi.types import Message
from collectives.operations import AllGather, AllToAll, CollectiveBroadcast, Operation, ReduceScatter

T = TypeVar("T")

#: The largest count of a call.
MOST = (1 << 31) - 1


def within_limits(transfer: Transfer, operation: Operation, size: int) -> Transfer:
    """Return ``transfer``, split into calls whose counts fit in MPI's integers."""
    if prod(operation.shape) <= MOST or isinstance(operation, CollectiveBroadcast):
        return transfer  # a broadcast splits itself, by piece_by_piece
    if isinstance(operation, AllGather | AllToAll):
        return _by_large_elements(transfer, 1 if isinstance(operation, AllGather) else size, size)
    if isinstance(operation, ReduceScatter):
        return _scattered_in_pieces(transfer, size)
    return _in_pieces(transfer)


def piece_by_piece(call: Callable[[Array], T], operation: Operation) -> Callable[[Array], list[T]]:
    """Split a buffer that is too large for one call and apply ``call`` to the parts; return its results."""
    if prod(operation.shape) <= MOST:
        return lambda buffer: [call(buffer)]
    return lambda buffer: [call(buffer.reshape(-1)[part]) for part in slices(buffer.size)]


def _in_pieces(whole: Transfer) -> Transfer:
    def pieces(send: Message, receive: Message) -> list[tuple[Message, Message]]:
        array = _array(send if receive is None else receive)
        return [(_cut(send, part), _cut(receive, part)) for part in slices(array.size)]

    return _split(whole, pieces)


def _scattered_in_pieces(whole: Transfer, size: int) -> Transfer:
    """Split a reduce_scatter so that each call covers the same range of every process's chunk."""

    def pieces(send: Message, receive: Message) -> list[tuple[Message, Message]]:
        chunks = _array(send).reshape(size, -1)
        # The count over all chunks of a call must fit as well.
        parts = slices(chunks.shape[1], max(1, MOST // size))
        return [(_with(send, np.ascontiguousarray(chunks[:, part])), _cut(receive, part)) for part in parts]

    return _split(whole, pieces)


def _split(whole: Transfer, pieces: Callable[[Message, Message], list[tuple[Message, Message]]]) -> Transfer:
    """Return ``whole`` with each call replaced by one for each of the ``pieces`` of its messages."""

    def each(call: Callable[[Message, Message], T]) -> Callable[[Message, Message], list[T]]:
        return lambda send, receive: [call(*piece) for piece in pieces(send, receive)]

    start, in_place = each(whole.start), whole.in_place and each(whole.in_place)
    return replace(whole, post=each(whole.post), start=lambda s, r: [*chain(*start(s, r))], in_place=in_place)


def _by_large_elements(whole: Transfer, sent: int, received: int) -> Transfer:
    def send_as(message: Message) -> Message:
        return _large(message, sent)

    def receive_as(message: Message) -> Message:
        return _large(message, received)

    return replace(
        whole,
        post=lambda s, r: whole.post(send_as(s), receive_as(r)),
        start=lambda s, r: whole.start(send_as(s), receive_as(r)),
    )


def _large(message: Array, chunks: int) -> Message:
    return [message, 1, _large_datatype(message.dtype, message.size // chunks)]  # mpi4py counts for one process


@cache
def _large_datatype(dtype: DType, count: int) -> MPI.Datatype:
    """Return a contiguous derived datatype of ``count`` elements of ``dtype``."""
    element = dtlib.from_numpy_dtype(dtype)
    blocks, rest = divmod(count, MOST)
    block = element.Create_contiguous(MOST)
    struct_type = MPI.Datatype.Create_struct([blocks, rest], [0, blocks * MOST * dtype.itemsize], [block, element])
    return struct_type.Commit()


def _array(message: Message) -> Array:
    array = message[0] if isinstance(message, list) else message
    assert isinstance(array, np.ndarray)
    return array


def _with(message: Message, array: Array) -> Message:
    """Return ``message`` with its array replaced."""
    return [array, *message[1:]] if isinstance(message, list) else array


def _cut(message: Message, part: slice) -> Message:
    return None if message is None else _with(message, _array(message).reshape(-1)[part])


def slices(count: int, most: int | None = None) -> list[slice]:
    """Return slices of a flat buffer of ``count`` elements, of at most ``most`` each."""
    step = most or MOST
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
