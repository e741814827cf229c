"""The ranks of an elastic job by what stays when they are numbered anew, the process that each is; how they change."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from spmd.runtime import failure


@dataclass(frozen=True)
class Member:
    """A process: its rank when the job began (or its place among those that joined), host, id and time of start."""

    name: str
    host: str
    process: int
    started: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.process} on {self.host})"

    @property
    def is_here(self) -> bool:
        return self.host == os.uname().nodename

    def end(self) -> bool:
        """Ends the process, which may be stopped; of this host alone. Whether there was one: an id may serve again."""
        if not self.is_here or not self.started or _started(self.process) != self.started:
            return False
        os.kill(self.process, signal.SIGKILL)
        return True


@dataclass(frozen=True)
class Change:
    """The ranks have changed: who was `lost`, how many `ranks` there are now, which `step` comes next, and how many
    `seconds` passed from the moment this rank found out."""

    lost: tuple[Member, ...]
    ranks: int
    step: int
    seconds: float

    def __str__(self) -> str:
        lost = ", ".join(map(str, self.lost))
        return f"lost {lost}; {self.ranks} ranks go on with step {self.step} after {self.seconds:.3f} s"


def this_process(rank: int) -> Member:
    """This process, which is `rank` of the ranks as the job began."""
    launched = failure.launched_rank()
    name = f"rank {rank if launched is None else launched}"
    return Member(name, os.uname().nodename, os.getpid(), _started(os.getpid()))


def _started(process: int) -> str:
    """When a process started, in ticks since the machine did; empty where the system does not tell, or it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
