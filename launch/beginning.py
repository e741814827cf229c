"""Restart of elastic jobs in which a rank fails before all ranks have met.

MPI_Init waits for all ranks, forever if one has ended. The launcher ends a job that is not elastic in that case. An
elastic job tolerates failures only after the first rendezvous of its ranks (`spmd.elastic`), which waits for all of
them as well, and about a minute for one whose host has been cut off; before that, it can be restarted without losing
work.
"""

import time
from collections.abc import Callable
from pathlib import Path

from collectives import endings
from collectives.processes import environment_of, running_children

LOOK_SECONDS = 0.5
#: Maximum number of starts of a job; of one that failed although no rank was seen to be lost.
MOST_STARTS, _MOST_UNSEEN = 4, 2
#: Seconds that the same ranks must be missing: a busy launcher starts ranks one after the other.
_SURE_SECONDS = 2.0
#: The same, if MPI is initialized on some ranks and not on others.
_LONG_SECONDS = 10.0
_RANK = b"OMPI_COMM_WORLD_RANK="


class Beginning:
    """The start of `ranks` ranks, all of which the process `launcher` starts on this machine, or a proxy of them here.

    `is_spread`: they are on several hosts, one of which may be cut off from the others.
    """

    def __init__(
        self,
        launcher: int,
        ranks: int,
        reports: Path,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_spread: bool = False,
    ) -> None:
        self._launcher, self._ranks, self._reports, self._clock = launcher, ranks, reports, clock
        self._is_spread = is_spread
        self._missing: set[int] = set()
        self._since = 0.0
        self._has_lost = False

    def missing(self) -> int | None:
        """Return a rank that has ended while others wait for it in MPI_Init; None if there is none.

        Of ranks on several hosts, also one that is lost while others have begun and not met.
        """
        ended = set() if self.is_over else self._ended()
        lost = ended & endings.ranks_without_ending(self._reports)
        self._has_lost = self._has_lost or bool(lost)
        if endings.ranks_that_start(self._reports) - ended:
            missing = ended
        else:
            missing = lost if self._is_spread and endings.ranks_that_have_begun(self._reports) - ended else set()
        now = self._clock()
        if missing != self._missing or not missing:
            self._missing, self._since = missing, now
        sure = _LONG_SECONDS if endings.ranks_that_have_begun(self._reports) else _SURE_SECONDS
        return min(missing) if missing and now - self._since > sure else None

    @property
    def is_over(self) -> bool:
        """Whether the ranks have met, after which the job continues without failed ranks."""
        return endings.have_met(self._reports)

    def may_start_again(self, starts: int, missing: int | None) -> bool:
        """Return whether a failed job may be started again after `starts` starts.

        That is so if the ranks had not met, none has reported why it failed, and the rank `missing`, which the others
        waited for, has not exited normally.
        """
        begun = endings.ranks_that_start(self._reports) | endings.ranks_that_have_begun(self._reports)
        if not begun or self.is_over or any(self._reports.glob("rank-*.txt")):
            return False
        most = MOST_STARTS if self._has_lost or missing is not None else _MOST_UNSEEN
        return starts < most and missing not in endings.ranks_that_ended(self._reports)

    def _ended(self) -> set[int]:
        processes = running_children(self._launcher)
        if processes is None:
            return set()
        return set(range(self._ranks)) - {rank for process in processes for rank in _ranks(process)}


def _ranks(process: str) -> list[int]:
    """Return the ranks that a process is, one or none."""
    variables = environment_of(process)
    return [int(text.removeprefix(_RANK)) for text in variables if text.startswith(_RANK)]
