"""The ranks of an elastic job, as they are lost.

Whoever finds that ranks are lost revokes all communicators, so that everybody finds out. All that live then meet: they
shrink the communicator of all ranks, make what is needed on the new one, and agree whether everyone could. Where a rank
is lost meanwhile, they meet again.

Source: MPI Forum, "User-Level Failure Mitigation": MPI_Comm_revoke, MPI_Comm_shrink, MPI_Comm_agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import cast

from mpi4py import MPI

from collectives.mpi import MpiCommunicator
from collectives.mpi_losses import comes_of_mpi, is_loss, tells_of_loss, tolerates_faults
from spmd.checkpoint import processes as checkpoint_processes
from spmd.checkpoint import writing as checkpoint_writing
from spmd.elastic.heart import Heart
from spmd.elastic.members import Member, this_process
from spmd.elastic.settings import Settings
from spmd.runtime import failure, world

#: Brings all ranks of a communicator to one state.
HandOver = Callable[[MPI.Intracomm], None]

_MOMENT = 2.0  # seconds


class Session:
    """All ranks of this job that live; where MPI tolerates no faults they are all that there were."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.members: Sequence[Member] = ()
        self._heart: Heart | None = None
        self.is_elastic = tolerates_faults()

    @property
    def rank(self) -> int:
        """This process's, among those that live."""
        return world.base().rank

    @property
    def ranks(self) -> int:
        """How many live."""
        return world.base().size

    def tells_of_loss(self, error: BaseException) -> bool:
        """Whether `error` comes of ranks that are lost. MPI may know of the loss a moment later than of its effect."""
        if not self.is_elastic or not comes_of_mpi(error):
            return False
        deadline = time.monotonic() + _MOMENT
        while not (found := tells_of_loss(error, world.base())) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def start(self, hand_over: HandOver) -> None:
        """Begins to watch over the ranks. Collective; `hand_over` as in `recover`."""
        if self.is_elastic:
            before = world.base()
            self._meet(before, hand_over)
            MpiCommunicator.retire(before)
        else:
            hand_over(world.base())

    def recover(self, hand_over: HandOver, *, agreed: bool = False) -> tuple[Member, ...]:
        """Goes on with the ranks that live, and returns who is lost. Collective among them.

        `hand_over(comm)` brings all ranks of `comm` to one state. It may be called more than once.

        :param agreed: whether `agree` has been called since the ranks were last made.
        """
        before = self.members
        self._retire()
        if not agreed:
            self.agree(False)
        self._meet(world.base(), hand_over)
        return tuple(member for member in before if member not in self.members)

    def agree(self, whether: bool) -> bool:
        """Whether all ranks say so, and none is newly lost: the same answer at every rank that lives."""
        return _agree(world.base(), whether) if self.is_elastic else whether

    def _meet(self, comm: MPI.Intracomm, hand_over: HandOver) -> None:
        """Makes all that is needed on a communicator of the ranks of `comm` that live, until every one of them could.

        Until then the heart of before goes on beating.
        """
        while True:
            comm = cast(MPI.Intracomm, comm.Shrink())
            beats: MPI.Intracomm | None = None
            try:
                world.renew(comm)
                self.members = comm.allgather(this_process(MPI.COMM_WORLD.rank))
                beats = comm.Dup()
                self._check_number()
                hand_over(comm)
            except Exception as error:
                if not self.tells_of_loss(error):
                    raise
                comm.Revoke()
                beats = None
            if _agree(comm, beats is not None):
                break
            self._retire()
        self._beat(beats)

    def _beat(self, comm: MPI.Intracomm | None) -> None:
        if self._heart is not None:
            self._heart.stop()
            self._heart = None
        if comm is not None and comm.size > 1 and self._settings.patience:
            self._heart = Heart(comm, self.members, self._settings.patience)

    def _check_number(self) -> None:
        if self.ranks < self._settings.minimum:
            failure.fail(f"{self.ranks} ranks are left, and the job goes on with {self._settings.minimum} or more")

    def _retire(self) -> None:
        """Lets go of what the ranks have had in common: nobody waits there any longer."""
        comm = world.base()
        comm.Revoke()
        MpiCommunicator.retire(comm)
        checkpoint_processes.retire()
        checkpoint_writing.abandon()


def _agree(comm: MPI.Intracomm, whether: bool) -> bool:
    try:
        return bool(comm.Agree(int(whether)))
    except MPI.Exception:
        if not is_loss(comm):
            raise
        return False
