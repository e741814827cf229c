"""Spawns new ranks for a running job from threads of rank 0; each runs the job's script in a new Python.

A new rank reports to rank 0 once its script has constructed its `Training` and built its program; the job continues
meanwhile. It then waits until the ranks merge it into their communicator.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mpi4py import MPI

from collectives import failure
from collectives.failure import REPORTS_VARIABLE
from collectives.processes import is_child
from spmd.elastic import admission
from spmd.elastic.members import Member
from spmd.elastic.newcomer import START_SECONDS, Briefing, assignment
from spmd.elastic.settings import Settings
from spmd.runtime.requests import JoinRequest, attend, open_requests

_LOOK = 0.1  # polling interval in seconds
_STOP_SECONDS = 5.0
_ATTEMPTS = 3  # consecutive failed replacements after which no more are started


def _print(text: str) -> None:
    """Print a line to stderr."""
    print(f"spmd.elastic: {text}", file=sys.stderr, flush=True)


@dataclass(eq=False)
class Recruit:
    """A rank that is being started. `peer`, its communicator with rank 0, is set once it has initialized MPI; `member`
    once it is ready to join. It runs on the host `place`, or on one that MPI chooses if that is empty.
    """

    number: int
    request: JoinRequest | None
    place: str
    started: float = field(default_factory=time.monotonic)
    peer: MPI.Intracomm | None = None
    member: Member | None = None
    failed: bool = False
    #: Whether its process has been seen on this host.
    seen: bool = False

    def bring(self, own: MPI.Intracomm, briefing: Briefing, starter: Sequence[str]) -> None:
        """Spawn the rank, through the command `starter` if there is one, and block until it is ready or has failed.

        `own` is a communicator of this process alone.
        """
        try:
            info = MPI.Info.Create()
            info["map_by"], info["bind_to"] = "slot:OVERSUBSCRIBE", "none"
            command = [sys.executable, *briefing.command(self.number)]
            if starter:
                command = [*starter, self.place, str(self.number), *command]
            elif self.place:
                info["host"] = self.place
            both = own.Spawn(command[0], command[1:], maxprocs=1, info=info)
            peer = both.Merge(high=False)
            both.Free()
            admission.send(peer, briefing)
            self.peer = peer
            while not admission.has_message(peer):
                time.sleep(_LOOK)
            ready = admission.receive(peer)
            assert isinstance(ready, Member)
            self.member = ready
        except MPI.Exception:
            self.failed = True

    @property
    def is_late(self) -> bool:
        """Whether the process has ended or timed out before it initialized MPI, which MPI does not report."""
        if self.peer is not None:
            return False
        runs = is_child(os.getppid(), assignment(self.number))
        self.seen = self.seen or runs
        return (self.seen and not runs) or time.monotonic() - self.started > START_SECONDS


class Recruiter:
    """Rank 0's thread that spawns ranks to reach the target number and to serve `spmd join` requests."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(os.environ.get(REPORTS_VARIABLE, os.devnull))
        self._lock = threading.Lock()
        self._members: Sequence[Member] = ()
        self._next = 0
        self._recruits: list[Recruit] = []
        self._taken: list[Recruit] = []
        self._failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elastic-recruiter", daemon=True)

    def go_on(self, members: Sequence[Member]) -> None:
        """Set the current members, and start the thread at the first call."""
        with self._lock:
            self._taken = []
            joined = {member.number for member in members} - {member.number for member in self._members}
            self._members = members
            self._next = max(self._next, 1 + max(member.number for member in members))
        if not self._thread.is_alive():
            self._thread.start()
            atexit.register(self.stop)  # runs before MPI_Finalize, so that spawned ranks do not block forever
        elif joined:
            self._failures = 0

    @property
    def planned(self) -> int:
        """The number of ranks once all spawned ranks that have initialized MPI have joined."""
        return len(self._members) + sum(recruit.peer is not None for recruit in self._recruits)

    @property
    def has_ready(self) -> bool:
        return any(recruit.member is not None for recruit in self._recruits)

    def take(self) -> list[Recruit]:
        """Remove and return the ranks that are ready; the caller reports the outcome through `settle`."""
        with self._lock:
            self._taken = [recruit for recruit in self._recruits if recruit.member is not None]
            self._recruits = [recruit for recruit in self._recruits if recruit not in self._taken]
            return self._taken

    def settle(self, recruits: Sequence[Recruit], *, joined: bool) -> None:
        """Answer the join requests behind `recruits`, and count the failures."""
        for recruit in recruits:
            if joined:
                self._reply(recruit, f"{recruit.member} joined", joined=True)
            else:
                self._lose(recruit, "could not join")

    def stop(self) -> None:
        """Stop the thread, and dismiss the ranks that have not joined.

        A rank that has not initialized MPI within `_STOP_SECONDS` is ended by its own SIGALRM or by the launcher
        (`launch.stopped`): its MPI_Comm_spawn may never return.
        """
        atexit.unregister(self.stop)
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        deadline = time.monotonic() + _STOP_SECONDS
        for recruit in self._recruits:
            while recruit.peer is None and not recruit.failed and not recruit.is_late:
                if time.monotonic() > deadline:
                    failure.leave_at_end()  # a thread is still in MPI_Comm_spawn
                    break
                time.sleep(_LOOK / 10)
            if recruit.peer is not None and not recruit.failed:
                with suppress(MPI.Exception):  # it has failed
                    admission.send(recruit.peer, None, admission.DISMISSAL)
            self._reply(recruit, "the job has ended", joined=False)
        for request in self._requests():
            request.answer("the job has ended", joined=False)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK):
            attend(self._folder)
            for recruit in [recruit for recruit in self._recruits if recruit.failed or recruit.is_late]:
                with self._lock:
                    self._recruits.remove(recruit)
                self._lose(recruit, "ended before it joined" if recruit.failed else "did not start in time")
            with self._lock:
                self._start_missing()

    def _start_missing(self) -> None:
        if self._taken or any(recruit.peer is None for recruit in self._recruits):
            return  # start one rank at a time
        ranks = len(self._members) + len(self._recruits)
        waiting = [request for request in self._requests() if request not in [r.request for r in self._recruits]]
        if ranks < self._settings.target and self._failures < _ATTEMPTS:
            self._start(waiting[0] if waiting else None, ranks + 1)
        elif waiting and ranks < self._settings.most:
            self._start(waiting[0], ranks + 1)
        elif waiting:
            waiting[0].answer(f"the job has {ranks} ranks, and may have {self._settings.most}", joined=False)

    def _start(self, request: JoinRequest | None, ranks: int) -> None:
        recruit = Recruit(self._next, request, self._place(request))
        self._next += 1
        self._recruits.append(recruit)
        arguments = MPI.COMM_SELF.Dup(), Briefing.of_this_process(ranks), self._settings.starter
        threading.Thread(target=recruit.bring, args=arguments, name=f"rank {recruit.number}", daemon=True).start()

    def _place(self, request: JoinRequest | None) -> str:
        """Return the host that `request` names, or else the host with live ranks that has the fewest."""
        if request is not None and request.host:
            return request.host
        places = Counter(member.place for member in self._members)
        places.update(recruit.place for recruit in self._recruits if recruit.place in places)
        return min(places, key=places.__getitem__)

    def _requests(self) -> list[JoinRequest]:
        return open_requests(self._folder) if self._folder.is_dir() else []

    def _lose(self, recruit: Recruit, how: str) -> None:
        self._failures += recruit.request is None
        given_up = f", and is the last of {_ATTEMPTS} to be started" if self._failures >= _ATTEMPTS else ""
        _print(f"rank {recruit.number} was to join, and {how}{given_up}")
        self._reply(recruit, f"rank {recruit.number} {how}", joined=False)

    @staticmethod
    def _reply(recruit: Recruit, sentence: str, *, joined: bool) -> None:
        if recruit.request is not None:
            recruit.request.answer(sentence, joined=joined)
