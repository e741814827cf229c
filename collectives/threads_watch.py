"""Watching over processes that are threads: turns for those that are kept from them, and who waits too long."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Sequence

from collectives.errors import CommunicationError
from collectives.scheduler import Scheduler, Stopped
from collectives.states import states_text

log = logging.getLogger("collectives")

_TICK = 0.02  # seconds between two looks at whether anything moves
_PATIENCE = 0.2  # seconds after a failure in which processes end by themselves, since they wait for others
_AGAIN = 0.5  # seconds between two attempts to end one that computes
_GRACE = 5.0  # seconds in all


def watch(scheduler: Scheduler, threads: list[threading.Thread], timeout: float, abort: bool) -> None:
    """Waits for all threads; lends turns where those who have them stand still, and tells who waits too long."""
    turns, next_report = -1, time.monotonic() + timeout
    # Not by joining them: an interrupted join takes its thread for ended in CPython 3.11.
    while not scheduler.ended.wait(_TICK):
        now = time.monotonic()
        if scheduler.failure is not None:
            stop(scheduler, threads)
            return
        if scheduler.turns == turns and scheduler.starved:
            scheduler.lend()
        turns = scheduler.turns
        if now > next_report:
            next_report = now + _report(scheduler, now, timeout, abort)


def _report(scheduler: Scheduler, now: float, timeout: float, abort: bool) -> float:
    """Tells of processes that wait longer than ``timeout``; seconds until the next look."""
    waits = {rank: now - scheduler.since[rank] for rank, what in enumerate(scheduler.waiting)
             if what is not None and not scheduler.has_ended(rank)}  # fmt: skip
    longest = max(waits.values(), default=0.0)
    if longest < timeout:
        return timeout - longest
    states = dict.fromkeys(range(len(scheduler.waiting)), "computes")
    for rank, what in enumerate(scheduler.waiting):
        if what is not None:
            states[rank] = f"waits {waits[rank]:.0f} s in {what}" if rank in waits else what
    text = f"a process has waited {longest:.0f} s\n{states_text(states)}"
    if abort:
        raise CommunicationError(text)
    log.warning("%s", text)
    return timeout


def stop(scheduler: Scheduler, threads: Sequence[threading.Thread]) -> None:
    """Sees threads to their end after a failure, five seconds at most.

    A process that computes comes to nothing that checks for the failure: ``Stopped`` is put into its thread, which the
    interpreter raises between two of its steps. What is deep in a call of a library goes on until that returns.
    """
    last = time.monotonic() + _GRACE
    patience = _PATIENCE
    while not scheduler.ended.wait(patience) and time.monotonic() < last:
        end(scheduler, threads)
        patience = _AGAIN


def end(scheduler: Scheduler, threads: Sequence[threading.Thread]) -> None:
    """Puts ``Stopped`` into the threads that have not ended, and waits for none."""
    for rank, thread in enumerate(threads):
        # Never into one that has had it: it would strike while the thread tidies up.
        if thread.ident is not None and rank not in scheduler.stopped and not scheduler.has_ended(rank):
            _set_exception(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))


_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
