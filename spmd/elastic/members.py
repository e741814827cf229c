"""The processes of an elastic job, identified independently of their current rank, and the changes among them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import Enum, auto

from collectives import failure
from collectives.processes import start_of


@dataclass(frozen=True)
class Member:
    """A process of the job: its `number`, host name, process id and start time.

    `number` is its rank when the job began; ranks that join get the next numbers. `place` is the launcher's name of the
    host.
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
        """Send SIGKILL, which also ends a stopped process, and return whether it was sent.

        Not if the process runs on another host or no longer exists; comparing start times excludes a reused process id.
        """
        if not self.is_here or not self.started or start_of(self.process) != self.started:
            return False
        os.kill(self.process, signal.SIGKILL)
        return True


class Reason(Enum):
    """The reason of a recovery: `LOST`, ranks failed; `AGREED`, the same, found by an agreement;
    `CALLED`, ranks join.
    """

    LOST = auto()
    AGREED = auto()
    CALLED = auto()


@dataclass(frozen=True)
class Change:
    """A change of the ranks: processes `lost` and `joined`.

    `ranks` is the number of ranks now, `step` the next step, and `seconds` the time since this rank detected the
    change. `from_checkpoint` is set if blocks were lost and a checkpoint was restored.
    """

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
    """Return the `Member` for this process; `rank` is its rank when the job began, if the launcher
    does not pass one.
    """
    launched = failure.launched_rank()
    number = rank if launched is None else launched
    place = os.environ.get(failure.PLACE_VARIABLE, "")
    return Member(number, os.uname().nodename, os.getpid(), start_of(os.getpid()), place)
