"""What a process is doing and has done last, as far as others may have to wait for it.

Whoever watches reads it while it goes on (`collectives.mpi_watch`), and whoever wants to know afterwards what happened
(`collectives.recorder`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic

from collectives.arrays import DType
from collectives.shapes import Shape

#: Communications of a process that are kept.
KEPT = 2000
#: Sources and targets of a permutation, as ranks.
Pairs = tuple[tuple[int, int], ...]
#: Whose communications are counted together: the ranks of a process group, or the pairs of a permutation.
Counted = tuple[int, ...] | Pairs


@dataclass(frozen=True)
class Call:
    """A collective or a transfer as the program calls it.

    ``name`` is the operation's without the dialect, or ``send`` or ``recv``; ``text`` describes it; ``where`` is its
    place in the source. ``members`` are the ranks of the process group, or a transfer's source and target, of which
    it is number ``number`` in ``channel``. ``pairs`` are the sources and targets of a permutation, as ranks, and
    ``members`` their ends.
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
    """A communication to wait in: what it is, and the ranks without which it does not end.

    ``group`` are the ranks of the process group whose collective it is; ``turn`` is the collective's number in the
    group's order, or a permutation's among those of the same pairs. ``settles`` is set where the ranks of the job come
    to terms: all of them are about to come, and a rank that does anything else that waits will not. ``finished`` is set
    where the rank has come to the end of its program: it comes to none of the program's communications. ``links`` are
    the pairs of a permutation in which this rank stands itself. ``call`` is what the program calls, where it is that;
    it does not travel to other processes.
    """

    text: str
    ranks: tuple[int, ...]
    group: tuple[int, ...] = ()
    turn: int = 0
    settles: bool = False
    call: Call | None = None
    finished: bool = False
    links: Pairs = ()

    def at(self, turn: int) -> Waiting:
        """The same, of the collective of that number."""
        return replace(self, turn=turn)

    def __reduce__(self) -> tuple[type[Waiting], tuple[object, ...]]:
        return Waiting, (self.text, self.ranks, self.group, self.turn, self.settles, None, self.finished, self.links)


class Turns:
    """How many collectives of one process group, or permutations of the same pairs, a process has begun."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Event:
    """A communication that has begun, at ``began``, in seconds of ``time.monotonic``, as number ``turn`` of its kind.

    ``ended`` is of before ``began`` until it has ended well. ``next`` is the event that was the oldest before.
    """

    __slots__ = ("began", "ended", "next", "turn", "waiting")

    def __init__(self) -> None:
        self.waiting: Waiting | None = None
        self.turn = 0
        self.began = 0.0
        self.ended = -1.0
        self.next = self

    @property
    def key(self) -> tuple[Event, Waiting | None, int]:
        """What tells whether it is still this event."""
        return self, self.waiting, self.turn


class Activity:
    """The communication that a process is in: ``what`` is None between them, ``count`` tells one from the next.

    ``last`` is the one that began last; it and those before it are a ring, whose oldest becomes the next one. Beside a
    few attribute stores, the clock is read twice a collective. ``waits`` counts what is no collective of a group.
    """

    __slots__ = ("_met", "_resumed", "_turns", "compares", "firsts", "last", "waits", "what")

    def __init__(self, kept: int = KEPT) -> None:
        self.what: Event | None = None
        self.waits = Turns()
        #: The first call of each bound collective, with its turn, until somebody takes it from here.
        self.firsts: deque[tuple[Waiting, int]] = deque(maxlen=KEPT)
        #: Whether first calls are kept there: not while a check of their own compares them.
        self.compares = True
        self._met: set[int] = set()
        self._resumed = 0
        self._turns: dict[Counted, Turns] = {(): self.waits}
        ring = [Event() for _ in range(kept)]
        for event, following in pairwise(ring):
            event.next = following
        ring[-1].next = ring[0]
        self.last = ring[-1]

    def turns(self, counted: Counted) -> Turns:
        """The counter of the group of these ranks, or of the permutations of these pairs."""
        return self._turns.setdefault(counted, Turns())

    def start(self, waiting: Waiting, turns: Turns) -> Event:
        """A communication begins, for which the process does not wait so far."""
        event = self.last = self.last.next
        event.waiting = waiting
        event.turn = turns.count = turns.count + 1
        event.began = monotonic()
        if waiting.group and waiting.call is not None and id(waiting.call) not in self._met:
            self._met.add(id(waiting.call))
            if self.compares:
                self.firsts.append((waiting, event.turn))
        return event

    def begin(self, waiting: Waiting, turns: Turns) -> Event:
        """A communication begins, and the process waits for its end."""
        event = self.what = self.start(waiting, turns)
        return event

    def resume(self, begun: tuple[Event, Waiting | None, int]) -> Event:
        """The process waits for the event of the key ``begun``; for a copy where the ring has come around since."""
        event, waiting, turn = begun
        if event.waiting is not waiting or event.turn != turn:
            event = Event()
            event.waiting, event.turn, event.began = waiting, turn, monotonic()
        self.what = event
        self._resumed += 1
        return event

    @property
    def waiting(self) -> Waiting | None:
        """What the process waits in, and as which of its group's collectives."""
        event = self.what
        waiting = None if event is None else event.waiting
        return None if waiting is None or event is None else waiting.at(event.turn)

    @property
    def count(self) -> int:
        """How many communications have begun, or are waited for that had."""
        return self.total + self._resumed

    @property
    def total(self) -> int:
        """How many communications have begun."""
        return sum(turns.count for turns in tuple(self._turns.values()))

    def begun(self) -> dict[Counted, int]:
        """How many collectives have begun in each group, and permutations of the same pairs."""
        return {counted: turns.count for counted, turns in tuple(self._turns.items()) if counted}

    def events(self) -> list[tuple[Waiting, int, float, float]]:
        """What was communicated last, the oldest first: what, its turn, and when it began and ended.

        May be called by another thread than the one that communicates.
        """
        found = []
        last = event = self.last
        while True:
            event = event.next
            if event.waiting is not None:
                found.append((event.waiting, event.turn, event.began, event.ended))
            if event is last:
                return sorted(found, key=lambda entry: entry[2])
