"""Watching over processes that are threads: turns for those that are kept from them, and who waits too long."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from collectives.errors import CollectiveError
from collectives.scheduler import Scheduler
from collectives.states import states_text

log = logging.getLogger("collectives")

_TICK = 0.02  # seconds between two looks at whether anything moves
GRACE = 5.0  # seconds that processes are given to end after a failure


def watch(scheduler: Scheduler, threads: list[threading.Thread], timeout: float, abort: bool) -> None:
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
            if now - failed_at > GRACE:
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


def join(threads: list[threading.Thread], seconds: float = GRACE) -> None:
    """Waits for threads to end, at most ``seconds`` in all."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
