"""Kills ranks that block the job or its end: stopped ranks, and new ranks that can no longer join."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from collectives import endings
from collectives.processes import command_of, running_children, state_of

#: Matches the command line of a joining rank (`spmd.elastic.newcomer`).
_JOINING = re.compile(rb"SPMD_ELASTIC_RANK'\] = '(\d+)'")


class StoppedRanks:
    """Kills children of `parent` that have been stopped for `patience` seconds of `clock`.

    With `spare_all` none is killed while all of them are stopped: the user has then suspended the job.
    """

    def __init__(
        self, parent: int, patience: float, *, spare_all: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._parent, self._patience, self._spare_all, self._clock = parent, patience, spare_all, clock
        self._since: dict[str, float] = {}

    def look(self) -> list[str]:
        """Kill the ranks that are due; return no messages, since MPI reports the failures."""
        children = running_children(self._parent) or []
        stopped = [child for child in children if state_of(child) == "T"]
        if self._spare_all and len(stopped) == len(children):
            stopped = []
        now = self._clock()
        self._since = {child: self._since.get(child, now) for child in stopped}
        for child, since in self._since.items():
            if now - since > self._patience:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
        return []


class UnneededRanks:
    """Kills children of `launcher` that block in MPI_Init as new ranks after other ranks have finished.

    The rank that spawned them has failed, and the launcher would wait for them. `reports` is the job's folder.
    """

    def __init__(self, launcher: int, reports: Path, grace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher, self._reports, self._grace, self._clock = launcher, reports, grace, clock
        self._since: float | None = None

    def look(self) -> list[str]:
        """Kill these ranks `grace` seconds after the first rank has ended."""
        if not endings.ranks_that_ended(self._reports):
            return []
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since > self._grace:
            begun = endings.ranks_that_have_begun(self._reports)
            for child in running_children(self._launcher) or []:
                with contextlib.suppress(OSError):
                    joining = _JOINING.search(command_of(child))
                    if joining is not None and int(joining[1]) not in begun:
                        os.kill(int(child), signal.SIGKILL)
        return []
