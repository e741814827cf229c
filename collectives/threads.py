"""Processes that are threads of one Python process.

The last process of a group to arrive at a collective carries it out for all, by reading the specification directly
(``Operation.evaluate``); the others sleep until their results are there. Reductions fold in group order, so that they
are reproducible always. Mismatches and deadlocks are found as they arise.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from collectives.communicator import Call, Communicator, Start
from collectives.errors import CollectiveError, GroupError
from collectives.operations import Barrier, CollectivePermute, Operation, Shape, describe, filled, short_list
from collectives.scheduler import Scheduler, Stopped
from collectives.states import mismatch_text, states_text

Array = npt.NDArray[Any]
T = TypeVar("T")
#: What a transfer is for, the group, the positions of sender and receiver, the tag.
_Key = tuple[str, tuple[int, ...], int, int, int]

log = logging.getLogger("collectives")

_TICK = 0.02  # seconds between two looks at whether anything moves
_MOST_TOLD = 20
_GRACE = 5.0  # seconds that processes are given to end after a failure


class _Round:
    """One collective of one group, while its processes arrive."""

    __slots__ = ("arrays", "calls", "done", "missing", "results", "sleeping")

    def __init__(self, size: int) -> None:
        self.arrays: list[Array | None] = [None] * size
        self.calls: dict[int, tuple[Operation, str]] = {}
        self.missing = size
        self.results: Sequence[Array] = ()
        self.done = False
        self.sleeping: list[int] = []


class _Group:
    """What the processes of a group share. A process may be rounds ahead of another by nonblocking calls."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self.rounds: deque[_Round] = deque()
        self.completed = 0
        self.arrived = [0] * len(members)

    def round(self, position: int) -> _Round:
        """The round that the process at ``position`` arrives at."""
        number = self.arrived[position]
        self.arrived[position] += 1
        while self.completed + len(self.rounds) <= number:
            self.rounds.append(_Round(len(self.members)))
        return self.rounds[number - self.completed]


@dataclass(frozen=True)
class _Posted:
    """An array on its way, what its receiver must expect, and where it was sent."""

    array: Array
    label: str
    where: str


class World:
    """What all processes of a grid share."""

    def __init__(self, size: int, limit: int | None = None) -> None:
        self.size = size
        self.scheduler = Scheduler(size, limit or len(os.sched_getaffinity(0)))
        self.groups: dict[tuple[int, ...], _Group] = {}
        self._operations: dict[Operation, Operation] = {}
        self._known: dict[int, Operation] = {}
        self.mail: dict[_Key, deque[_Posted]] = {}
        self.expecting: dict[_Key, int] = {}

    def unreceived(self) -> list[str]:
        """Transfers that nobody has received."""
        return [
            f"process {key[1][key[2]]} sends {posted.label}{_at(posted.where)} to process {key[1][key[3]]}, "
            "which does not receive it"
            for key, letters in self.mail.items()
            for posted in letters
        ]

    def same(self, operation: Operation) -> Operation:
        """The one object that stands for all operations equal to ``operation``."""
        found = self._known.get(id(operation))
        if found is None:
            found = self._operations.setdefault(operation, operation)
            if found is operation:  # kept, so that its id is its own
                self._known[id(operation)] = operation
        return found


class ThreadCommunicator(Communicator):
    """A process group among the threads of a ``World``."""

    def __init__(self, world: World, members: tuple[int, ...], position: int) -> None:
        self.world = world
        self.rank = position
        self.size = len(members)
        self.members = members
        self._group = world.groups.setdefault(members, _Group(members))
        self._groups: dict[tuple[int, ...], ThreadCommunicator] = {}

    def group(self, members: Sequence[int]) -> ThreadCommunicator:
        members = tuple(members)
        found = self._groups.get(members)
        if found is None:
            if self.world_rank not in members:
                raise GroupError(f"process {self.world_rank} is not in the group {list(members)} that it asks for")
            found = ThreadCommunicator(self.world, members, members.index(self.world_rank))
            self._groups[members] = found
            found._groups = self._groups
        return found

    def outside(self) -> AbstractContextManager[None]:
        return self.world.scheduler.outside()

    def bind(self, operation: Operation, where: str = "") -> Call:
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
        operation.result_shape(self.size)  # raises where the shapes do not fit the group
        if self.size == 1 and not isinstance(operation, Barrier):
            return lambda array: _Done(_own(operation.evaluate([array])[0], array))
        if isinstance(operation, CollectivePermute):
            return self._permute(operation, where)
        label = self._label(operation, where)

        def start(array: Array) -> _Ticket:
            return _Ticket(self, self._arrive(operation, where, array), label)

        return start

    def _label(self, operation: Operation, where: str) -> str:
        return f"{describe(operation)} among {short_list(self.members)}" + (f" at {where}" if where else "")

    def _arrive(self, operation: Operation, where: str, array: Array) -> _Round:
        scheduler, group = self.world.scheduler, self._group
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

    def _complete(self, here: _Round) -> None:
        operation = here.calls[self.rank][0]
        if any(called is not operation for called, _ in here.calls.values()):
            labels = {self.members[position]: self._label(*called) for position, called in here.calls.items()}
            raise CollectiveError(mismatch_text(labels))
        arrays = [array for array in here.arrays if array is not None]
        here.results = _detached(operation.evaluate(arrays), arrays)
        scheduler = self.world.scheduler
        with scheduler.lock:
            here.done = True
            scheduler.wake(here.sleeping)

    def _permute(self, operation: CollectivePermute, where: str) -> Start:
        source, target = operation.source(self.rank), operation.target(self.rank)
        label = describe(operation)

        def start(array: Array) -> _Letter | _Done:
            if target is not None:
                self._post(("permute", self.members, self.rank, target, 0), _Posted(array.copy(), label, where))
            if source is None:
                return _Done(filled(operation))
            return _Letter(self, ("permute", self.members, source, self.rank, 0), label, where)

        return start

    def send(self, array: Array, target: int, tag: int, where: str = "") -> None:
        label = f"a transfer of {'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype}"
        self._post(("channel", self.members, self.rank, target, tag), _Posted(array.copy(), label, where))

    def receive(self, shape: Shape, dtype: npt.DTypeLike, source: int, tag: int, where: str = "") -> Array:
        label = f"a transfer of {'x'.join(map(str, shape)) or 'scalar'} {np.dtype(dtype)}"
        return _Letter(self, ("channel", self.members, source, self.rank, tag), label, where).wait()

    def _post(self, key: _Key, posted: _Posted) -> None:
        scheduler = self.world.scheduler
        with scheduler.lock:
            if scheduler.failure is not None:
                raise Stopped
            self.world.mail.setdefault(key, deque()).append(posted)
            sleeper = self.world.expecting.pop(key, None)
            if sleeper is not None:
                scheduler.wake((sleeper,))

    def _collect(self, key: _Key, label: str) -> _Posted:
        scheduler, rank = self.world.scheduler, self.world_rank
        scheduler.lock.acquire()
        letters = self.world.mail.setdefault(key, deque())
        if not letters:
            self.world.expecting[key] = rank
            scheduler.block(rank, label)
        else:
            scheduler.lock.release()
        return letters.popleft()

    def exchange(self, value: object) -> list[Any]:
        box = np.empty((), object)
        box[()] = value
        here = self._arrive(_EXCHANGE, "", box)
        _Ticket(self, here, "a set-up exchange").finish()
        return [array[()] for array in here.arrays if array is not None]


class _Exchange(Operation):
    name = "exchange"

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return ()


_EXCHANGE = _Exchange((), np.dtype(object))


class _Ticket:
    """A process's part in a round."""

    __slots__ = ("_communicator", "_label", "_round")

    def __init__(self, communicator: ThreadCommunicator, here: _Round, label: str) -> None:
        self._communicator, self._round, self._label = communicator, here, label

    def finish(self) -> None:
        """Waits until the round is complete."""
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


class _Letter:
    """A message on its way to this process."""

    __slots__ = ("_communicator", "_key", "_label", "_where")

    def __init__(self, communicator: ThreadCommunicator, key: _Key, label: str, where: str) -> None:
        self._communicator, self._key, self._label, self._where = communicator, key, label, where

    def wait(self) -> Array:
        members = self._communicator.members
        sender, receiver = members[self._key[2]], self._communicator.world_rank
        expected = f"{self._label}{_at(self._where)}"
        posted = self._communicator._collect(self._key, f"{expected}, for process {sender}")
        if posted.label != self._label:
            raise CollectiveError(
                f"process {sender} sends what process {receiver} does not expect:\n"
                f"  process {sender}: {posted.label}{_at(posted.where)}\n  process {receiver}: {expected}"
            )
        return posted.array


class _Done:
    """A collective that needed nobody else."""

    __slots__ = ("_result",)

    def __init__(self, result: Array) -> None:
        self._result = result

    def wait(self) -> Array:
        return self._result


def _at(where: str) -> str:
    return f" at {where}" if where else ""


def _own(result: Array, operand: Array) -> Array:
    return result.copy() if np.may_share_memory(result, operand) else result


def _detached(results: Sequence[Array], arrays: Sequence[Array]) -> Sequence[Array]:
    """Results that stay as they are when their owners go on to overwrite the operands."""
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
) -> list[T]:
    """Runs ``process(communicator)`` as ``size`` processes; their results in rank order.

    The first exception of any process stops all of them and is raised, with a note that names the process. A process
    that waits longer than ``timeout`` seconds while others compute is reported by a warning, again every ``timeout``
    seconds; ``abort`` makes it a CollectiveError.
    """
    world = World(size)
    scheduler = world.scheduler
    members = tuple(range(size))
    results: list[Any] = [None] * size

    def body(rank: int) -> None:
        try:
            scheduler.enter(rank)
            results[rank] = process(ThreadCommunicator(world, members, rank))
        except Stopped:
            pass
        except BaseException as error:  # whatever it is, it ends the grid and is raised by run
            scheduler.fail(error, rank)
        finally:
            scheduler.finish(rank)

    threads = [threading.Thread(target=body, args=(rank,), name=f"process-{rank}", daemon=True) for rank in members]
    for thread in threads:
        thread.start()
    scheduler.start()
    try:
        _watch(scheduler, threads, timeout, abort)
    except BaseException as error:
        scheduler.fail(error)
        _join(threads, _GRACE)
        raise
    if scheduler.failure is not None:
        if scheduler.failed_rank is not None:
            scheduler.failure.add_note(f"in process {scheduler.failed_rank}")
        raise scheduler.failure
    lost = world.unreceived()
    if lost:
        raise CollectiveError("\n".join(lost[:_MOST_TOLD]))
    return results


def _watch(scheduler: Scheduler, threads: list[threading.Thread], timeout: float, abort: bool) -> None:
    """Waits for all threads; lends turns where those who have them stand still, and tells who waits too long."""
    alive, turns, next_report = deque(threads), -1, time.monotonic() + timeout
    failed_at: float | None = None
    while alive:
        alive[0].join(_TICK)
        while alive and not alive[0].is_alive():
            alive.popleft()
        now = time.monotonic()
        if scheduler.failure is not None:
            failed_at = failed_at or now
            if now - failed_at > _GRACE:
                return
        if scheduler.turns == turns and scheduler.starved:
            scheduler.lend()
        turns = scheduler.turns
        if now > next_report:
            next_report = now + _report(scheduler, now, timeout, abort)


def _report(scheduler: Scheduler, now: float, timeout: float, abort: bool) -> float:
    """Tells of processes that wait longer than ``timeout``; seconds until the next look."""
    waits = {rank: now - scheduler.since[rank] for rank, what in enumerate(scheduler.waiting)
             if what is not None and what != "has ended"}  # fmt: skip
    longest = max(waits.values(), default=0.0)
    if longest < timeout:
        return timeout - longest
    states = {
        rank: what if what == "has ended" else f"waits {waits[rank]:.0f} s in {what}" if rank in waits else "computes"
        for rank, what in enumerate(scheduler.waiting)
    }
    text = f"a process has waited {longest:.0f} s\n{states_text(states)}"
    if abort:
        raise CollectiveError(text)
    log.warning("%s", text)
    return timeout


def _join(threads: list[threading.Thread], seconds: float) -> None:
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def solitary() -> ThreadCommunicator:
    """The communicator of a process that is alone."""
    return ThreadCommunicator(World(1), (0,), 0)
