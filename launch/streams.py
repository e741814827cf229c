"""Forwards a job's output to this process's standard output and standard error."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

#: How long a process that has outlived the job may hold its stream open, writing nothing.
PATIENCE_SECONDS = 5.0
QUIET_SECONDS = 0.2
_AT_ONCE = 65536


class Filter(Protocol):
    """Takes banners out of a stream of bytes."""

    @property
    def patience(self) -> float: ...

    def feed(self, data: bytes) -> bytes: ...

    def flush(self) -> bytes: ...


def _has_come(pipe: int, seconds: float) -> bool:
    """Return whether bytes come through `pipe`, or its end, within `seconds`."""
    return bool(select.select([pipe], [], [], seconds)[0])


class Stream:
    """Forwards a ``pipe`` of the job to ``target`` through filters, in a thread of its own.

    ``has_come`` waits for bytes of the pipe for so many seconds; ``clock`` tells the time, in seconds.

    The pipe is read to its end even if ``target`` can no longer be written: ranks would block on a full pipe.
    """

    def __init__(
        self,
        pipe: int,
        target: TextIO | None,
        *filters: Filter,
        has_come: Callable[[int, float], bool] = _has_come,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipe, self._filters, self._has_come, self._clock = pipe, filters, has_come, clock
        self._to = -1  # a stream that is closed cannot be written
        with contextlib.suppress(OSError):
            self._to = -1 if target is None else target.fileno()
        self._name = "standard error" if target is sys.stderr else "standard output"
        self._without = b"\0" if target is sys.stderr else b""  # Open MPI ends its banners with a NUL
        self._fault: OSError | None = None
        self._lost = 0
        #: Since when nothing has come; None while something is passed on.
        self._quiet_since: float | None = None
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    @property
    def is_deserted(self) -> bool:
        """Whether the reader of the target pipe has closed it."""
        return self._fault is not None and self._fault.errno == errno.EPIPE

    @property
    def is_running(self) -> bool:
        """Whether the end of the pipe has not come yet."""
        return self._thread.is_alive()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing comes, and all that has come is passed on: its reader may take its time."""
        return self._quiet_since is not None or not self.is_running

    @property
    def loss(self) -> str:
        """What could not be written, in a sentence; nothing where all was."""
        if self._fault is None:
            return ""
        return f"{self._lost} bytes could not be written to {self._name}: {self._fault.strerror}"

    def finish(self) -> None:
        """Waits until all is passed on, as long as its reader takes. A process that has outlived the job may hold the
        pipe open: not for long."""
        while self.is_running:
            since = self._quiet_since
            if since is not None and self._clock() - since > PATIENCE_SECONDS:
                return
            self._thread.join(QUIET_SECONDS)

    def _pass(self) -> None:
        quiet = 0.0
        while True:
            if not self._has_come(self._pipe, QUIET_SECONDS):
                if self._quiet_since is None:
                    self._quiet_since = self._clock()
                quiet += QUIET_SECONDS
                self._flush(quiet)
                continue
            quiet, self._quiet_since = 0.0, None
            data = os.read(self._pipe, _AT_ONCE)
            if not data:
                break
            self._write(data.replace(self._without, b"") if self._without else data, self._filters)
        self._flush(math.inf)

    def _flush(self, quiet: float) -> None:
        """Passes on what filters hold, when nothing has come for `quiet` seconds."""
        for index, filter in enumerate(self._filters, 1):
            if quiet >= filter.patience:
                self._write(filter.flush(), self._filters[index:])

    def _write(self, data: bytes, filters: Sequence[Filter]) -> None:
        for filter in filters:
            data = filter.feed(data)
        while data:
            if self._fault is None:
                try:
                    data = data[os.write(self._to, data) :]
                    continue
                except BlockingIOError:  # somebody has made it nonblocking
                    select.select([], [self._to], [])
                    continue
                except OSError as error:
                    self._fault = error
            self._lost += len(data)
            return


def say(text: str) -> None:
    """A line on standard error, where that can be written."""
    data = f"{text}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        while data and sys.stderr is not None:
            data = data[os.write(sys.stderr.fileno(), data) :]
