"""Watchdog of processes that are threads: starvation, and blocked calls."""

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

_TICK = 0.02  # polling interval, in seconds
_PATIENCE = 0.2  # seconds after a failure in which blocked processes end by themselves
_AGAIN = 0.5  # seconds between attempts to end one that computes
_GRACE = 5.0  # seconds for all attempts


def watch(scheduler: Scheduler, threads: list[threading.Thread], timeout: float, abort: bool) -> None:
    """Wait for all threads; let more run if the running ones make no progress, and report blocked calls."""
    switches, next_report = -1, time.monotonic() + timeout
    # Not by join: an interrupted join marks its thread as ended in CPython 3.11.
    while not scheduler.ended.wait(_TICK):
        now = time.monotonic()
        if scheduler.failure is not None:
            stop(scheduler, threads)
            return
        if scheduler.switches == switches and scheduler.starved:
            scheduler.lend()
        switches = scheduler.switches
        if now > next_report:
            next_report = now + _report(scheduler, now, timeout, abort)


def _report(scheduler: Scheduler, now: float, timeout: float, abort: bool) -> float:
    """Report processes blocked longer than ``timeout``; return the seconds until the next check."""
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
    """Stop the threads after a failure, within five seconds.

    A process that computes does not check for the failure: ``Stopped`` is raised in its thread asynchronously, between
    two bytecodes. A library call runs until it returns.
    """
    last = time.monotonic() + _GRACE
    patience = _PATIENCE
    while not scheduler.ended.wait(patience) and time.monotonic() < last:
        end(scheduler, threads)
        patience = _AGAIN


def end(scheduler: Scheduler, threads: Sequence[threading.Thread]) -> None:
    """Raise ``Stopped`` asynchronously in the threads that have not ended, without waiting."""
    for rank, thread in enumerate(threads):
        # Never twice: it would interrupt the clean-up of the thread.
        if thread.ident is not None and rank not in scheduler.stopped and not scheduler.has_ended(rank):
            _set_exception(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))


_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
