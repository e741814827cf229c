"""Decides which host an elastic job drops when two of its hosts cannot reach each other.

On the launcher's host each remote rank has a local process (`launch.remote`), which exits when it finds a file
``lost-<host>`` in the folder of reports. MPI then reports the ranks of that host as failed, and the others continue.
The launcher's own host is never dropped. If a rank there is silent and no rank there reports the other host, the
network link works: that one rank hangs, and is killed.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from collectives.processes import start_of
from launch.listeners import cut_connections
from spmd.runtime.silence import Silence, take_reports

_PREFIX = "lost-"


class SilentHosts:
    """Decides on the reports in `folder`, of a job whose MPI launcher is the process `launcher`.

    `is_here` returns whether a host is the launcher's; its ranks have `grace` seconds of `clock` to report the silence
    of a host that has reported theirs.
    """

    def __init__(
        self,
        launcher: int,
        folder: Path,
        grace: float,
        is_here: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher, self._folder, self._grace, self._is_here = launcher, folder, grace, is_here
        self._clock = clock
        self._waiting: list[tuple[float, Silence]] = []
        self._left: dict[str, float] = {}

    def look(self) -> list[str]:
        """Process the new reports; return the messages for the user."""
        now, messages = self._clock(), []
        for report in take_reports(self._folder):
            if self._is_here(report.there):
                self._waiting.append((now, report))
            elif not self._was_left(report.here, now):
                messages += self._leave(report.there, now)
        due = [report for since, report in self._waiting if now - since > self._grace]
        self._waiting = [(since, report) for since, report in self._waiting if now - since <= self._grace]
        for report in due:
            if not self._was_left(report.here, now) and start_of(report.process) == report.started:
                os.kill(report.process, signal.SIGKILL)
                messages.append(f"rank {report.silent} does not respond; it was killed")
        return messages

    def _leave(self, host: str, now: float) -> list[str]:
        if self._was_left(host, now):
            return []
        self._left[host] = now
        (self._folder / f"{_PREFIX}{host}").touch()
        cut_connections(self._launcher, host)
        return [f"host {host} does not respond; the job continues without it"]

    def _was_left(self, host: str, now: float) -> bool:
        """Return whether the host was dropped recently: its ranks may still send reports, or be reported."""
        return now - self._left.get(host, -float("inf")) <= 2 * self._grace


def is_left(folder: Path, host: str, since: float) -> bool:
    """Return whether `host` was dropped after `since`, in seconds since the epoch; `folder` is that of reports."""
    try:
        return (folder / f"{_PREFIX}{host}").stat().st_mtime >= since
    except OSError:
        return False
