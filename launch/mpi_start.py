"""Ranks that wait for MPI to begin, which it does when all of them have come to it.

They cannot tell of it themselves: MPI's start keeps the interpreter to itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from collectives import endings
from collectives.settings import SettingError, WatchSettings
from collectives.states import ranges_text


class MpiStart:
    """Of a job of ``ranks`` ranks, all on this machine, that leave word in the folder ``reports``.

    ``environment`` says after how long a wait is told, and whether it then ends the job: by a report of the rank that
    waits.
    """

    def __init__(self, ranks: int, reports: Path, environment: Mapping[str, str]) -> None:
        self._ranks, self._reports = ranks, reports
        try:
            self._settings = WatchSettings.from_environment(environment)
        except SettingError:  # which the ranks tell
            self._settings = WatchSettings(timeout=0)
        self._since: float | None = None
        self._told = 0.0

    def look(self) -> list[str]:
        """What the user is to be told, after each timeout."""
        waiting = endings.ranks_that_start(self._reports) if self._settings.timeout else set()
        missing = sorted(set(range(self._ranks)) - waiting)
        now = time.monotonic()
        if not waiting or not missing:
            self._since = None
            return []
        if self._since is None:
            self._since = self._told = now
        if now - self._told < self._settings.timeout:
            return []
        self._told = now
        text = (
            f"{_ranks(sorted(waiting))} waited {now - self._since:.0f} s for MPI to begin: {_ranks(missing)} not come"
        )
        if self._settings.abort:
            self._end(min(waiting), text)
        return [text]

    def _end(self, rank: int, text: str) -> None:
        """A rank that reports a failure ends the job."""
        unfinished = self._reports / f".rank-{rank}.txt"
        unfinished.write_text(f"rank {rank} on {os.uname().nodename} failed:\n{text}\n")
        unfinished.rename(self._reports / f"rank-{rank}.txt")


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {ranges_text(numbers)} ha{'ve' if len(numbers) > 1 else 's'}"
