"""Processes that are MPI ranks.

Every bound closure is a transfer of four steps fixed at binding: encode the operand (no step if it can be sent as it
is), post the MPI call, decode the received data (no step if MPI writes into the result), return the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import prod
from time import monotonic

import numpy as np
from mpi4py import MPI

from collectives import failure
from collectives.agreement import Agreement
from collectives.arguments import as_members
from collectives.arrays import Array, DType
from collectives.communicator import SET_UP, BoundCollective, Communicator, Start, V
from collectives.memory import keep_freed_memory
from collectives.mpi import calls
from collectives.mpi.background import BackgroundRequest, runs_in_background
from collectives.mpi.background import start as start_in_background
from collectives.mpi.channels import MpiChannels
from collectives.mpi.check import CheckedCommunicator, patiently
from collectives.mpi.faults import fault_of
from collectives.mpi.host import HostMemory, goes_through_memory
from collectives.mpi.losses import garbage_is_loss
from collectives.mpi.meeting import meet
from collectives.mpi.request import MpiRequest
from collectives.mpi.transfer import Transfer
from collectives.mpi.watch import Watcher, warn
from collectives.one_thread import OneThread
from collectives.operations import (
    AllReduce,
    Barrier,
    CollectivePermute,
    Operation,
    filled,
)
from collectives.record.activity import Activity, SequenceCounter, Waiting
from collectives.record.calls import call_of, text_of
from collectives.record.recorder import RECORDER
from collectives.record.records import advice
from collectives.settings import WatchSettings, check_alike
from collectives.shapes import Shape
from collectives.states import short_list

_worlds: dict[int, MpiCommunicator] = {}

# From here on ranks may block on each other: a failing rank must end the job.
failure.install()


class MpiCommunicator(Communicator):
    """A process group over an MPI communicator; create the first one with ``MpiCommunicator.world()``."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        members: Sequence[int],
        root: MpiCommunicator | None = None,
        *,
        activity: Activity | None = None,
        apart: MPI.Intracomm | None = None,
    ) -> None:
        """``apart`` is the duplicate of ``comm`` that only the background thread uses, where there is one."""
        self.comm = comm
        self.rank = comm.rank
        self.size = comm.size
        self.members = tuple(members)
        self._root = root or self
        self._groups: dict[tuple[int, ...], MpiCommunicator] = {}
        self.threads = OneThread()
        self.activity: Activity = root.activity if root else activity or Activity()
        self.counter = self.activity.counter(self.members)
        self.channels = MpiChannels(comm, self.members, self.activity)
        self.watcher: Watcher | None = root.watcher if root else None
        self._checked: CheckedCommunicator | None = None
        self._always_checks = False
        self._apart = apart
        self._twin: MpiCommunicator | None = None
        self._memory: tuple[HostMemory | None] | None = None  # None until the first use
        #: Of the root: what has been compared with the other processes of which group.
        self._compared: set[tuple[tuple[int, ...], Operation]] = set()

    @classmethod
    def world(
        cls, comm: MPI.Intracomm = MPI.COMM_WORLD, what: str = "MpiCommunicator.world()", *, records: bool = True
    ) -> MpiCommunicator:
        """Return the communicator of all ranks of ``comm``, on a duplicate that isolates its messages.

        Collective at the first call, which messages name by ``what``; later calls return the same object. Without
        ``records`` the flight recorder stays attached to the previous communicator.
        """
        communicator = _worlds.get(comm.handle)
        if communicator is None:
            settings = WatchSettings.from_environment(os.environ)
            keep_freed_memory()
            activity = Activity()
            meet(comm, what, activity, settings, failure.fail if settings.abort else warn)
            check_alike(comm.allgather(settings.check))
            communicator = cls(comm.Dup(), range(comm.size), activity=activity, apart=_apart(comm))
            communicator._checked = CheckedCommunicator(communicator, communicator.members, communicator.comm)
            communicator._always_checks = settings.check
            if communicator.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
                communicator.watcher = Watcher(comm.Dup(), communicator.activity, settings)
                communicator.watcher.suspicious = settings.check
                failure.come_first()  # at exit the watcher waits for the other ranks
            if records and RECORDER.attach(activity, comm.rank, comm.size, settings.timeout):
                failure.record = communicator.record
            _worlds[comm.handle] = communicator
        return communicator

    @staticmethod
    def made_of(comm: MPI.Intracomm) -> MpiCommunicator | None:
        """Return the communicator that :meth:`world` has created for ``comm``, or None."""
        return _worlds.get(comm.handle)

    @staticmethod
    def retire(comm: MPI.Intracomm) -> None:
        """Revoke the communicator that :meth:`world` created for ``comm`` after a rank failure: blocked ranks get an
        error.

        Not collective. Needs a fault-tolerant MPI if there is more than one rank.
        """
        retired = _worlds.pop(comm.handle, None)
        if retired is not None:
            RECORDER.detach(retired.activity)
            if retired.watcher is not None:
                retired.watcher.stop()
            groups = (retired, *retired._groups.values())
            for group in groups:
                group.comm.Revoke()
                if group._apart is not None:
                    group._apart.Revoke()

    def record(self, reason: str) -> str:
        """Write the flight recordings of all processes, or only of this one without a watcher.

        Returns a line that names the folder, or "".
        """
        return advice(RECORDER.write(reason) if self.watcher is None else self.watcher.record(reason))

    def checked(self) -> Communicator:
        root = self._root
        assert root._checked is not None
        if root.watcher is not None:
            root.watcher.suspicious = True
        return root._checked.of(self.members)

    def compare(self, members: Sequence[int], operation: Operation, where: str = "") -> None:
        root, key = self._root, (tuple(members), operation)
        if root._checked is None or root._always_checks or key in root._compared:
            return
        if isinstance(operation, CollectivePermute):
            return  # each process may name its own pairs alone
        root._checked.of(key[0]).compare_call(operation, where)
        root._compared.add(key)

    def agree(self, agreement: Agreement) -> None:
        root = self._root
        assert root._checked is not None
        if self.size > 1:
            root._checked.of(self.members).agree(agreement)

    def set_timeout(self, seconds: float | None, abort: bool = False) -> None:
        if self.watcher is not None:
            self.watcher.timeout = self.watcher.timeout if seconds is None else seconds
            self.watcher.abort = self.watcher.abort or abort

    def wait_for(self, done: Callable[[], bool], waiting: Waiting, members: tuple[int, ...] = ()) -> None:
        """Poll ``done`` until it returns True; raise CommunicationError if the watcher finds a deadlock.

        One thread at a time waits for the group ``members`` (default: this one).
        """
        watcher, group = self.watcher, self._groups.get(members)
        with self._inside(waiting, self.activity.waits, None if group is None else group.threads):
            patiently(done, lambda: None if watcher is None else watcher.verdict)

    @contextmanager
    def _inside(self, waiting: Waiting, counter: SequenceCounter, threads: OneThread | None = None) -> Iterator[None]:
        """Return a context for a communication of the group, one thread at a time.

        ``counter`` counts it; ``threads`` replaces the group's own lock.
        """
        threads, activity = threads or self.threads, self.activity
        if not threads.enter(False):
            raise threads.crowded(waiting.text)
        event = activity.begin(waiting, counter)
        try:
            yield
            event.ended = monotonic()
        finally:
            activity.what = None
            threads.leave()

    def group(self, members: Sequence[int]) -> MpiCommunicator:
        members = tuple(members)
        root = self._root
        if members == root.members:
            return root
        communicator = root._groups.get(members)
        if communicator is None:
            members = as_members(members, root.size, root.rank)
            with_members = root.comm.Get_group().Incl(list(members))
            others = tuple(rank for rank in members if rank != root.rank)
            with root._inside(Waiting(f"the making of group {short_list(members)}", others), root.activity.waits):
                comm = root.comm.Create_group(with_members)
                communicator = MpiCommunicator(comm, members, root, apart=_apart(comm))
            root._groups[members] = communicator
        return communicator

    def bind(self, operation: Operation, where: str = "") -> BoundCollective:
        if self._root._always_checks:
            return self.checked().bind(operation, where)
        return self.bind_unchecked(operation, where)

    def bind_unchecked(self, operation: Operation, where: str = "") -> BoundCollective:
        """Return the closure without a check, even if the environment enables checks."""
        shape = operation.result_shape(self.size)
        if self._is_local(operation):
            return _local(operation, shape, self.rank)
        if goes_through_memory(operation, self.size):
            return self._on_host(operation, where)
        return self._posting(calls.blocking(self.comm, operation), operation, where)

    def _posting(self, transfer: Transfer, operation: Operation, where: str) -> BoundCollective:
        """Return the closure that executes the steps of ``transfer``."""
        encode, receive_into, post, decode = transfer.encode, transfer.receive_into, transfer.post, transfer.decode
        shape, dtype, in_place, empty = operation.result_shape(self.size), operation.dtype, transfer.in_place, np.empty
        label, comm, rank, activity = self.label(operation, where), self.comm, self.world_rank, self.activity
        counter = self._counter_of(label)
        threads, enter = self.threads, self.threads.enter
        is_first = True

        def call(array: Array, out: Array | None = None) -> Array:
            nonlocal is_first
            act = post
            if out is None:
                out = empty(shape, dtype)
            elif out is array:
                if in_place is None:
                    array = array.copy()
                else:
                    act = in_place
            send, receive = encode(array), receive_into(out)
            if not enter(False):
                raise threads.crowded(label.text)
            if is_first:
                is_first = False
                event = activity.begin(label, counter)
            else:  # inlined begin, in half the time
                activity.what = activity.last = event = activity.last.next
                event.waiting = label
                event.sequence = counter.count = counter.count + 1
                event.began = monotonic()
            try:
                act(send, receive)
                event.ended = monotonic()
            except MPI.Exception as error:
                raise fault_of(error, label, comm, rank) from error
            finally:
                activity.what = None
                threads.leave()
            if decode is not None:
                decode(receive, out)
            return out

        return call

    def _on_host(self, operation: AllReduce, where: str) -> BoundCollective:
        """Bind an all-reduce through shared memory if all ranks are on one host, otherwise by MPI.

        The first call decides, since binding is not collective.
        """
        chosen: BoundCollective | None = None

        def call(array: Array, out: Array | None = None) -> Array:
            nonlocal chosen
            if chosen is None:
                memory = self._host_memory()
                transfer = calls.blocking(self.comm, operation) if memory is None else memory.all_reduce(operation)
                chosen = self._posting(transfer, operation, where)
            return chosen(array, out)

        return call

    def _host_memory(self) -> HostMemory | None:
        if self._memory is None:
            with self.meeting(f"the sharing of memory among {short_list(self.members)}"), garbage_is_loss(self.comm):
                self._memory = (HostMemory.of(self.comm),)
        return self._memory[0]

    def bind_start(self, operation: Operation, where: str = "") -> Start:
        if self._root._always_checks:
            return self.checked().bind_start(operation, where)
        return self.bind_start_unchecked(operation, where)

    def bind_start_unchecked(self, operation: Operation, where: str = "") -> Start:
        """Return the nonblocking closure without a check, even if the environment enables checks."""
        shape, dtype = operation.result_shape(self.size), operation.dtype
        if self._is_local(operation):
            call = _local(operation, shape, self.rank)
            return lambda array: MpiRequest.done(call(array))
        if runs_in_background(operation, self.size):
            return self._in_background(operation, where)
        transfer = calls.nonblocking(self.comm, operation)
        label, activity, threads = self.label(operation, where), self.activity, self.threads
        comm, rank, counter = self.comm, self.world_rank, self._counter_of(label)

        def start(array: Array) -> MpiRequest:
            out = np.empty(shape, dtype)
            send, receive = transfer.encode(array), transfer.receive_into(out)
            if not threads.enter(False):
                raise threads.crowded(label.text)
            event = activity.start(label, counter)
            try:
                requests = transfer.start(send, receive)
            except MPI.Exception as error:
                raise fault_of(error, label, comm, rank) from error
            finally:
                threads.leave()
            decode = partial(transfer.decode, receive) if transfer.decode else None
            fault = partial(fault_of, waiting=label, comm=comm, process=rank)
            return MpiRequest(requests, (array, send, receive), out, decode, activity, event, fault)

        return start

    def _in_background(self, operation: Operation, where: str) -> Start:
        """Run the blocking call in the background thread, since MPI's nonblocking one associates differently."""
        label = self.label(operation, where)
        if self._apart is None:
            call = self.bind_unchecked(operation, where)
            return lambda array: MpiRequest.done(call(array))
        bound: BoundCollective | None = None

        def reduce(array: Array, out: Array | None = None) -> Array:
            nonlocal bound
            if bound is None:
                bound = self._in_thread().bind(operation, where)
            return bound(array, out)

        def start(array: Array) -> BackgroundRequest:
            event = self.activity.start(label, self.counter)
            return start_in_background(reduce, array, self.activity, event)

        return start

    def _in_thread(self) -> MpiCommunicator:
        """Return the duplicate of the group that only the background thread uses."""
        if self._twin is None:
            assert self._apart is not None
            self._twin = MpiCommunicator(self._apart, self.members, activity=Activity(capacity=1))
        return self._twin

    def _send(self, array: Array, target: int, tag: int, where: str) -> None:
        self.channels.send(array, target, tag, where)

    def _receive(self, shape: Shape, dtype: DType, source: int, tag: int, where: str) -> Array:
        if self._root._always_checks:
            return self.checked()._receive(shape, dtype, source, tag, where)
        return self.channels.receive(self.wait_for, shape, dtype, source, tag, where)

    def allgather_object(self, value: V, what: str = SET_UP) -> list[V]:
        with self.meeting(what), garbage_is_loss(self.comm):
            return self.comm.allgather(value)

    def finish(self, what: str) -> None:
        watcher = self._root.watcher
        if watcher is not None:
            with watcher.finishing():
                # On the watcher's communicator: no collective of a program that is still running can match it.
                self._root.wait_for(watcher.comm.Ibarrier().Test, Waiting(what, self._root.others, finished=True))

    def meeting(self, text: str) -> AbstractContextManager[None]:
        """Return a context for direct MPI calls that are collective over the group; messages name them ``text``."""
        return self._inside(self._waiting(text), self.counter)

    def waiting(self, text: str) -> AbstractContextManager[None]:
        """Return a context for a wait on some processes outside of this group's calls; messages name it ``text``."""
        return self._inside(Waiting(text, ()), self.activity.waits)

    def _waiting(self, text: str) -> Waiting:
        """Return the `Waiting` for a call that is collective over the group."""
        return Waiting(text, self.others, self.members)

    def label(self, operation: Operation, where: str) -> Waiting:
        """Return the `Waiting` for ``operation``, which the watcher reports to other ranks."""
        positions: Sequence[int | None] = range(self.size)
        if isinstance(operation, CollectivePermute):
            positions = (operation.source(self.rank), operation.target(self.rank))
        ranks = tuple(self.members[i] for i in positions if i is not None and i != self.rank)
        call = call_of(operation, self.members, self.rank, where)
        links = tuple(pair for pair in call.pairs if self.world_rank in pair)
        return Waiting(text_of(call, self.members, where), ranks, call.members, call=call, links=links)

    def _counter_of(self, label: Waiting) -> SequenceCounter:
        """Return the counter for ``label``: of its pairs for a permutation, otherwise of the group."""
        return self.activity.counter(label.call.pairs) if label.call and label.call.pairs else self.counter

    def _is_local(self, operation: Operation) -> bool:
        """Return whether no communication is needed. An operation is empty on all its processes or on none."""
        if isinstance(operation, CollectivePermute):
            ends = {operation.source(self.rank), operation.target(self.rank)}
            return ends <= {None, self.rank} or not prod(operation.shape)
        return not isinstance(operation, Barrier) and (self.size == 1 or not prod(operation.shape))


def _apart(comm: MPI.Intracomm) -> MPI.Intracomm | None:
    """Return a duplicate of ``comm`` for collectives in the background thread, or None if none run there. Collective.

    It is made with the group: MPI_Comm_idup would avoid waiting, but in Open MPI its steps and other nonblocking
    collectives on ``comm`` match each other's messages.
    """
    return comm.Dup() if comm.size > 2 and MPI.Query_thread() == MPI.THREAD_MULTIPLE else None


def _local(operation: Operation, shape: Shape, rank: int) -> BoundCollective:
    """Return a collective without communication: of one process, of empty arrays, or a permutation without a peer."""
    is_outside = isinstance(operation, CollectivePermute) and operation.source(rank) is None

    def call(array: Array, out: Array | None = None) -> Array:
        if not array.size:
            return np.empty(shape, operation.dtype) if out is None else out
        if isinstance(operation, CollectivePermute):
            result = filled(operation) if is_outside else array
        else:
            result = operation.evaluate([array])[0]
        if out is not None:
            np.copyto(out, result)
            return out
        return result.copy() if np.may_share_memory(result, array) else result

    return call
