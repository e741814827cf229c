"""The set of ranks of an elastic job, and its recovery when ranks fail or join.

A rank that detects a failure revokes all communicators, so that every rank gets an error. The surviving ranks then
meet: they shrink the communicator of all ranks, merge the joining ranks into it, create the communicators that they
need on the result, and agree whether this succeeded on all of them. If a rank fails meanwhile, they repeat this. When
ranks are ready to join, rank 0 announces it before it begins a step, and the ranks meet before the next step.

Source: MPI Forum, "User-Level Failure Mitigation": MPI_Comm_revoke, MPI_Comm_shrink, MPI_Comm_agree.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from mpi4py import MPI

from collectives import endings, failure
from collectives.mpi import MpiCommunicator
from collectives.mpi.losses import comes_of_loss, garbage_is_loss, is_loss, is_soon_lost, tolerates_faults
from collectives.mpi.watch import Watcher
from spmd.checkpoint import writing as checkpoint_writing
from spmd.elastic import admission, newcomer
from spmd.elastic.heartbeat import Heartbeat
from spmd.elastic.members import Member, Reason, this_process
from spmd.elastic.recruiting import Recruit, Recruiter
from spmd.elastic.settings import Settings
from spmd.runtime import world

#: Brings all ranks of a communicator to one state.
HandOver = Callable[[MPI.Intracomm], None]

_QUIET = 0.05  # seconds without further failures, after which the ranks shrink the communicator
_GRACE = 1.0  # seconds for which rank 0 waits for the other ranks to arrive at a meeting
_PLAN, _CALL, _HERE = 1, 2, 3  # tags, on the communicator of all ranks


class Session:
    """The live ranks of this job; all of its ranks if MPI is not fault tolerant."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.members: Sequence[Member] = ()
        self._heartbeat: Heartbeat | None = None
        #: The error that the ranks are recovering from.
        self._known: BaseException | None = None
        self.is_elastic = tolerates_faults()
        self._invitation = newcomer.invitation() if self.is_elastic else None
        self._recruiter = Recruiter(settings) if self.is_elastic and settings.grows else None
        #: The step before which the ranks meet, once rank 0 has announced it.
        self._meeting: int | None = None
        #: The number of ranks after joining that rank 0 announced last.
        self._planned = 0

    @property
    def rank(self) -> int:
        """This process's rank among the live ranks."""
        return world.base().rank

    @property
    def ranks(self) -> int:
        """The number of live ranks."""
        return world.base().size

    @property
    def is_new(self) -> bool:
        """Whether this process was spawned to join a running job and has not joined yet."""
        return self._invitation is not None

    @property
    def expected(self) -> int:
        """The number of ranks, counting those that are joining."""
        return self.ranks if self._invitation is None else self._invitation.ranks

    def tells_of_loss(self, error: BaseException) -> bool:
        """Return whether `error` was caused by a rank failure."""
        return self.is_elastic and comes_of_loss(error, world.base(), self._known)

    def start(self, hand_over: HandOver) -> None:
        """Create the communicators and start the heartbeat. Collective; `hand_over` as in `recover`."""
        if self._invitation is not None:
            world.keep_share()
            comm = self._invitation.accept()
            if not self._settle(comm, hand_over):
                self._meet(comm, hand_over)
            self._invitation = None
        elif self.is_elastic:
            before = world.base()
            self._meet(before, hand_over)
            MpiCommunicator.retire(before)
            endings.note_meeting(Path(os.environ.get(failure.REPORTS_VARIABLE, os.devnull)))
        else:
            hand_over(world.base())

    def recover(self, hand_over: HandOver, reason: Reason) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
        """Continue with the surviving ranks; return the members lost and joined. Collective among those ranks.

        `hand_over(comm)` brings all ranks of `comm` to one state. It may be called more than once.
        """
        before = self.members
        self._known = sys.exc_info()[1]
        if self._heartbeat is not None:
            self._heartbeat.end_if_another_failed()
        if reason is Reason.CALLED:
            self._wait_for_all()
        self._retire()
        if reason is not Reason.AGREED:
            self.agree(False)
        self._meet(world.base(), hand_over)
        self._known = None
        lost = tuple(member for member in before if member not in self.members)
        return lost, tuple(member for member in self.members if member not in before)

    def agree(self, whether: bool) -> bool:
        """Return the logical and of `whether` over the ranks, False if one has newly failed; the same on all live
        ranks.
        """
        return _agree(world.base(), whether) if self.is_elastic else whether

    def is_called(self, number: int, prepare: Callable[[int], None]) -> bool:
        """Return whether the ranks meet before step `number`, which this rank is about to begin, so that new ones can
        join.

        Calls `prepare(ranks)` when rank 0 announces the number of ranks after joining.
        """
        if self._recruiter is None:
            return False
        if self._meeting is None:
            try:
                if self.rank == 0:
                    self._call(self._recruiter, number + 1, prepare)
                else:
                    self._listen(prepare)
            except MPI.Exception as error:
                if not self.tells_of_loss(error):
                    raise
        return self._meeting is not None and number >= self._meeting

    def end(self) -> None:
        """Stop starting ranks, and dismiss those that have not joined."""
        if self._recruiter is not None:
            self._recruiter.stop()

    def _call(self, recruiter: Recruiter, number: int, prepare: Callable[[int], None]) -> None:
        """Announce, on rank 0, the number of ranks once one has been spawned, and the meeting once it is ready."""
        if recruiter.planned > self._planned:
            self._planned = recruiter.planned
            prepare(self._planned)
            self._tell_all(_PLAN, self._planned)
        if recruiter.has_ready:
            self._meeting = number
            self._tell_all(_CALL, number)

    def _tell_all(self, tag: int, number: int) -> None:
        comm = world.base()
        for rank in range(1, comm.size):
            comm.send(number, rank, tag)

    def _listen(self, prepare: Callable[[int], None]) -> None:
        comm = world.base()
        if comm.Iprobe(0, _PLAN):
            with garbage_is_loss(comm):
                planned = comm.recv(source=0, tag=_PLAN)
            prepare(planned)
        if comm.Iprobe(0, _CALL):
            with garbage_is_loss(comm):
                self._meeting = comm.recv(source=0, tag=_CALL)

    def _wait_for_all(self) -> None:
        """Wait until no rank is in a step.

        A rank that has not received the announcement may be blocked in the next step, so rank 0 waits for at most
        `_GRACE` seconds.
        """
        comm = world.base()
        try:
            with garbage_is_loss(comm):
                if comm.rank:
                    comm.send(None, 0, _HERE)
                    comm.recv(source=0, tag=_HERE)  # until rank 0 revokes the communicator
                    return
                deadline = time.monotonic() + _GRACE
                missing = comm.size - 1
                while missing and time.monotonic() < deadline and not is_loss(comm):
                    if comm.Iprobe(MPI.ANY_SOURCE, _HERE):
                        comm.recv(tag=_HERE)
                        missing -= 1
        except MPI.Exception as error:
            if not self.tells_of_loss(error):
                raise

    def _meet(self, comm: MPI.Intracomm, hand_over: HandOver) -> None:
        """Set up a communicator of the live ranks of `comm` and the joining ones; repeat until all of them succeed.

        The previous heartbeat runs until then.
        """
        while True:
            _await_quiet(comm)
            comm = _shrunken(comm)
            wider = self._widened(comm)
            if wider is not None and self._settle(wider, hand_over):
                return
            comm = wider or comm

    def _widened(self, comm: MPI.Intracomm) -> MPI.Intracomm | None:
        """Merge the joining ranks into `comm`; None if that failed on any rank."""
        if self._recruiter is None:
            return comm
        recruits = self._recruiter.take() if comm.rank == 0 else []
        peers = [recruit.peer for recruit in recruits if recruit.peer is not None]
        with self._limited(recruits, [comm, *peers]):
            try:
                with garbage_is_loss(comm):
                    wider = admission.widen(comm, peers)
            except MPI.Exception as error:
                if not is_loss(comm) and not self.tells_of_loss(error):
                    raise
                wider = None
            if wider is comm:
                return comm
            failure.leave_at_end()
            could = _agree(comm, wider is not None)
        for peer in peers:
            with suppress(MPI.Exception):  # it failed; the next collective reports that to all ranks
                admission.send(peer, could)
        self._recruiter.settle(recruits, joined=could)
        return wider if could else None

    @contextmanager
    def _limited(self, recruits: Sequence[Recruit], used: Sequence[MPI.Intracomm]) -> Iterator[None]:
        """Kill `recruits` and revoke the communicators in `used` if the block takes longer than the heartbeat's
        timeout.

        A joining rank may hang.
        """

        def end() -> None:
            for recruit in recruits:
                if recruit.member is not None:
                    recruit.member.end()
            for comm in used:
                comm.Revoke()

        timer = threading.Timer(self._settings.patience, end)
        if recruits and self._settings.patience:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _settle(self, comm: MPI.Intracomm, hand_over: HandOver) -> bool:
        """Create the communicators, members and heartbeat on `comm`, and hand the state over.

        Returns whether this succeeded on all ranks; otherwise releases everything.
        """
        could, watcher = False, None
        try:
            watcher = world.renew(comm).watcher
            self._meeting, self._planned = None, comm.size
            self.members = comm.allgather(this_process(MPI.COMM_WORLD.rank))
            self._check_number()
            hand_over(comm)
            could = True
        except Exception as error:
            # A collective in which ranks failed may return anything, which may then raise any error.
            if not self.tells_of_loss(error) and not is_soon_lost(comm):
                raise
            comm.Revoke()
        if not _agree(comm, could):
            self._retire()
            return False
        self._renew_heartbeat(watcher)
        failure.before_end = self._end_others if self._settings.grows else None
        if self._recruiter is not None and comm.rank == 0:
            self._recruiter.go_on(self.members)
        return True

    def _renew_heartbeat(self, watcher: Watcher | None) -> None:
        """Restart the heartbeat on the watcher's communicator, which is never revoked.

        A separate communicator would have to be created while ranks may fail.
        """
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        if watcher is not None and self._settings.patience:
            self._heartbeat = Heartbeat(watcher.comm, self.members, self._settings.patience)

    def _end_others(self, status: int) -> None:
        """End the job when this rank fails: revoking the communicator wakes ranks that are blocked on it."""
        if self._heartbeat is not None:
            world.base().Revoke()
            self._heartbeat.send_failure(status)

    def _check_number(self) -> None:
        if self.ranks < self._settings.minimum:
            failure.fail(f"{self.ranks} ranks are left, and the job goes on with {self._settings.minimum} or more")

    def _retire(self) -> None:
        """Revoke and release the current communicator, and abandon checkpoints that are being written."""
        comm = world.base()
        comm.Revoke()
        MpiCommunicator.retire(comm)
        checkpoint_writing.abandon()


def _await_quiet(comm: MPI.Intracomm) -> None:
    """Wait until no further failure is reported for `_QUIET` seconds: simultaneous failures are reported one by one.

    Open MPI 5.0.11 crashes if a failure is reported while it creates a communicator that contains the failed rank:
    ompi_comm_revoke_local calls the communicator's collectives before they have been selected. So a meeting creates as
    few communicators as possible: the shrunken one, one for collectives, one for messages of threads.
    """
    if not is_loss(comm):
        return
    lost, since = 0, time.monotonic()
    while time.monotonic() - since < _QUIET:
        MPI.COMM_SELF.Iprobe()  # runs MPI's progress engine, which handles failure notices
        if comm.Get_failed().size != lost:
            lost, since = comm.Get_failed().size, time.monotonic()
        time.sleep(_QUIET / 10)


def _agree(comm: MPI.Intracomm, whether: bool) -> bool:
    try:
        return bool(comm.Agree(int(whether)))
    except MPI.Exception as error:
        if not comes_of_loss(error, comm):
            raise
        return False


def _shrunken(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Return a communicator of the live ranks of `comm`; repeat the shrink if further ranks fail during it."""
    for _ in range(comm.size):
        try:
            return cast(MPI.Intracomm, comm.Shrink())
        except MPI.Exception as error:
            if not comes_of_loss(error, comm):
                raise
            _await_quiet(comm)
    return cast(MPI.Intracomm, comm.Shrink())
