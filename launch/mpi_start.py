"""Reports of ranks that wait in MPI_Init for ranks that have not called it.

The launcher reports them because MPI_Init holds the interpreter lock, so that no thread of the rank can.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from collectives import endings
from collectives.settings import SettingError, WatchSettings
from collectives.states import ranges_text


class MpiStart:
    """Watches a job of ``ranks`` ranks, all on this machine, which write their state to the folder ``reports``.

    ``environment`` sets the timeout after which a wait is reported, and whether that ends the job, by a failure report
    of the waiting rank.
    """

    def __init__(
        self,
        ranks: int,
        reports: Path,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks, self._reports, self._clock = ranks, reports, clock
        try:
            self._settings = WatchSettings.from_environment(environment)
        except SettingError:  # the ranks report it
            self._settings = WatchSettings(timeout=0)
        self._since: float | None = None
        self._reported = 0.0

    def look(self) -> list[str]:
        """Return the messages for the user, one after each timeout."""
        waiting = endings.ranks_that_start(self._reports) if self._settings.timeout else set()
        missing = sorted(set(range(self._ranks)) - waiting)
        now = self._clock()
        if not waiting or not missing:
            self._since = None
            return []
        if self._since is None:
            self._since = self._reported = now
        if now - self._reported < self._settings.timeout:
            return []
        self._reported = now
        text = (
            f"{_ranks(sorted(waiting))} waited {now - self._since:.0f} s for MPI to begin: {_ranks(missing)} not come"
        )
        if self._settings.abort:
            self._end(min(waiting), text)
        return [text]

    def _end(self, rank: int, text: str) -> None:
        """Write a failure report for ``rank``, which ends the job."""
        unfinished = self._reports / f".rank-{rank}.txt"
        unfinished.write_text(f"rank {rank} on {os.uname().nodename} failed:\n{text}\n")
        unfinished.rename(self._reports / f"rank-{rank}.txt")


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {ranges_text(numbers)} ha{'ve' if len(numbers) > 1 else 's'}"
