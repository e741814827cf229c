"""State shared by processes that are threads: collectives in progress and messages in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from collectives.arrays import Array
from collectives.operations import Operation
from collectives.scheduler import Scheduler, Stopped
from collectives.system import usable_processors

#: Kind of a transfer, group, positions of sender and receiver, tag.
Key = tuple[str, tuple[int, ...], int, int, int]


class RendezvousRound:
    """One collective of one group, while its processes arrive."""

    __slots__ = ("arrays", "calls", "done", "missing", "results", "sleeping")

    def __init__(self, size: int) -> None:
        self.arrays: list[Array | None] = [None] * size
        self.calls: dict[int, tuple[Operation, str]] = {}
        self.missing = size
        self.results: Sequence[Array] = ()
        self.done = False
        self.sleeping: list[int] = []


class Group:
    """The collectives of a group. Nonblocking calls let one process be several rounds ahead of another."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self.rounds: deque[RendezvousRound] = deque()
        self.completed = 0
        self.arrived = [0] * len(members)

    def round(self, position: int) -> RendezvousRound:
        """Return the round that the process at ``position`` arrives at."""
        number = self.arrived[position]
        self.arrived[position] += 1
        while self.completed + len(self.rounds) <= number:
            self.rounds.append(RendezvousRound(len(self.members)))
        return self.rounds[number - self.completed]


@dataclass(frozen=True)
class Posted:
    """A message: array, description that the receiver must match, source location of the send."""

    array: Array
    label: str
    where: str


class Receive:
    """A pending receive: the message, if it has arrived, and the process that sleeps until then."""

    __slots__ = ("posted", "sleeper")

    def __init__(self) -> None:
        self.posted: Posted | None = None
        self.sleeper: int | None = None


class World:
    """The state shared by all processes of a grid."""

    def __init__(self, size: int, scheduler: Scheduler | None = None) -> None:
        self.size = size
        self.scheduler = scheduler or Scheduler(size, len(usable_processors()))
        self.groups: dict[tuple[int, ...], Group] = {}
        self._operations: dict[Operation, Operation] = {}
        self._known: dict[int, Operation] = {}
        self.mailbox: dict[Key, deque[Posted]] = {}
        self.pending: dict[Key, deque[Receive]] = {}

    def unreceived(self) -> list[str]:
        """Return messages on the transfers that were not received."""
        return [
            f"process {key[1][key[2]]} sends {posted.label}{at_place(posted.where)} to process {key[1][key[3]]}, "
            "which does not receive it"
            for key, waiting in self.mailbox.items()
            for posted in waiting
        ]

    def post(self, key: Key, posted: Posted) -> None:
        """Deliver ``posted`` to the oldest pending receive, or queue it."""
        with self.scheduler.lock:
            if self.scheduler.failure is not None:
                raise Stopped
            receives = self.pending.get(key)
            if not receives:
                self.mailbox.setdefault(key, deque()).append(posted)
                return
            receive = receives.popleft()
            receive.posted = posted
            if receive.sleeper is not None:
                self.scheduler.wake((receive.sleeper,))

    def receive(self, key: Key) -> Receive:
        """Post a receive; receives of a ``key`` match messages in the order posted."""
        receive = Receive()
        with self.scheduler.lock:
            waiting = self.mailbox.get(key)
            if waiting:
                receive.posted = waiting.popleft()
            else:
                self.pending.setdefault(key, deque()).append(receive)
        return receive

    def finish(self, receive: Receive, rank: int, label: str) -> Posted:
        """Block until the message of ``receive`` arrives, and return it; ``label`` describes the wait of ``rank``."""
        self.scheduler.lock.acquire()
        if receive.posted is None:
            receive.sleeper = rank
            self.scheduler.block(rank, label)
        else:
            self.scheduler.lock.release()
        assert receive.posted is not None
        return receive.posted

    def same(self, operation: Operation) -> Operation:
        """Return the canonical object of all operations equal to ``operation``."""
        known = self._known.get(id(operation))
        if known is None:
            known = self._operations.setdefault(operation, operation)
            if known is operation:  # kept alive, so that its id stays unique
                self._known[id(operation)] = operation
        return known


def at_place(where: str) -> str:
    """Return `` at file:line:column``, or ""."""
    return f" at {where}" if where else ""
