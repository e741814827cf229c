"""Processes that are threads of one Python process.

The last process of a group to arrive at a collective computes it for all by ``Operation.evaluate``; the others sleep
until the results are available. Reductions fold in group order and are always reproducible. Mismatches and deadlocks
are detected immediately.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from collectives.arguments import as_members
from collectives.arrays import Array, DType
from collectives.communicator import SET_UP, BoundCollective, Communicator, Completed, Start, V
from collectives.errors import CommunicationError
from collectives.exploration import explored
from collectives.operations import Barrier, CollectivePermute, Operation, describe, filled
from collectives.rendezvous import Group, Key, Posted, RendezvousRound, World, at_place
from collectives.scheduler import Scheduler, Stopped
from collectives.shapes import Shape, extent_text
from collectives.stacked import Stacks
from collectives.states import mismatch_text, short_list
from collectives.threads_watch import end, stop, watch

T = TypeVar("T")
S = TypeVar("S")

_MOST_SHOWN = 20


class ThreadCommunicator(Communicator):
    """A process group among the threads of a ``World``."""

    def __init__(self, world: World, members: tuple[int, ...], position: int) -> None:
        self.world = world
        self.rank = position
        self.size = len(members)
        self.members = members
        self._group = world.groups.setdefault(members, Group(members))
        self._groups: dict[tuple[int, ...], ThreadCommunicator] = {}

    def group(self, members: Sequence[int]) -> ThreadCommunicator:
        members = tuple(members)
        communicator = self._groups.get(members)
        if communicator is None:
            members = as_members(members, self.world.size, self.world_rank)
            communicator = ThreadCommunicator(self.world, members, members.index(self.world_rank))
            self._groups[members] = communicator
            communicator._groups = self._groups
        return communicator

    def outside(self) -> AbstractContextManager[None]:
        return self.world.scheduler.outside()

    def bind(self, operation: Operation, where: str = "") -> BoundCollective:
        start = self.bind_start(operation, where)

        def call(array: Array, out: Array | None = None) -> Array:
            result = start(array).wait()
            if out is None:
                return result
            np.copyto(out, result)
            return out

        return call

    def bind_start(self, operation: Operation, where: str = "") -> Start:
        operation = self.world.same(operation)
        operation.result_shape(self.size)  # raises if the operand does not fit the group
        if self.size == 1 and not isinstance(operation, Barrier):
            return lambda array: Completed(_own(operation.evaluate([array])[0], array))
        if isinstance(operation, CollectivePermute):
            return self._permute(operation, where)
        label = self._label(operation, where)

        def start(array: Array) -> _Ticket:
            return _Ticket(self, self._arrive(operation, where, array), label)

        return start

    def _label(self, operation: Operation, where: str) -> str:
        return f"{describe(operation)} among {short_list(self.members)}" + (f" at {where}" if where else "")

    def _arrive(self, operation: Operation, where: str, array: Array) -> RendezvousRound:
        scheduler, group = self.world.scheduler, self._group
        scheduler.turn(self.world_rank, self._label(operation, where))
        with scheduler.lock:
            if scheduler.failure is not None:
                raise Stopped
            here = group.round(self.rank)
            here.arrays[self.rank] = array
            here.calls[self.rank] = (operation, where)
            here.missing -= 1
            if here.missing:
                return here
            group.rounds.popleft()
            group.completed += 1
        self._complete(here)
        return here

    def _complete(self, here: RendezvousRound) -> None:
        operation = here.calls[self.rank][0]
        if any(called is not operation for called, _ in here.calls.values()):
            labels = {self.members[position]: self._label(*called) for position, called in here.calls.items()}
            raise CommunicationError(mismatch_text(labels))
        arrays = [array for array in here.arrays if array is not None]
        here.results = detached(operation.evaluate(arrays), arrays)
        scheduler = self.world.scheduler
        with scheduler.lock:
            here.done = True
            scheduler.wake(here.sleeping)

    def _permute(self, operation: CollectivePermute, where: str) -> Start:
        source, target = operation.source(self.rank), operation.target(self.rank)
        label = describe(operation.linked(self.rank))

        def start(array: Array) -> _PendingReceive | Completed[Array]:
            self.world.scheduler.turn(self.world_rank, label)
            if target is not None:
                self.world.post(("permute", self.members, self.rank, target, 0), Posted(array.copy(), label, where))
            if source is None:
                return Completed(filled(operation))
            return _PendingReceive(self, ("permute", self.members, source, self.rank, 0), label, where)

        return start

    def _send(self, array: Array, target: int, tag: int, where: str) -> None:
        label = f"a transfer of {extent_text(array.shape, array.dtype)}"
        self.world.scheduler.turn(self.world_rank, f"{label} to process {self.members[target]}{at_place(where)}")
        self.world.post(("channel", self.members, self.rank, target, tag), Posted(array.copy(), label, where))

    def _receive(self, shape: Shape, dtype: DType, source: int, tag: int, where: str) -> Array:
        label = f"a transfer of {extent_text(shape, np.dtype(dtype))}"
        self.world.scheduler.turn(self.world_rank, f"{label} from process {self.members[source]}{at_place(where)}")
        return _PendingReceive(self, ("channel", self.members, source, self.rank, tag), label, where).wait()

    def allgather_object(self, value: V, what: str = SET_UP) -> list[V]:
        gathered: list[V] = self.exchange(_everything, value, "")
        return gathered

    def exchange(self, act: Callable[[list[Any]], Sequence[Any]], value: object, where: str) -> Any:
        """Return this process's entry of `act(values)`, which the last process to arrive calls with the values of all.

        All processes of the group must pass the same `act`.
        """
        operation = self.world.same(_Exchange((), np.dtype(object), act))
        box = np.empty((), object)
        box[()] = value
        here = self._arrive(operation, where, box)
        _Ticket(self, here, self._label(operation, where)).finish()
        return here.results[self.rank]


@dataclass(frozen=True)
class _Exchange(Operation, name="exchange"):
    """A function of the objects of all processes, which returns one for each."""

    act: Callable[[list[Any]], Sequence[Any]] = field(repr=False)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Any]:
        return self.act([array.item() for array in arrays])

    def stacked(self, x: S, extent: tuple[int, int, int], on: Stacks[S]) -> S:
        return x


def _everything(values: list[T]) -> list[list[T]]:
    """Return all values for each process."""
    return [values] * len(values)


class _Ticket:
    """A process's handle of a round."""

    __slots__ = ("_communicator", "_label", "_round")

    def __init__(self, communicator: ThreadCommunicator, here: RendezvousRound, label: str) -> None:
        self._communicator, self._round, self._label = communicator, here, label

    def finish(self) -> None:
        """Block until the round is complete."""
        here, communicator = self._round, self._communicator
        if here.done:
            return
        scheduler = communicator.world.scheduler
        scheduler.lock.acquire()
        if here.done:
            scheduler.lock.release()
            return
        here.sleeping.append(communicator.world_rank)
        missing = [communicator.members[i] for i, array in enumerate(here.arrays) if array is None]
        scheduler.block(communicator.world_rank, f"{self._label}, for {missing[:8]}{'...' * (len(missing) > 8)}")

    def wait(self) -> Array:
        self.finish()
        return self._round.results[self._communicator.rank].copy()


class _PendingReceive:
    """A pending transfer to this process."""

    __slots__ = ("_communicator", "_expected", "_label", "_receive", "_sender")

    def __init__(self, communicator: ThreadCommunicator, key: Key, label: str, where: str) -> None:
        self._communicator, self._label, self._expected = communicator, label, f"{label}{at_place(where)}"
        self._sender = communicator.members[key[2]]
        self._receive = communicator.world.receive(key)

    def wait(self) -> Array:
        sender, receiver = self._sender, self._communicator.world_rank
        label = f"{self._expected}, for process {sender}"
        posted = self._communicator.world.finish(self._receive, receiver, label)
        if posted.label != self._label:
            raise CommunicationError(
                f"process {sender} sends what process {receiver} does not expect:\n"
                f"  process {sender}: {posted.label}{at_place(posted.where)}\n  process {receiver}: {self._expected}"
            )
        return posted.array


def _own(result: Array, operand: Array) -> Array:
    return result.copy() if np.may_share_memory(result, operand) else result


def detached(results: Sequence[Array], arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the results, copied where they are operands, which their owners may overwrite."""
    operands = {id(array) for array in arrays}
    copies: dict[int, Array] = {}
    return [
        copies.setdefault(id(r), r.copy()) if id(r) in operands and id(r) not in copies else copies.get(id(r), r)
        for r in results
    ]


def run(
    size: int,
    process: Callable[[ThreadCommunicator], T],
    *,
    timeout: float = 60.0,
    abort: bool = False,
    scheduler: Scheduler | None = None,
) -> list[T]:
    """Run ``process(communicator)`` as ``size`` processes, and return their results in rank order.

    The first exception of any process stops all of them and is raised, with a note that names the process. A process
    that is blocked longer than ``timeout`` seconds while others compute is reported by a warning, repeated every
    ``timeout`` seconds; ``abort`` makes it a CommunicationError. ``scheduler`` decides the order of steps: by default a
    runnable process is chosen, or the order of an exploration.
    """
    world = World(size, scheduler or explored(size))
    scheduler = world.scheduler
    members = tuple(range(size))
    results: list[Any] = [None] * size

    def body(rank: int) -> None:
        try:
            scheduler.enter(rank)
            results[rank] = process(ThreadCommunicator(world, members, rank))
        except Stopped:
            scheduler.stopped.add(rank)
        except BaseException as error:  # any exception ends the grid and is raised by run
            scheduler.fail(error, rank)
        finally:
            scheduler.finish(rank)

    threads = [threading.Thread(target=body, args=(rank,), name=f"process-{rank}", daemon=True) for rank in members]
    try:
        for thread in threads:
            thread.start()
        scheduler.start()
        watch(scheduler, threads, timeout, abort)
    except BaseException as error:
        try:
            scheduler.fail(error)
            for rank, thread in enumerate(threads):
                if thread.ident is None:  # an interrupt between two starts
                    scheduler.finish(rank)
            stop(scheduler, threads)
        finally:  # a second interrupt does not wait for the threads, but stops those that compute
            scheduler.fail(error)
            end(scheduler, threads)
        raise
    finally:
        for rank, thread in enumerate(threads):
            if scheduler.has_ended(rank) and thread.is_alive():
                thread.join()
    if scheduler.failure is not None:
        if scheduler.failed_rank is not None:
            scheduler.failure.add_note(f"in process {scheduler.failed_rank}")
        raise scheduler.failure
    lost = world.unreceived()
    if lost:
        raise CommunicationError("\n".join(lost[:_MOST_SHOWN]))
    return results


def single_process() -> ThreadCommunicator:
    """Return the communicator of a group of one process."""
    return ThreadCommunicator(World(1), (0,), 0)
