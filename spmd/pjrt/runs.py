"""Runs of programs under way: one after another, in the order of their calls, in a thread of their own.

That is what processes must keep to whose programs communicate, and what makes the values of buffers come in order. A
call returns once its run is in the queue; errors arrive with the events and buffers of the run.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator

from spmd.pjrt.errors import Code, PjrtError
from spmd.runtime import world

#: Runs that wait at most: what they read and give takes memory meanwhile.
_MOST = 32


class Run:
    """A run of a program, which `job` does; `is_short` says whether it will take little time, as far as is known."""

    def __init__(self, job: Callable[[], None], is_short: Callable[[], bool]) -> None:
        self.is_short = is_short
        self._job: Callable[[], None] | None = job
        self._done = threading.Event()
        self._error: PjrtError | None = None
        self._following: deque[Callable[[PjrtError | None], None]] = deque()

    def begin(self) -> None:
        """Do the job; its error is the run's."""
        job, self._job = self._job, None
        try:
            if job is not None:
                job()
        except BaseException as error:
            self._error = PjrtError.of(error)
        self.end()

    def fail(self, error: PjrtError) -> None:
        """End the run with an error, in place of its job."""
        self._job, self._error = None, error
        self.end()

    def end(self) -> None:
        """Call all that waits for the run."""
        self._done.set()
        self._call()

    @property
    def is_done(self) -> bool:
        """Whether the run has ended."""
        return self._done.is_set()

    def then(self, act: Callable[[PjrtError | None], None]) -> None:
        """Call `act` with the run's error, or None, once it has ended; at once where it has."""
        self._following.append(act)
        if self.is_done:
            self._call()

    def wait(self) -> None:
        """Wait for the run's end; raises its error."""
        if not self.is_done and QUEUE.is_here:
            raise PjrtError(
                Code.FAILED_PRECONDITION,
                "a function that a program calls needs the value of a program that runs after that one",
            )
        self._done.wait()
        if self._error is not None:
            raise PjrtError.of(self._error)

    def _call(self) -> None:
        while self._following:
            try:
                act = self._following.popleft()
            except IndexError:  # another thread was quicker
                return
            act(self._error)


#: Of threads that runs have started.
_of_runs = threading.local()


class Queue:
    """Runs that are begun one after another by a thread, which is started with the first."""

    def __init__(self) -> None:
        #: Whether runs may be in a thread of their own at all: MPI may serve one thread alone.
        self.is_open = True
        self._forget()

    def _forget(self) -> None:
        self._changed = threading.Condition()
        self._runs: deque[Run] = deque()
        self._thread: threading.Thread | None = None

    @property
    def is_soon_idle(self) -> bool:
        """Whether all runs will have ended in a moment."""
        return all(run.is_short() for run in tuple(self._runs))

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the runs, or one that the current run has started."""
        return threading.current_thread() is self._thread or getattr(_of_runs, "is_here", False)

    @contextlib.contextmanager
    def started_here(self) -> Iterator[None]:
        """Mark this thread as part of the current run: programs that it calls run at once, not after that run."""
        _of_runs.is_here = True
        try:
            yield
        finally:
            _of_runs.is_here = False

    def put(self, run: Run) -> None:
        """Begin `run` after those that were put before; waits where many do."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="spmd programs", daemon=True)
                self._thread.start()
            while len(self._runs) >= _MOST:
                self._changed.wait()
            self._runs.append(run)
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all runs have ended; from one of them it returns at once."""
        if self.is_here:
            return
        with self._changed:
            while self._runs:
                self._changed.wait()

    def lose(self) -> None:
        """Fail all runs, and begin anew: after a fork the child has no thread."""
        lost = list(self._runs)
        self._forget()
        for run in lost:
            run.fail(PjrtError(Code.ABORTED, "the program was under way in another process when this one was forked"))

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._runs:
                    self._changed.wait()
                run = self._runs[0]
            run.begin()
            del run
            with self._changed:
                self._runs.popleft()
                self._changed.notify_all()


#: The runs of this process's programs.
QUEUE = Queue()
world.add_queue(QUEUE.drain)
os.register_at_fork(before=QUEUE.drain, after_in_child=QUEUE.lose)
