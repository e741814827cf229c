"""Blocking collectives in a thread of their own, one after another.

MPI's nonblocking reductions associate otherwise than its blocking ones. Where that shows, a collective that is started
runs as the blocking one in this thread, so that it gives the same bits; it moves on as fast as a thread that has a
processor to itself. Ranks start such collectives in one order, on communicators that are used for nothing else.
"""

from __future__ import annotations

import queue
import threading
from functools import cache
from time import monotonic

from collectives.activity import Activity, Event
from collectives.arrays import Array
from collectives.communicator import BoundCollective

#: Bytes from which on an all_reduce is worth a start, and the thread: smaller ones cost latency, which that adds to.
LEAST = 1 << 20


class BackgroundRequest:
    """A collective that the thread runs; ``wait`` returns its result, or raises what it failed with."""

    def __init__(self, call: BoundCollective, array: Array, activity: Activity, event: Event) -> None:
        self._call, self._array, self._activity, self._begun = call, array, activity, event.key
        self._ended = threading.Event()
        self._result: Array | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """The thread's part."""
        try:
            self._result = self._call(self._array)
        except BaseException as error:
            self._error = error
        self._ended.set()

    def wait(self) -> Array:
        event = self._activity.resume(self._begun)
        try:
            self._ended.wait()
        finally:
            self._activity.what = None
        if self._error is not None:
            raise self._error
        event.ended = monotonic()
        assert self._result is not None
        return self._result


def start(call: BoundCollective, array: Array, activity: Activity, event: Event) -> BackgroundRequest:
    """Has the thread call ``call(array)`` after all that was started before."""
    request = BackgroundRequest(call, array, activity, event)
    _requests().put(request)
    return request


@cache
def _requests() -> queue.SimpleQueue[BackgroundRequest]:
    requests: queue.SimpleQueue[BackgroundRequest] = queue.SimpleQueue()

    def run() -> None:
        while True:
            requests.get().run()

    threading.Thread(target=run, name="mpi-background", daemon=True).start()
    return requests
