"""The MPI call of each collective, with its encoding and decoding steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI

from collectives import layout
from collectives.arrays import Array, DType
from collectives.element_types import element
from collectives.mpi.fold import folded
from collectives.mpi.large import piece_by_piece, within_limits
from collectives.mpi.transfer import Transfer
from collectives.mpi.types import Message, as_is, mpi_reduction
from collectives.operations import (
    AllGather,
    AllReduce,
    AllToAll,
    Barrier,
    CollectiveBroadcast,
    CollectivePermute,
    CollectiveReduce,
    Operation,
    ReduceScatter,
    ReducingOperation,
)
from collectives.shapes import Shape

PERMUTE_TAG = 0


def blocking(comm: MPI.Intracomm, operation: Operation) -> Transfer:
    """Return the steps of ``operation`` among the ranks of ``comm``, if it blocks."""
    if isinstance(operation, ReducingOperation) and operation.is_exchanged:
        return folded(comm, operation)
    return _called(comm, operation)


def nonblocking(comm: MPI.Intracomm, operation: Operation) -> Transfer:
    """Return the steps of ``operation`` among the ranks of ``comm``, if it is started and waited for."""
    if isinstance(operation, ReducingOperation) and operation.is_exchanged:
        return _gathered(comm, operation)
    return _called(comm, operation)


def _called(comm: MPI.Intracomm, operation: Operation) -> Transfer:
    """Return the steps around the MPI call of ``operation``, or around the gathering of all operands."""
    builder = _BUILDERS.get(type(operation))
    if builder is None:
        return _gathered(comm, operation)
    return within_limits(builder(comm, operation), operation, comm.size)


def _all_reduce(comm: MPI.Intracomm, operation: AllReduce) -> Transfer:
    rule = operation.arithmetic
    op, message = _reduction(operation)
    if rule.widened:
        return Transfer(
            rule.widen,
            _anew(operation.shape, rule.accumulator),
            lambda s, r: comm.Allreduce(s, r, op),
            lambda s, r: [comm.Iallreduce(s, r, op)],
            _narrow,
        )
    return Transfer(
        _encoded(layout.contiguous, message),
        message,
        lambda s, r: comm.Allreduce(s, r, op),
        lambda s, r: [comm.Iallreduce(s, r, op)],
        in_place=lambda s, r: comm.Allreduce(MPI.IN_PLACE, r, op),
    )


def _reduce_scatter(comm: MPI.Intracomm, operation: ReduceScatter) -> Transfer:
    rule = operation.arithmetic
    op, message = _reduction(operation)
    split = layout.splitter(operation.shape, operation.dim, comm.size)
    widened = rule.widened
    shape = operation.result_shape(comm.size)
    return Transfer(
        (lambda array: rule.widen(split(array))) if widened else _encoded(split, message),
        _anew(shape, rule.accumulator) if widened else message,
        lambda s, r: comm.Reduce_scatter_block(s, r, op),
        lambda s, r: [comm.Ireduce_scatter_block(s, r, op)],
        _narrow if widened else None,
    )


def _reduce(comm: MPI.Intracomm, operation: CollectiveReduce) -> Transfer:
    rule, root = operation.arithmetic, operation.root
    op, message = _reduction(operation)
    widened = rule.widened
    encode = rule.widen if widened else _encoded(layout.contiguous, message)
    if comm.rank == root:
        receive_into: Callable[[Array], Message] = _anew(operation.shape, rule.accumulator) if widened else message
        decode: Callable[[Message, Array], None] | None = _narrow if widened else None
    else:
        receive_into, decode = _nothing, _filler(operation)
    return Transfer(
        encode,
        receive_into,
        lambda s, r: comm.Reduce(s, r, op, root),
        lambda s, r: [comm.Ireduce(s, r, op, root)],
        decode,
    )


def _all_gather(comm: MPI.Intracomm, operation: AllGather) -> Transfer:
    wire = _wire(operation.dtype, 1, operation.shape, comm.size, operation.shape, operation.dim)
    return Transfer(
        wire.encode,
        wire.receive_into,
        lambda s, r: comm.Allgather(s, r),
        lambda s, r: [comm.Iallgather(s, r)],
        wire.decode,
    )


def _all_to_all(comm: MPI.Intracomm, operation: AllToAll) -> Transfer:
    n = comm.size
    part = (*operation.shape[: operation.split_dim], operation.shape[operation.split_dim] // n,
            *operation.shape[operation.split_dim + 1 :])  # fmt: skip
    wire = _wire(operation.dtype, n, part, n, part, operation.concat_dim)
    split, encode = layout.splitter(operation.shape, operation.split_dim, n), wire.encode
    return Transfer(
        lambda array: encode(split(array)),
        wire.receive_into,
        lambda s, r: comm.Alltoall(s, r),
        lambda s, r: [comm.Ialltoall(s, r)],
        wire.decode,
    )


def _permute(comm: MPI.Intracomm, operation: CollectivePermute) -> Transfer:
    source, target = operation.source(comm.rank), operation.target(comm.rank)
    wire = _wire(operation.dtype, 1, operation.shape, 1, operation.shape, 0)
    if source == comm.rank:
        return Transfer(_pass, _pass, _copy, _copied)
    to = MPI.PROC_NULL if target is None else target
    if source is None:
        filler = _filler(operation)
        if target is None:
            return Transfer(_pass, _nothing, lambda s, r: None, lambda s, r: [], filler)
        return Transfer(
            wire.encode,
            _nothing,
            lambda s, r: comm.Send(s, to, PERMUTE_TAG),
            lambda s, r: [comm.Isend(s, to, PERMUTE_TAG)],
            filler,
        )
    if target is None:
        return Transfer(
            _pass,
            wire.receive_into,
            lambda s, r: comm.Recv(r, source, PERMUTE_TAG),
            lambda s, r: [comm.Irecv(r, source, PERMUTE_TAG)],
            wire.decode,
        )
    return Transfer(
        wire.encode,
        wire.receive_into,
        lambda s, r: comm.Sendrecv(s, to, PERMUTE_TAG, r, source, PERMUTE_TAG),
        lambda s, r: [comm.Irecv(r, source, PERMUTE_TAG), comm.Isend(s, to, PERMUTE_TAG)],
        wire.decode,
    )


def _broadcast(comm: MPI.Intracomm, operation: CollectiveBroadcast) -> Transfer:
    root = operation.root
    wire = _wire(operation.dtype, 1, operation.shape, 1, operation.shape, 0)
    bcast = piece_by_piece(lambda buffer: comm.Bcast(buffer, root), operation)
    ibcast = piece_by_piece(lambda buffer: comm.Ibcast(buffer, root), operation)
    if comm.rank == root:

        def broadcast_mine(send: tuple[Array, Message], out: Array) -> None:
            bcast(send[1])
            np.copyto(out, send[0])

        return Transfer(
            lambda array: (array, wire.encode(array)),
            _pass,
            broadcast_mine,
            lambda s, r: [*_copied(s[0], r), *ibcast(s[1])],
            in_place=lambda s, r: bcast(s[1]),
        )
    return Transfer(
        _pass,
        wire.receive_into,
        lambda s, r: bcast(r),
        lambda s, r: ibcast(r),
        wire.decode,
        in_place=lambda s, r: bcast(r),
    )


def _barrier(comm: MPI.Intracomm, operation: Barrier) -> Transfer:
    return Transfer(_pass, _pass, lambda s, r: comm.Barrier(), lambda s, r: [comm.Ibarrier()])


#: The collectives that have an MPI call; any other uses `_gathered`.
_BUILDERS: dict[type[Operation], Callable[[MPI.Intracomm, Any], Transfer]] = {
    AllReduce: _all_reduce,
    ReduceScatter: _reduce_scatter,
    CollectiveReduce: _reduce,
    AllGather: _all_gather,
    AllToAll: _all_to_all,
    CollectivePermute: _permute,
    CollectiveBroadcast: _broadcast,
    Barrier: _barrier,
}


def _gathered(comm: MPI.Intracomm, operation: Operation) -> Transfer:
    """Gather all operands on every process, which then computes its result."""
    gathering = AllGather((1, *operation.shape), operation.dtype, 0)
    gather = _called(comm, gathering)
    stacked, rank = (comm.size, *operation.shape), comm.rank

    def decode(received: Array, out: Array) -> None:
        slabs = np.empty(stacked, operation.dtype)
        if gather.decode is not None:
            gather.decode(received, slabs)
        else:
            slabs = received.view(operation.dtype).reshape(stacked)
        np.copyto(out, operation.evaluate(layout.rows(slabs))[rank])

    def receive_into(out: Array) -> Message:
        return gather.receive_into(np.empty(stacked, operation.dtype))

    return Transfer(gather.encode, receive_into, gather.post, gather.start, decode)


@dataclass(frozen=True)
class _Wire:
    encode: Callable[[Array], Message]
    receive_into: Callable[[Array], Message]
    decode: Callable[[Message, Array], None] | None


def _wire(dtype: DType, sent: int, part: Shape, received: int, arriving: Shape, concat_dim: int) -> _Wire:
    """Return the steps that send ``sent`` chunks of ``part``, and concatenate ``received`` along ``concat_dim``."""
    join = layout.concatenator(arriving, concat_dim, received)
    plain, count = layout.wire_dtype(dtype), prod(part)
    if layout.is_packed(dtype):
        size = layout.packed_size(count, dtype)

        def unpack(data: Array, out: Array) -> None:
            chunks = layout.unpack(data, count, dtype)
            if join is None:
                np.copyto(out, chunks.reshape(out.shape))
            else:
                join(chunks, out)

        return _Wire(
            lambda array: layout.pack(layout.contiguous(array).reshape(sent, count)),
            lambda out: np.empty((received, size), np.uint8),
            unpack,
        )
    encode: Callable[[Array], Message] = layout.contiguous
    if plain != dtype:
        encode = lambda array: layout.contiguous(array).view(plain)  # noqa: E731
    if join is None:
        return _Wire(encode, _pass if plain == dtype else lambda out: out.view(plain), None)
    scatter = join
    return _Wire(
        encode,
        lambda out: np.empty((received, count), plain),
        scatter if plain == dtype else lambda data, out: scatter(data.view(dtype), out),
    )


def _reduction(operation: ReducingOperation) -> tuple[MPI.Op, Callable[[Array], Message]]:
    datatype_and_message = mpi_reduction(operation.arithmetic)
    assert datatype_and_message is not None
    return datatype_and_message


def _pass(array: Array) -> Message:
    return array


def _copy(send: Array, receive: Array) -> None:
    np.copyto(receive, send)


def _copied(send: Array, receive: Array) -> list[MPI.Request]:
    np.copyto(receive, send)
    return []


def _nothing(out: Array) -> Message:
    return None


def _encoded(layout_step: Callable[[Array], Array], message: Callable[[Array], Message]) -> Callable[[Array], Message]:
    if message is as_is:
        return layout_step
    return lambda array: message(layout_step(array))


def _anew(shape: Shape, dtype: DType) -> Callable[[Array], Message]:
    return lambda out: np.empty(shape, dtype)


def _narrow(received: Array, out: Array) -> None:
    with np.errstate(all="ignore"):
        np.copyto(out, received, casting="unsafe")


def _filler(operation: CollectivePermute | CollectiveReduce) -> Callable[[Message, Array], None]:
    value = element(operation.dtype, operation.fill)
    return lambda received, out: np.copyto(out, value)
