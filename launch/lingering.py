"""Launchers that outlive all that they have started: Open MPI's may hang when it takes note of its ranks' end.

PRRTE 3.0 may give a job's record back twice when several ranks end while others are lost; its launcher then waits for
a lock in memory that it has given back, hears no signal, and holds the streams of whoever started it.
"""

import shutil
import tempfile
import time
from pathlib import Path

from collectives.processes import running_children

#: How long a launcher may take to end after its last rank, on a machine that does much else.
SURE_SECONDS = 5.0


class Lingering:
    """Watches the process `launcher`, all of whose ranks are on this machine: processes that it has started itself."""

    def __init__(self, launcher: int) -> None:
        self._launcher = launcher
        self._had_ranks = False
        self._since: float | None = None

    def lingers(self) -> bool:
        """Whether the launcher has had ranks, and for some seconds has had none."""
        if running_children(self._launcher) != []:
            self._had_ranks, self._since = True, None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return self._had_ranks and now - self._since > SURE_SECONDS

    def clean_up(self) -> None:
        """Removes the folder that the launcher, killed by now, would have removed at its end."""
        shutil.rmtree(Path(tempfile.gettempdir()) / f"ompi.{self._launcher}", ignore_errors=True)
