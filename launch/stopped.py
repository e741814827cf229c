"""Ranks that are stopped (SIGSTOP) and do not go on: the others would wait for them, in MPI's start for ever."""

import contextlib
import os
import signal
import time

from launch.lingering import running_children, state_of


class StoppedRanks:
    """Kills those of the children of `parent` that have been stopped for `patience` seconds.

    With `spare_all` none is killed while all of them are stopped: then somebody has suspended the job.
    """

    def __init__(self, parent: int, patience: float, *, spare_all: bool) -> None:
        self._parent, self._patience, self._spare_all = parent, patience, spare_all
        self._since: dict[str, float] = {}

    def look(self) -> list[str]:
        """Kills those that are due; no messages: that they are lost is known soon."""
        children = running_children(self._parent) or []
        stopped = [child for child in children if state_of(child) == "T"]
        if self._spare_all and len(stopped) == len(children):
            stopped = []
        now = time.monotonic()
        self._since = {child: self._since.get(child, now) for child in stopped}
        for child, since in self._since.items():
            if now - since > self._patience:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
        return []
