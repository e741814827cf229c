"""Pending nonblocking MPI calls, and the thread that progresses them.

Open MPI progresses a nonblocking collective only while some thread is inside an MPI call. While requests are pending, a
background thread tests them periodically, so that communication overlaps with computation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from mpi4py import MPI

from collectives.arrays import Array
from collectives.record.activity import Activity, Event

_PERIOD = 2e-4  # polling interval in seconds: short against a transfer worth overlapping, long against one test


class MpiRequest:
    """A started collective; ``wait`` returns its result."""

    __slots__ = ("_activity", "_begun", "_buffers", "_decode", "_fault", "_out", "_requests")

    def __init__(
        self,
        requests: Sequence[MPI.Request],
        buffers: object,
        out: Array,
        decode: Callable[[Array], None] | None,
        activity: Activity | None = None,
        event: Event | None = None,
        fault: Callable[[MPI.Exception], Exception] | None = None,
    ) -> None:
        """``event`` is its start in the ``activity``; ``fault`` converts MPI's exception to the one ``wait`` raises."""
        self._requests, self._buffers, self._out, self._decode = list(requests), buffers, out, decode
        self._activity, self._begun, self._fault = activity, None if event is None else event.key, fault
        _progress.add(self._requests)

    @classmethod
    def done(cls, out: Array) -> MpiRequest:
        """Return the completed request of a collective that needed no communication."""
        return cls((), None, out, None)

    @staticmethod
    def detach(request: MPI.Request, buffer: Array, text: str) -> None:
        """Progress ``request`` in the background, keeping ``buffer`` alive until it completes; ``text`` names it in
        the report if it never does."""
        _progress.adopt(request, buffer, text)

    def wait(self) -> Array:
        if self._requests:
            assert self._activity is not None and self._begun is not None
            event = self._activity.resume(self._begun)
            try:
                _progress.remove(self._requests)
                MPI.Request.Waitall(self._requests)
                event.ended = time.monotonic()
            except MPI.Exception as error:
                raise (error if self._fault is None else self._fault(error)) from error
            finally:
                self._activity.what = None
            self._requests = []
        if self._decode is not None:
            self._decode(self._out)
            self._decode = None
        self._buffers = None
        return self._out


class _Progress:
    """Tests pending requests periodically. Only one thread at a time accesses a request, as MPI requires."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[int, MPI.Request] = {}
        self._detached: dict[int, tuple[Array, str]] = {}
        self._failed: dict[int, MPI.Exception] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, requests: Sequence[MPI.Request]) -> None:
        if not requests:
            return
        with self._lock:
            self._pending.update((id(request), request) for request in requests)
            if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
                self._look()  # MPI allows no second thread: progress is made when requests are added
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mpi-progress", daemon=True)
                self._thread.start()
        self._wake.set()

    def adopt(self, request: MPI.Request, buffer: Array, text: str) -> None:
        with self._lock:
            self._detached[id(request)] = buffer, text
        self.add([request])

    def remove(self, requests: Sequence[MPI.Request]) -> None:
        """Stop testing ``requests``, which the caller completes; raise the error of one that has failed."""
        with self._lock:
            errors = [self._failed.pop(id(request), None) for request in requests]
            for request in requests:
                self._pending.pop(id(request), None)
        for error in errors:
            if error is not None:
                raise error

    def stop(self) -> None:
        """Stop the thread; it makes no MPI call after this."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def unfinished(self) -> list[str]:
        """Return the texts of the detached requests that have not completed."""
        with self._lock:
            return [text for _, text in self._detached.values()]

    def _run(self) -> None:
        while True:
            self._wake.wait()
            if self._stopped:
                return
            with self._lock:
                self._look()
                if not self._pending:
                    self._wake.clear()
            time.sleep(_PERIOD)

    def _look(self) -> None:
        for key, request in list(self._pending.items()):
            try:
                if not request.Test():
                    continue
            except MPI.Exception as error:  # the request has failed; `wait` raises the error
                if key not in self._detached:
                    self._failed[key] = error
            del self._pending[key]
            self._detached.pop(key, None)


_progress = _Progress()


def stop_progress() -> None:
    """Stop the progress thread. Must be called before MPI_Finalize."""
    _progress.stop()


def unfinished() -> list[str]:
    """Return the texts of this rank's sends that have not been received so far."""
    return _progress.unfinished()
