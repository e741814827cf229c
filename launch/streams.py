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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TextIO

#: Seconds for which a process that outlives the job may hold its stream open without writing.
PATIENCE_SECONDS = 5.0
QUIET_SECONDS = 0.2
_AT_ONCE = 65536


class Filter(ABC):
    """Forwards a byte stream without some parts. What may begin one is held until it is complete."""

    def __init__(self) -> None:
        self._pending = b""

    @property
    def patience(self) -> float:
        """Seconds without further bytes after which held bytes are flushed."""
        return 0.0

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """Take bytes; return those to forward now."""

    def flush(self) -> bytes:
        """Return all held bytes, because no more arrived to complete them."""
        passed, self._pending = self._pending, b""
        return passed


def _has_come(pipe: int, seconds: float) -> bool:
    """Return whether bytes, or the end of `pipe`, arrive within `seconds`."""
    return bool(select.select([pipe], [], [], seconds)[0])


class Stream:
    """Forwards a ``pipe`` of the job to ``target`` through filters, in a thread.

    ``has_come`` waits for bytes for so many seconds; ``clock`` returns seconds. The pipe is read to its end even if
    ``target`` can no longer be written: ranks would block on a full pipe.
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
        self._to = -1  # a closed stream cannot be written
        with contextlib.suppress(OSError):
            self._to = -1 if target is None else target.fileno()
        self._name = "standard error" if target is sys.stderr else "standard output"
        self._without = b"\0" if target is sys.stderr else b""  # Open MPI ends its banners with a NUL
        self._fault: OSError | None = None
        self._lost = 0
        #: When the pipe became idle; None while data is being forwarded.
        self._quiet_since: float | None = None
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    @property
    def is_deserted(self) -> bool:
        """Whether the reader of the target pipe has closed it."""
        return self._fault is not None and self._fault.errno == errno.EPIPE

    @property
    def is_running(self) -> bool:
        """Whether the pipe has not ended."""
        return self._thread.is_alive()

    @property
    def is_quiet(self) -> bool:
        """Whether the pipe is idle and all data has been forwarded."""
        return self._quiet_since is not None or not self.is_running

    @property
    def loss(self) -> str:
        """A sentence on data that could not be written, or ""."""
        if self._fault is None:
            return ""
        return f"{self._lost} bytes could not be written to {self._name}: {self._fault.strerror}"

    def finish(self) -> None:
        """Wait until all data is forwarded, however slow the reader is.

        Stops waiting if a process that outlives the job holds the pipe open and is silent.
        """
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
        """Forward what filters hold, after `quiet` seconds without data."""
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
                except BlockingIOError:  # another process has made it nonblocking
                    select.select([], [self._to], [])
                    continue
                except OSError as error:
                    self._fault = error
            self._lost += len(data)
            return


def say(text: str) -> None:
    """Write a line to standard error, if it can be written."""
    data = f"{text}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        while data and sys.stderr is not None:
            data = data[os.write(sys.stderr.fileno(), data) :]
