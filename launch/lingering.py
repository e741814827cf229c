"""Launchers that outlive all that they have started: Open MPI's may hang when it takes note of its ranks' end.

PRRTE 3.0 may give a job's record back twice when several ranks end while others are lost; its launcher then waits for
a lock in memory that it has given back, hears no signal, and holds the streams of whoever started it.
"""

import shutil
import tempfile
import time
from pathlib import Path

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


def running_children(process: int) -> list[str] | None:
    """The processes that `process` has started and that have not ended; None where it has itself, or nobody tells."""
    try:
        lists = [path.read_text().split() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return None
    return [child for children in lists for child in children if _runs(child)] if lists else None


def _runs(process: str) -> bool:
    return state_of(process) not in "ZX"


def state_of(process: str) -> str:
    """The state of a process, as Linux names it (R, S, T: stopped, Z: ended, ...); X where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"
