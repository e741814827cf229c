"""The ranks of an elastic job by what stays when they are numbered anew, the process that each is; how they change."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import Enum, auto

from collectives import failure
from collectives.processes import start_of


@dataclass(frozen=True)
class Member:
    """A process: the `number` that its rank was when the job began (those that join count on), host, id and start.

    `place` is what the launcher calls the host.
    """

    number: int
    host: str
    process: int
    started: str
    place: str = ""

    @property
    def name(self) -> str:
        return f"rank {self.number}"

    def __str__(self) -> str:
        return f"{self.name} (process {self.process} on {self.host})"

    @property
    def is_here(self) -> bool:
        return self.host == os.uname().nodename

    def end(self) -> bool:
        """Ends the process, which may be stopped; of this host alone. Whether there was one: an id may serve again."""
        if not self.is_here or not self.started or start_of(self.process) != self.started:
            return False
        os.kill(self.process, signal.SIGKILL)
        return True


class Reason(Enum):
    """Why ranks meet: some are `LOST`; so they have `AGREED` already; they were `CALLED`, as some are to join."""

    LOST = auto()
    AGREED = auto()
    CALLED = auto()


@dataclass(frozen=True)
class Change:
    """The ranks have changed: who was `lost`, who has `joined`, how many `ranks` there are now, which `step` comes
    next, and how many `seconds` passed from the moment this rank found out. Where blocks of the state were lost, it is
    that of a checkpoint."""

    lost: tuple[Member, ...]
    joined: tuple[Member, ...]
    ranks: int
    step: int
    seconds: float
    from_checkpoint: bool = False

    def __str__(self) -> str:
        what = [f"lost {', '.join(map(str, self.lost))}"] if self.lost else []
        what += [f"{', '.join(map(str, self.joined))} joined"] if self.joined else []
        what += ["blocks of the state are lost, and the newest checkpoint is taken"] if self.from_checkpoint else []
        return f"{'; '.join([*what, ''])}{self.ranks} ranks go on with step {self.step} after {self.seconds:.3f} s"


def this_process(rank: int) -> Member:
    """This process, which is `rank` of the ranks as the job began."""
    launched = failure.launched_rank()
    number = rank if launched is None else launched
    place = os.environ.get(failure.PLACE_VARIABLE, "")
    return Member(number, os.uname().nodename, os.getpid(), start_of(os.getpid()), place)
