"""Runs blocking collectives one after another in a background thread.

MPI's nonblocking reductions associate differently from its blocking ones. Where the result depends on that, a started
collective runs as the blocking one in this thread, so that it returns the same bits; it progresses as fast as a thread
with a separate core. All ranks start these collectives in the same order, on communicators with no other use.
"""

from __future__ import annotations

import queue
import threading
from functools import cache
from math import prod
from time import monotonic

from collectives.arrays import Array
from collectives.communicator import BoundCollective
from collectives.operations import AllReduce, Operation
from collectives.record.activity import Activity, Event

#: Bytes from which on an all_reduce is started in the thread; smaller ones are bound by latency, which the thread adds.
LEAST = 1 << 20


def runs_in_background(operation: Operation, size: int) -> bool:
    """Return whether a started ``operation`` among ``size`` ranks runs as the blocking one in the thread."""
    nbytes = prod(operation.shape) * operation.dtype.itemsize
    return isinstance(operation, AllReduce) and operation.associates and size > 2 and nbytes >= LEAST


class BackgroundRequest:
    """A collective that the thread runs; ``wait`` returns its result or raises its error."""

    def __init__(self, call: BoundCollective, array: Array, activity: Activity, event: Event) -> None:
        self._call, self._array, self._activity, self._begun = call, array, activity, event.key
        self._ended = threading.Event()
        self._result: Array | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run the collective and store its result or error. Called in the background thread."""
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
    """Queue ``call(array)`` behind the collectives started before."""
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
