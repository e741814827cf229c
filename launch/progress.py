"""Progress of long commands, from the first rank, on standard error: a line on a terminal, or lines now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

from collectives.failure import launched_rank

T = TypeVar("T")

#: Seconds before the first line on a terminal, between its updates, and between lines elsewhere.
PATIENCE, EVERY, LINES = 2.0, 0.5, 10.0
#: Moves the cursor to the start of the line and clears it (ECMA-48, CR and EL).
_CLEAR = "\r\x1b[K"


class Progress:
    """One activity; `at` of `total` items are done, if they can be counted.

    `in_lines`: the stream is no terminal, so each update is a line of its own.
    `clock` returns seconds; `wait` waits up to so many seconds for an event, and returns whether it is set.
    """

    def __init__(
        self,
        what: str,
        stream: TextIO | None,
        total: int = 0,
        *,
        in_lines: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self.what = what
        self.at, self.total = 0, total
        self._stream, self._in_lines = stream, in_lines
        self._clock, self._wait = clock, wait
        self._began = clock()
        self._shown = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        if stream is not None:
            self._thread.start()

    @property
    def is_watched(self) -> bool:
        """Whether there is a terminal to write to."""
        return self._stream is not None

    def text(self, seconds: float) -> str:
        """Return the line: `partitioning ... 3 s`, or `measuring products ... 3 of 40, 12 s`."""
        far = f"{self.at} of {self.total}, " if self.total else ""
        return f"{self.what} ... {far}{seconds:.0f} s"

    def _run(self) -> None:
        seconds = LINES if self._in_lines else PATIENCE
        while not self._wait(self._done, seconds):
            text = self.text(self._clock() - self._began)
            if self._in_lines:
                self._write(f"{text}\n")
                continue
            seconds = EVERY
            self._shown = True
            self._write(_CLEAR + text)

    def end(self) -> None:
        """End the activity and clear the line."""
        self._done.set()
        if self._stream is not None:
            self._thread.join()
            if self._shown:
                self._write(_CLEAR)

    def _write(self, text: str) -> None:
        assert self._stream is not None
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal has been closed
            self._done.set()


@contextmanager
def doing(what: str, total: int = 0, *, in_lines: bool = False) -> Iterator[Progress]:
    """Show `what` from two seconds on until the end of the context, with a count if `total` is given.

    `in_lines`: also where there is no terminal, every ten seconds.
    """
    stream = _terminal()
    in_lines = in_lines and stream is None and not launched_rank()
    progress = Progress(what, sys.stderr if in_lines else stream, total, in_lines=in_lines)
    try:
        yield progress
    finally:
        progress.end()


def counted(what: str, items: Iterable[T], total: int) -> Iterator[T]:
    """Yield `items`, and show the number of the current one."""
    with doing(what, total) as progress:
        for progress.at, item in enumerate(items, 1):
            yield item


def _terminal() -> TextIO | None:
    """Return standard error if it is a terminal and this is the first rank; otherwise None."""
    try:
        return sys.stderr if sys.stderr.isatty() and not launched_rank() else None
    except (AttributeError, ValueError):  # closed, or replaced
        return None
