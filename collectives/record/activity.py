"""The communication that a process is in, and a ring buffer of its last ones.

Read by the watchdog while the program runs (`collectives.mpi.watch`) and by the flight recorder after a failure
(`collectives.record.recorder`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic

from collectives.arrays import DType
from collectives.shapes import Shape

#: Capacity of a process's ring of communications.
CAPACITY = 2000
#: Sources and targets of a permutation, as ranks.
Pairs = tuple[tuple[int, int], ...]
#: What a counter is kept for: the ranks of a process group, or the pairs of a permutation.
Counted = tuple[int, ...] | Pairs


@dataclass(frozen=True)
class Call:
    """A collective or a transfer as the program calls it.

    ``name`` is the operation's name without the dialect, or ``send`` or ``recv``; ``text`` describes it; ``where`` is
    its source location. ``members`` are the ranks of the process group; for a transfer its source and target, and
    ``number`` counts the transfers in ``channel``. ``pairs`` are the (source, target) ranks of a permutation, whose
    ends are ``members``.
    """

    name: str
    text: str
    shape: Shape
    result: Shape
    dtype: DType
    members: tuple[int, ...]
    where: str
    channel: int | None = None
    number: int = 0
    pairs: Pairs = ()


@dataclass(frozen=True)
class Waiting:
    """A communication that a process blocks in, and the ranks that it depends on.

    ``group`` are the ranks of the process group of a collective; ``sequence`` is its number in the group, or among
    permutations of the same pairs. ``settles`` marks a rendezvous of all ranks of the job: a rank that blocks in
    anything else will not arrive. ``finished`` marks a rank whose program has ended: it takes part in no more of the
    program's communications. ``links`` are the pairs of a permutation that contain this rank. ``call`` is the program's
    call, if it is one; it is not sent to other processes.
    """

    text: str
    ranks: tuple[int, ...]
    group: tuple[int, ...] = ()
    sequence: int = 0
    settles: bool = False
    call: Call | None = None
    finished: bool = False
    links: Pairs = ()

    def at(self, sequence: int) -> Waiting:
        """Return a copy with the sequence number `sequence`."""
        return replace(self, sequence=sequence)

    def __reduce__(self) -> tuple[type[Waiting], tuple[object, ...]]:
        return Waiting, (
            self.text,
            self.ranks,
            self.group,
            self.sequence,
            self.settles,
            None,
            self.finished,
            self.links,
        )


class SequenceCounter:
    """Counts the collectives that a process has begun in one group, or the permutations of the same pairs."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Event:
    """A communication that began at ``began`` seconds of ``time.monotonic``, with number ``sequence`` in its group.

    ``ended`` is less than ``began`` until it completes. ``next`` is the next slot of the ring, the oldest event.
    """

    __slots__ = ("began", "ended", "next", "sequence", "waiting")

    def __init__(self) -> None:
        self.waiting: Waiting | None = None
        self.sequence = 0
        self.began = 0.0
        self.ended = -1.0
        self.next = self

    @property
    def key(self) -> tuple[Event, Waiting | None, int]:
        """Identify the event even after its slot of the ring is reused."""
        return self, self.waiting, self.sequence


class Activity:
    """The communications of one process: ``what`` is the one it blocks in, or None.

    ``last`` is the latest slot of a ring whose next slot is the oldest. A collective costs a few attribute stores and
    two reads of the clock. ``waits`` counts communications that are not collectives of a group.
    """

    __slots__ = ("_called", "_counters", "_resumed", "compares", "firsts", "last", "waits", "what")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.what: Event | None = None
        self.waits = SequenceCounter()
        #: The first call of each bound collective and its sequence number, until a consumer removes it.
        self.firsts: deque[tuple[Waiting, int]] = deque(maxlen=CAPACITY)
        #: Whether first calls are recorded in `firsts`; False while every call is checked.
        self.compares = True
        self._called: set[int] = set()
        self._resumed = 0
        self._counters: dict[Counted, SequenceCounter] = {(): self.waits}
        ring = [Event() for _ in range(capacity)]
        for event, following in pairwise(ring):
            event.next = following
        ring[-1].next = ring[0]
        self.last = ring[-1]

    def counter(self, counted: Counted) -> SequenceCounter:
        """Return the counter of the group of these ranks, or of the permutations of these pairs."""
        return self._counters.setdefault(counted, SequenceCounter())

    def start(self, waiting: Waiting, counter: SequenceCounter) -> Event:
        """Record a communication that begins, which the process does not wait for yet."""
        event = self.last = self.last.next
        event.waiting = waiting
        event.sequence = counter.count = counter.count + 1
        event.began = monotonic()
        if waiting.group and waiting.call is not None and id(waiting.call) not in self._called:
            self._called.add(id(waiting.call))
            if self.compares:
                self.firsts.append((waiting, event.sequence))
        return event

    def begin(self, waiting: Waiting, counter: SequenceCounter) -> Event:
        """Record a communication that begins and that the process blocks in."""
        event = self.what = self.start(waiting, counter)
        return event

    def resume(self, begun: tuple[Event, Waiting | None, int]) -> Event:
        """Record that the process blocks in the event with key ``begun``; in a copy if its slot has been reused."""
        event, waiting, sequence = begun
        if event.waiting is not waiting or event.sequence != sequence:
            event = Event()
            event.waiting, event.sequence, event.began = waiting, sequence, monotonic()
        self.what = event
        self._resumed += 1
        return event

    @property
    def waiting(self) -> Waiting | None:
        """Return the communication that the process blocks in, with its sequence number."""
        event = self.what
        waiting = None if event is None else event.waiting
        return None if waiting is None or event is None else waiting.at(event.sequence)

    @property
    def count(self) -> int:
        """Return the number of communications begun, plus the waits for ones begun earlier."""
        return self.total + self._resumed

    @property
    def total(self) -> int:
        """Return the number of communications begun."""
        return sum(counter.count for counter in tuple(self._counters.values()))

    def begun(self) -> dict[Counted, int]:
        """Return the number of collectives begun by group, and of permutations by pairs."""
        return {counted: counter.count for counted, counter in tuple(self._counters.items()) if counted}

    def events(self) -> list[tuple[Waiting, int, float, float]]:
        """Return the last communications, oldest first: (what, sequence number, began, ended).

        Thread-safe with respect to the communicating thread.
        """
        found = []
        last = event = self.last
        while True:
            event = event.next
            if event.waiting is not None:
                found.append((event.waiting, event.sequence, event.began, event.ended))
            if event is last:
                return sorted(found, key=lambda entry: entry[2])
