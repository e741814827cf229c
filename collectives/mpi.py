"""Processes that are MPI ranks.

Every bound closure is a transfer of four steps decided at binding: encode the operand (nothing, where it can be sent
as it lies), post MPI's call, decode what came (nothing, where MPI writes into the result), return the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collectives import layout
from collectives.activity import Activity, Waiting
from collectives.communicator import Call, Communicator, Start
from collectives.errors import CollectiveError, GroupError
from collectives.memory import keep_freed_memory
from collectives.mpi_check import CheckedCommunicator, patiently
from collectives.mpi_fold import bind_fold
from collectives.mpi_large import Transfer, piece_by_piece, within_limits
from collectives.mpi_request import MpiRequest
from collectives.mpi_types import Message, as_is, native_reduction
from collectives.mpi_watch import Watcher
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
    Shape,
    describe,
    short_list,
)

Array = npt.NDArray[Any]

_worlds: dict[int, MpiCommunicator] = {}
_PERMUTE_TAG = 0
_FIRST_CHANNEL_TAG = 1


class MpiCommunicator(Communicator):
    """A process group over an MPI communicator; ``MpiCommunicator.world()`` is where to begin."""

    def __init__(self, comm: MPI.Intracomm, members: Sequence[int], root: MpiCommunicator | None = None) -> None:
        self.comm = comm
        self.rank = comm.rank
        self.size = comm.size
        self.members = tuple(members)
        self._root = root or self
        self._groups: dict[tuple[int, ...], MpiCommunicator] = {}
        self.activity: Activity = root.activity if root else Activity()
        self.watcher: Watcher | None = root.watcher if root else None
        self._checked: CheckedCommunicator | None = None

    @classmethod
    def world(cls, comm: MPI.Intracomm = MPI.COMM_WORLD) -> MpiCommunicator:
        """All ranks of ``comm``, on a duplicate of it: no message of ours meets one of the caller's.

        Collective at the first call; the same object ever after.
        """
        found = _worlds.get(comm.handle)
        if found is None:
            keep_freed_memory()
            found = _worlds[comm.handle] = cls(comm.Dup(), range(comm.size))
            found._checked = CheckedCommunicator(found, found.members, comm.Dup())
            if found.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
                found.watcher = Watcher(comm.Dup(), found.activity)
        return found

    def checked(self) -> Communicator:
        root = self._root
        assert root._checked is not None
        if root.watcher is not None:
            root.watcher.suspicious = True
        return root._checked.group(self.members)

    def wait_for(self, done: Callable[[], bool], waiting: Waiting) -> None:
        """Waits step by step; raises CollectiveError when the watcher finds that it is in vain."""
        activity, watcher = self.activity, self.watcher
        activity.what = waiting
        activity.count += 1
        try:
            patiently(done, lambda: None if watcher is None else watcher.verdict)
        finally:
            activity.what = None

    def group(self, members: Sequence[int]) -> MpiCommunicator:
        members = tuple(members)
        root = self._root
        if members == root.members:
            return root
        found = root._groups.get(members)
        if found is None:
            if root.rank not in members:
                raise GroupError(f"process {root.rank} is not in the group {list(members)} that it asks for")
            with_members = root.comm.Get_group().Incl(list(members))
            others = tuple(rank for rank in members if rank != root.rank)
            root.activity.what = Waiting(f"the making of group {short_list(members)}", others)
            root.activity.count += 1
            found = MpiCommunicator(root.comm.Create_group(with_members), members, root)
            root.activity.what = None
            root._groups[members] = found
        return found

    def bind(self, operation: Operation, where: str = "") -> Call:
        shape, dtype = operation.result_shape(self.size), operation.dtype
        if self._is_local(operation):
            return _local(operation, shape)
        if isinstance(operation, AllReduce | ReduceScatter | CollectiveReduce) and self._folds(operation):
            return self._watched(bind_fold(self.comm, operation, shape), operation, where)
        transfer = within_limits(self._transfer(operation), operation, self.size)
        encode, receive_into, post, decode = transfer.encode, transfer.receive_into, transfer.post, transfer.decode
        in_place, empty, activity = transfer.in_place, np.empty, self.activity
        label = self.label(operation, where)

        def call(array: Array, out: Array | None = None) -> Array:
            if out is None:
                out = empty(shape, dtype)
            elif out is array:
                if in_place is not None:
                    activity.what = label
                    activity.count += 1
                    in_place(out)
                    activity.what = None
                    return out
                array = array.copy()
            send, receive = encode(array), receive_into(out)
            activity.what = label
            activity.count += 1
            post(send, receive)
            activity.what = None
            if decode is not None:
                decode(receive, out)
            return out

        return call

    def bind_start(self, operation: Operation, where: str = "") -> Start:
        shape, dtype = operation.result_shape(self.size), operation.dtype
        if self._is_local(operation):
            call = _local(operation, shape)
            return lambda array: MpiRequest.done(call(array))
        if isinstance(operation, AllReduce | ReduceScatter | CollectiveReduce) and self._folds(operation):
            transfer = self._gathered_fold(operation)
        else:
            transfer = within_limits(self._transfer(operation), operation, self.size)
        label, activity = self.label(operation, where), self.activity

        def start(array: Array) -> MpiRequest:
            out = np.empty(shape, dtype)
            send, receive = transfer.encode(array), transfer.receive_into(out)
            requests = transfer.start(send, receive)
            decode = partial(transfer.decode, receive) if transfer.decode else None
            return MpiRequest(requests, (array, send, receive), out, decode, activity, label)

        return start

    def send(self, array: Array, target: int, tag: int, where: str = "") -> None:
        data = array.copy().view(layout.wire_dtype(array.dtype))
        text = f"process {self.members[self.rank]} sends {_extent(array.shape, array.dtype)}"
        text += (f" at {where}" if where else "") + f" to process {self.members[target]}, which does not receive it"
        # Synchronous: it is complete when it has been received, so that one that nobody receives is noticed.
        MpiRequest.detach(self.comm.Issend(data, target, _FIRST_CHANNEL_TAG + tag), data, text)

    def receive(self, shape: Shape, dtype: npt.DTypeLike, source: int, tag: int, where: str = "") -> Array:
        return self.receive_by(self.wait_for, shape, dtype, source, tag, where)

    def receive_by(
        self,
        wait: Callable[[Callable[[], bool], Waiting], None],
        shape: Shape,
        dtype: npt.DTypeLike,
        source: int,
        tag: int,
        where: str,
    ) -> Array:
        """``receive``, waiting step by step in ``wait(done, waiting)``."""
        out = np.empty(shape, dtype)
        peer, status, found = self.members[source], MPI.Status(), []
        label = f"receive of {_extent(shape, out.dtype)} from process {peer}" + (f" at {where}" if where else "")

        def arrived() -> bool:
            message = self.comm.Improbe(source, _FIRST_CHANNEL_TAG + tag, status)
            if message is not None:
                found.append(message)
            return bool(found)

        wait(arrived, Waiting(label, (peer,)))
        if status.Get_count(MPI.BYTE) != out.nbytes:
            text = f"process {peer} sent {status.Get_count(MPI.BYTE)} bytes where {out.nbytes} are received"
            raise CollectiveError(f"{where}: {text}" if where else text)
        found[0].Recv([out.view(layout.wire_dtype(out.dtype)), MPI.BYTE])
        return out

    def exchange(self, value: object) -> list[Any]:
        activity = self.activity
        activity.what = Waiting("a set-up exchange", tuple(r for r in self.members if r != self.members[self.rank]))
        activity.count += 1
        values = self.comm.allgather(value)
        activity.what = None
        return values

    def label(self, operation: Operation, where: str) -> Waiting:
        """What the process is doing while in ``operation``, for whoever asks."""
        text = f"{describe(operation)} among {short_list(self.members)}" + (f" at {where}" if where else "")
        positions: Sequence[int | None] = range(self.size)
        if isinstance(operation, CollectivePermute):
            positions = (operation.source(self.rank), operation.target(self.rank))
        return Waiting(text, tuple(self.members[i] for i in positions if i not in (None, self.rank)))

    def _is_local(self, operation: Operation) -> bool:
        """Nothing has to travel. An operation is empty on all its processes or on none."""
        return not isinstance(operation, Barrier) and (self.size == 1 or not prod(operation.shape))

    def _folds(self, operation: AllReduce | ReduceScatter | CollectiveReduce) -> bool:
        rule = operation.arithmetic
        return native_reduction(rule) is None or (operation.reproducible and not rule.exact)

    def _watched(self, call: Call, operation: Operation, where: str) -> Call:
        label, activity = self.label(operation, where), self.activity

        def watched(array: Array, out: Array | None = None) -> Array:
            activity.what = label
            activity.count += 1
            result = call(array, out)
            activity.what = None
            return result

        return watched

    def _transfer(self, operation: Operation) -> Transfer:
        match operation:
            case AllReduce():
                return self._all_reduce(operation)
            case ReduceScatter():
                return self._reduce_scatter(operation)
            case CollectiveReduce():
                return self._reduce(operation)
            case AllGather():
                return self._all_gather(operation)
            case AllToAll():
                return self._all_to_all(operation)
            case CollectivePermute():
                return self._permute(operation)
            case CollectiveBroadcast():
                return self._broadcast(operation)
            case Barrier():
                return Transfer(_pass, _pass, lambda s, r: self.comm.Barrier(), lambda s, r: [self.comm.Ibarrier()])
        raise TypeError(f"no such collective: {operation!r}")

    def _all_reduce(self, operation: AllReduce) -> Transfer:
        rule, comm = operation.arithmetic, self.comm
        op, message = _native(operation)
        if rule.accumulator != rule.dtype:
            return Transfer(
                _widen(rule.accumulator),
                _anew(operation.shape, rule.accumulator),
                lambda s, r: comm.Allreduce(s, r, op),
                lambda s, r: [comm.Iallreduce(s, r, op)],
                _narrow,
            )
        encode, receive_into = _encoded(layout.contiguous, message), message
        return Transfer(
            encode,
            receive_into,
            lambda s, r: comm.Allreduce(s, r, op),
            lambda s, r: [comm.Iallreduce(s, r, op)],
            in_place=lambda out: comm.Allreduce(MPI.IN_PLACE, message(out), op),
        )

    def _reduce_scatter(self, operation: ReduceScatter) -> Transfer:
        rule, comm = operation.arithmetic, self.comm
        op, message = _native(operation)
        split = layout.splitter(operation.shape, operation.dim, self.size)
        widened = rule.accumulator != rule.dtype
        widen = _widen(rule.accumulator)
        shape = operation.result_shape(self.size)
        return Transfer(
            (lambda array: widen(split(array))) if widened else _encoded(split, message),
            _anew(shape, rule.accumulator) if widened else message,
            lambda s, r: comm.Reduce_scatter_block(s, r, op),
            lambda s, r: [comm.Ireduce_scatter_block(s, r, op)],
            _narrow if widened else None,
        )

    def _reduce(self, operation: CollectiveReduce) -> Transfer:
        rule, comm, root = operation.arithmetic, self.comm, operation.root
        op, message = _native(operation)
        widened = rule.accumulator != rule.dtype
        encode = _widen(rule.accumulator) if widened else _encoded(layout.contiguous, message)
        if self.rank == root:
            receive_into: Callable[[Array], Message] = _anew(operation.shape, rule.accumulator) if widened else message
            decode: Callable[[Message, Array], None] | None = _narrow if widened else None
        else:
            receive_into, decode = _nothing, _filler(operation.fill)
        return Transfer(
            encode,
            receive_into,
            lambda s, r: comm.Reduce(s, r, op, root),
            lambda s, r: [comm.Ireduce(s, r, op, root)],
            decode,
        )

    def _all_gather(self, operation: AllGather) -> Transfer:
        comm = self.comm
        wire = _wire(operation.dtype, 1, operation.shape, self.size, operation.shape, operation.dim)
        return Transfer(
            wire.encode,
            wire.receive_into,
            lambda s, r: comm.Allgather(s, r),
            lambda s, r: [comm.Iallgather(s, r)],
            wire.decode,
        )

    def _all_to_all(self, operation: AllToAll) -> Transfer:
        comm, n = self.comm, self.size
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

    def _permute(self, operation: CollectivePermute) -> Transfer:
        comm, fill = self.comm, operation.fill
        source, target = operation.source(self.rank), operation.target(self.rank)
        wire = _wire(operation.dtype, 1, operation.shape, 1, operation.shape, 0)
        if source == self.rank:
            return Transfer(_pass, _pass, _copy, _copied)
        to = MPI.PROC_NULL if target is None else target
        if source is None:
            filler = _filler(fill)
            if target is None:
                return Transfer(_pass, _nothing, lambda s, r: None, lambda s, r: [], filler)
            return Transfer(
                wire.encode,
                _nothing,
                lambda s, r: comm.Send(s, to, _PERMUTE_TAG),
                lambda s, r: [comm.Isend(s, to, _PERMUTE_TAG)],
                filler,
            )
        if target is None:
            return Transfer(
                _pass,
                wire.receive_into,
                lambda s, r: comm.Recv(r, source, _PERMUTE_TAG),
                lambda s, r: [comm.Irecv(r, source, _PERMUTE_TAG)],
                wire.decode,
            )
        return Transfer(
            wire.encode,
            wire.receive_into,
            lambda s, r: comm.Sendrecv(s, to, _PERMUTE_TAG, r, source, _PERMUTE_TAG),
            lambda s, r: [comm.Irecv(r, source, _PERMUTE_TAG), comm.Isend(s, to, _PERMUTE_TAG)],
            wire.decode,
        )

    def _broadcast(self, operation: CollectiveBroadcast) -> Transfer:
        comm, root = self.comm, operation.root
        wire = _wire(operation.dtype, 1, operation.shape, 1, operation.shape, 0)
        plain = layout.wire_dtype(operation.dtype)
        bcast = piece_by_piece(lambda buffer: comm.Bcast(buffer, root), operation)
        ibcast = piece_by_piece(lambda buffer: comm.Ibcast(buffer, root), operation)
        in_place = None if layout.is_packed(operation.dtype) else lambda out: bcast(out.view(plain))
        if self.rank == root:

            def broadcast_mine(send: tuple[Array, Message], out: Array) -> None:
                bcast(send[1])
                np.copyto(out, send[0])

            return Transfer(
                lambda array: (array, wire.encode(array)),
                _pass,
                broadcast_mine,
                lambda s, r: [*_copied(s[0], r), *ibcast(s[1])],
                in_place=in_place,
            )
        return Transfer(
            _pass,
            wire.receive_into,
            lambda s, r: bcast(r),
            lambda s, r: ibcast(r),
            wire.decode,
            in_place=in_place,
        )

    def _gathered_fold(self, operation: AllReduce | ReduceScatter | CollectiveReduce) -> Transfer:
        """A fold in group order, nonblocking: every process gathers all operands and folds them when they are there."""
        gathering = AllGather((1, *operation.shape), operation.dtype, 0)
        gather = within_limits(self._all_gather(gathering), gathering, self.size)
        stacked, rank = (self.size, *operation.shape), self.rank

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


def _wire(dtype: np.dtype[Any], sent: int, part: Shape, received: int, arriving: Shape, concat_dim: int) -> _Wire:
    """Moves ``sent`` contiguous chunks of shape ``part``; ``received`` chunks are concatenated along ``concat_dim``."""
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


def _local(operation: Operation, shape: Shape) -> Call:
    """A collective among one process, or of nothing."""

    def call(array: Array, out: Array | None = None) -> Array:
        if not array.size:
            return np.empty(shape, operation.dtype) if out is None else out
        result = operation.evaluate([array])[0]
        if out is not None:
            np.copyto(out, result)
            return out
        return result.copy() if np.may_share_memory(result, array) else result

    return call


def _native(operation: AllReduce | ReduceScatter | CollectiveReduce) -> tuple[MPI.Op, Callable[[Array], Message]]:
    native = native_reduction(operation.arithmetic)
    assert native is not None
    return native


def _extent(shape: Shape, dtype: np.dtype[Any]) -> str:
    return f"{'x'.join(map(str, shape)) or 'scalar'} {dtype}"


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


def _widen(accumulator: np.dtype[Any]) -> Callable[[Array], Message]:
    return lambda array: array.astype(accumulator, order="C")


def _anew(shape: Shape, dtype: np.dtype[Any]) -> Callable[[Array], Message]:
    return lambda out: np.empty(shape, dtype)


def _narrow(received: Array, out: Array) -> None:
    with np.errstate(all="ignore"):
        np.copyto(out, received, casting="unsafe")


def _filler(fill: int) -> Callable[[Message, Array], None]:
    return lambda received, out: out.fill(fill)
