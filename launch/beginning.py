"""Elastic jobs that cannot begin: MPI's start waits for all ranks, for ever for one that has ended before it.

Any other launcher's job is ended with the rank. One that goes on without lost ranks knows of them once MPI has begun.
"""

import time
from pathlib import Path

from collectives import endings
from launch.lingering import running_children

LOOK_SECONDS = 0.5
#: How long the same ranks must be missing: the launcher starts one after the other, on a machine that does much else.
_SURE_SECONDS = 2.0
_RANK = b"OMPI_COMM_WORLD_RANK="


class Beginning:
    """Of `ranks` ranks, all of which the process `launcher` starts on this machine, itself or to keep one elsewhere."""

    def __init__(self, launcher: int, ranks: int, reports: Path) -> None:
        self._launcher, self._ranks, self._reports = launcher, ranks, reports
        self._missing: set[int] = set()
        self._since = 0.0

    def missing(self) -> int | None:
        """A rank that has ended, and that others wait for to begin with MPI; None while there is none."""
        missing = self._ended() if endings.ranks_that_start(self._reports) else set()
        now = time.monotonic()
        if missing != self._missing or not missing:
            self._missing, self._since = missing, now
        return min(missing) if missing and now - self._since > _SURE_SECONDS else None

    def _ended(self) -> set[int]:
        processes = running_children(self._launcher)
        if processes is None:
            return set()
        return set(range(self._ranks)) - {rank for process in processes for rank in _ranks(process)}


def _ranks(process: str) -> list[int]:
    """Which rank a process is; none where it is no rank, or has ended and nobody has heard of it."""
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    return [int(text.removeprefix(_RANK)) for text in variables if text.startswith(_RANK)]
