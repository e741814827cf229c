"""Cooperative scheduling of processes that are threads: few of many run at a time.

Hundreds of threads that wake at once contend for the interpreter's lock. Here a process that blocks hands over to the
next runnable one directly, so that at most ``limit`` threads are awake. Since the scheduler knows which processes are
blocked, it detects a deadlock immediately.
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
    """Ends a process because another one failed; programs must not catch it."""


_ENDED = "has ended"


class Scheduler:
    """Runs ``size`` processes, ``limit`` at a time. ``lock`` guards all state that the processes share."""

    def __init__(self, size: int, limit: int) -> None:
        self.lock = threading.Lock()
        self.failure: BaseException | None = None
        self.failed_rank: int | None = None
        self.ended = threading.Event()  # set when all processes have ended
        self.stopped: set[int] = set()  # processes that have received Stopped
        self.waiting: list[str | None] = [None] * size
        self.since = [time.monotonic()] * size
        self.switches = 0  # hand-overs so far, by which the watchdog detects progress
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
        """Block until the first turn. Called by the process's thread."""
        self._gates[rank].acquire()
        self._check()

    def block(self, rank: int, what: str) -> None:
        """Block until ``wake``. Called with ``lock`` held, which is released."""
        self.waiting[rank] = what
        self.since[rank] = time.monotonic()
        self._parked.add(rank)
        self._pass_on()
        self.lock.release()
        self._gates[rank].acquire()
        self.waiting[rank] = None
        self._check()

    def wake(self, ranks: Iterable[int]) -> None:
        """Make ``ranks`` runnable, in this order. Called with ``lock`` held."""
        ranks = list(ranks)
        self._parked.difference_update(ranks)
        self._ready.extend(ranks)
        while self._ready and self._running < self._limit:
            self._running += 1
            self._hand_over()

    def turn(self, rank: int, what: str, *, visible: bool = False) -> None:
        """Announce that process ``rank`` comes to ``what``, a point where another could run instead.

        ``visible`` if the step is observable outside the grid, so that its order matters. Here processes only switch
        when one blocks.
        """

    def start(self) -> None:
        """Make all processes runnable."""
        with self.lock:
            self.wake(sorted(self._parked))

    def finish(self, rank: int) -> None:
        """Record that the process's thread ends, or will not start."""
        with self.lock:
            if self.has_ended(rank):
                return
            self.waiting[rank] = _ENDED
            self._alive -= 1
            if not self._alive:
                self.ended.set()
            self._pass_on()

    def has_ended(self, rank: int) -> bool:
        """Return whether the process's thread has ended."""
        return self.waiting[rank] == _ENDED

    def fail(self, error: BaseException, rank: int | None = None) -> None:
        """Stop all processes; the first failure is the one reported."""
        with self.lock:
            self._fail(error, rank)

    def lend(self) -> None:
        """Let one more process run, for when the running ones are blocked in something unknown to the scheduler."""
        with self.lock:
            self._limit += 1
            self.wake(())

    @property
    def starved(self) -> bool:
        """Whether runnable processes are waiting for a turn."""
        return bool(self._ready)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Return a context in which the process waits for something outside the grid: others run, and it is not
        deadlocked.
        """
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
        self.switches += 1
        self._gates[self._ready.popleft()].release()

    def _fail(self, error: BaseException, rank: int | None) -> None:
        if self.failure is None:
            self.failure, self.failed_rank = error, rank
        self._limit = len(self.waiting)  # all at once: a thread that never began would keep its slot
        self.wake(sorted(self._parked))
