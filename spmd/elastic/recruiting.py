"""Starting new ranks for a job, from rank 0, behind its back: MPI starts a Python that runs the same script.

Whoever has been started says so when its script has come to its `Training`, and its program is made: nobody waits for
that. It is then one of `ready`, until the ranks meet.
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

_LOOK = 0.1  # seconds between two looks
_STOP_SECONDS = 5.0
_ATTEMPTS = 3  # to replace a rank, in a row, before it is given up


def tell(text: str) -> None:
    """On stderr."""
    print(f"spmd.elastic: {text}", file=sys.stderr, flush=True)


@dataclass(eq=False)
class Recruit:
    """A rank that has been started: with `peer`, it and rank 0, it has begun; with `member` it is ready to join.

    It runs on the host `place`; on one that MPI chooses, where that is empty.
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
        """Starts it, by `starter` if that is not MPI, and waits until it is ready or lost. `own` is a communicator of
        this process alone."""
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
            admission.tell(peer, briefing)
            self.peer = peer
            while not admission.has_told(peer):
                time.sleep(_LOOK)
            ready = admission.hear(peer)
            assert isinstance(ready, Member)
            self.member = ready
        except MPI.Exception:
            self.failed = True

    @property
    def is_late(self) -> bool:
        """Whether it should have begun long ago, or its process has ended before: MPI does not report that."""
        if self.peer is not None:
            return False
        runs = is_child(os.getppid(), assignment(self.number))
        self.seen = self.seen or runs
        return (self.seen and not runs) or time.monotonic() - self.started > START_SECONDS


class Recruiter:
    """Rank 0's thread that starts ranks where some are missing, or asked for."""

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
        """These are the ranks from now on."""
        with self._lock:
            self._taken = []
            joined = {member.number for member in members} - {member.number for member in self._members}
            self._members = members
            self._next = max(self._next, 1 + max(member.number for member in members))
        if not self._thread.is_alive():
            self._thread.start()
            atexit.register(self.stop)  # before the end of MPI: who has been started must not wait for ever
        elif joined:
            self._failures = 0

    @property
    def planned(self) -> int:
        """How many ranks there will be when all that have begun have joined."""
        return len(self._members) + sum(recruit.peer is not None for recruit in self._recruits)

    @property
    def has_ready(self) -> bool:
        return any(recruit.member is not None for recruit in self._recruits)

    def take(self) -> list[Recruit]:
        """Those that are ready; whoever takes them tells with `settle` what has become of them."""
        with self._lock:
            self._taken = [recruit for recruit in self._recruits if recruit.member is not None]
            self._recruits = [recruit for recruit in self._recruits if recruit not in self._taken]
            return self._taken

    def settle(self, recruits: Sequence[Recruit], *, joined: bool) -> None:
        """Answers who asked for them."""
        for recruit in recruits:
            if joined:
                self._answer(recruit, f"{recruit.member} joined", joined=True)
            else:
                self._lose(recruit, "could not join")

    def stop(self) -> None:
        """Starts no ranks any more, and ends those that have not joined. One on which MPI has not begun after some
        seconds is left to its alarm, and to the launcher (`launch.stopped`): MPI may never answer for it."""
        atexit.unregister(self.stop)
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        deadline = time.monotonic() + _STOP_SECONDS
        for recruit in self._recruits:
            while recruit.peer is None and not recruit.failed and not recruit.is_late:
                if time.monotonic() > deadline:
                    failure.leave_at_end()  # a thread is inside of MPI_Comm_spawn
                    break
                time.sleep(_LOOK / 10)
            if recruit.peer is not None and not recruit.failed:
                with suppress(MPI.Exception):  # it is lost
                    admission.tell(recruit.peer, None, admission.DISMISSAL)
            self._answer(recruit, "the job has ended", joined=False)
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
            return  # one after the other
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
        """The host that is named, or else, of those that are known to live, the one with the fewest ranks."""
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
        tell(f"rank {recruit.number} was to join, and {how}{given_up}")
        self._answer(recruit, f"rank {recruit.number} {how}", joined=False)

    @staticmethod
    def _answer(recruit: Recruit, sentence: str, *, joined: bool) -> None:
        if recruit.request is not None:
            recruit.request.answer(sentence, joined=joined)
