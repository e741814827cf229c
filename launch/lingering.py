"""Detection of launchers that outlive their ranks: Open MPI's may hang while it handles the end of its ranks.

PRRTE 3.0 may free a job's record twice when several ranks end while others fail; its launcher then blocks on a lock in
freed memory, handles no signals, and keeps its parent's output streams open.
"""

import time
from collections.abc import Callable

from collectives.processes import running_children

#: Seconds in which a launcher on a busy machine ends after its last rank.
SURE_SECONDS = 5.0


class Lingering:
    """Watches the process `launcher`, all of whose ranks are its children on this machine.

    It lingers if all of them have been gone for `sure` seconds of `clock`.
    """

    def __init__(self, launcher: int, sure: float = SURE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher, self._sure, self._clock = launcher, sure, clock
        self._had_ranks = False
        self._since: float | None = None

    def lingers(self) -> bool:
        """Return whether the launcher has started ranks, and all of them have been gone for some seconds."""
        if running_children(self._launcher) != []:
            self._had_ranks, self._since = True, None
            return False
        now = self._clock()
        self._since = now if self._since is None else self._since
        return self._had_ranks and now - self._since > self._sure
