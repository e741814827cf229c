"""Taking turns: many processes that are threads of one Python process, few of which run at a time.

Hundreds of threads that wake at once fight over the interpreter's lock. Here a process that has to wait hands its
turn to the next one that can go on, directly, so that at most ``limit`` threads are awake however many there are.
Since the scheduler knows who waits, it also knows at once when nobody can go on.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from collectives.errors import CommunicationError
from collectives.states import states_text


class Stopped(BaseException):
    """Ends a process because another one failed; no program is to catch it."""


_ENDED = "has ended"


class Scheduler:
    """Turns for ``size`` processes, ``limit`` at a time. ``lock`` guards all that the processes share."""

    def __init__(self, size: int, limit: int) -> None:
        self.lock = threading.Lock()
        self.failure: BaseException | None = None
        self.failed_rank: int | None = None
        self.ended = threading.Event()  # all processes have
        self.stopped: set[int] = set()  # processes that have met Stopped
        self.waiting: list[str | None] = [None] * size
        self.since = [time.monotonic()] * size
        self.turns = 0  # handed out so far: how a watcher sees that something moves
        self._gates = [_thread.allocate_lock() for _ in range(size)]
        for gate in self._gates:
            gate.acquire()
        self._parked = set(range(size))
        self._ready: deque[int] = deque()
        self._limit = self._base_limit = limit
        self._running = 0
        self._outside = 0
        self._alive = size

    def enter(self, rank: int) -> None:
        """Waits for the first turn; called by the process's thread."""
        self._gates[rank].acquire()
        self._check()

    def block(self, rank: int, what: str) -> None:
        """Gives the turn away until ``wake``. Takes ``lock`` held, and releases it."""
        self.waiting[rank] = what
        self.since[rank] = time.monotonic()
        self._parked.add(rank)
        self._pass_on()
        self.lock.release()
        self._gates[rank].acquire()
        self.waiting[rank] = None
        self._check()

    def wake(self, ranks: Iterable[int]) -> None:
        """Lets ``ranks`` go on, in this order. Takes ``lock`` held."""
        ranks = list(ranks)
        self._parked.difference_update(ranks)
        self._ready.extend(ranks)
        while self._ready and self._running < self._limit:
            self._running += 1
            self._hand_over()

    def turn(self, rank: int, what: str, *, visible: bool = False) -> None:
        """Process ``rank`` comes to ``what``: a point at which another could go on as well.

        ``visible``: others outside of the grid see it, so that its place among others' steps matters. Here turns are
        given away by those who wait alone.
        """

    def start(self) -> None:
        """Lets all processes begin."""
        with self.lock:
            self.wake(sorted(self._parked))

    def finish(self, rank: int) -> None:
        """The process's thread ends, or is not to begin."""
        with self.lock:
            if self.has_ended(rank):
                return
            self.waiting[rank] = _ENDED
            self._alive -= 1
            if not self._alive:
                self.ended.set()
            self._pass_on()

    def has_ended(self, rank: int) -> bool:
        """Whether the process's thread has come to its end."""
        return self.waiting[rank] == _ENDED

    def fail(self, error: BaseException, rank: int | None = None) -> None:
        """Stops all processes; the first failure is the one that is told."""
        with self.lock:
            self._fail(error, rank)

    def lend(self) -> None:
        """One more turn than usual, for when those who have theirs are stuck in something that we do not see."""
        with self.lock:
            self._limit += 1
            self.wake(())

    @property
    def starved(self) -> bool:
        """Whether processes that could go on have no turn."""
        return bool(self._ready)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """The process waits for something outside the grid: others take its turn, and it is not in deadlock."""
        with self.lock:
            self._outside += 1
            self._pass_on()
        try:
            yield
        finally:
            with self.lock:
                self._outside -= 1
                self._running += 1
            self._check()

    def _check(self) -> None:
        if self.failure is not None:
            raise Stopped

    def _pass_on(self) -> None:
        if self._ready and self._running <= self._limit:
            self._hand_over()
            return
        self._running -= 1
        self._limit = max(self._base_limit, min(self._limit, self._running + 1))
        if not self._running and not self._ready and not self._outside and self._alive:
            states = {rank: f"waits in {what}" if what != _ENDED else what
                      for rank, what in enumerate(self.waiting) if what is not None}  # fmt: skip
            self._fail(CommunicationError("deadlock: every process waits for another\n" + states_text(states)), None)

    def _hand_over(self) -> None:
        self.turns += 1
        self._gates[self._ready.popleft()].release()

    def _fail(self, error: BaseException, rank: int | None) -> None:
        if self.failure is None:
            self.failure, self.failed_rank = error, rank
        self._limit = len(self.waiting)  # all at once: a thread that never began would keep its turn
        self.wake(sorted(self._parked))
