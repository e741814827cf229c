"""Watching over ranks that wait: who waits too long, for whom, and whether in vain.

A thread of each rank answers questions about it, by messages on a communicator that threads alone use, while the main
thread may be deep inside an MPI call. A rank that waits longer than the timeout asks all others and tells the whole
picture in one message. Nothing of this runs between looks, and the path of a collective does not know of it.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpi4py import MPI

from collectives import failure
from collectives.activity import Activity, Waiting
from collectives.first_calls import FirstCalls
from collectives.mpi_losses import comes_of_loss
from collectives.mpi_request import stop_progress, unfinished
from collectives.mpi_sends import PendingSends
from collectives.recorder import RECORDER
from collectives.records import advice
from collectives.settings import WatchSettings
from collectives.states import ranks_text, states_text

log = logging.getLogger("collectives")

_LOOK = 0.1  # seconds between two looks
_ANSWER = 2.0  # seconds that a rank is given to answer
_SUSPECT = 1.0  # seconds of waiting after which a checked rank asks whether it waits in vain, and as long again
_SURE = 2.0  # seconds after which nothing that a rank had sent before it ended is still on its way
_TIMES = 5
_LAST_WORDS = 0.02  # seconds that what was sent before all had ended may be on its way
_RECORDING = 0.6  # seconds that the others are given to write what they recorded
_TAG = 0
#: Those behind it are for other threads that use the communicator.
LAST_TAG = _TAG


@dataclass(frozen=True)
class State:
    """What a rank says of itself: what it waits in (None: it computes), which communication that is, and how long."""

    waiting: Waiting | None
    count: int
    seconds: float
    ended: bool = False

    def __str__(self) -> str:
        if self.ended:
            return "has ended"
        if self.waiting is None:
            return "computes"
        return f"waits {self.seconds:.0f} s in {self.waiting.text}"


def warn(text: str) -> None:
    """Tells, and nothing else."""
    log.warning("%s", text)


class Watcher:
    """The thread that watches one rank and answers for it.

    ``verdict`` is set when the rank waits in vain, as far as all ranks together know; calls that wait step by step
    raise it. ``end_job`` is called with the message when a timeout is to end the job.
    """

    def __init__(self, comm: MPI.Intracomm, activity: Activity, settings: WatchSettings) -> None:
        self.timeout = settings.timeout
        self.abort = settings.abort
        self.end_job: Callable[[str], None] = failure.fail
        self.verdict: str | None = None
        self.suspicious = False
        #: A duplicate of the ranks' for messages of threads: it serves on while ranks are lost, until others are made.
        self.comm = comm
        self._activity = activity
        self._count = -1
        self._since = time.monotonic()
        self._ended = False
        self._answers: dict[int, State] = {}
        #: When the last round of questions about a wait that may be in vain was.
        self._accused = 0.0
        #: How many times ranks that are waited for have been asked whether they have ended.
        self._probed = 0
        #: What ranks that have ended had begun by then, by group.
        self._gone: dict[int, Mapping[tuple[int, ...], int]] = {}
        self._sends = PendingSends(comm)
        self._round = 0
        self._reported = 0.0
        self._insisted: tuple[int, float] | None = None
        self._stop = threading.Event()
        self._lock = threading.RLock()
        #: The ranks that have written what they recorded, since they were last told to.
        self._recorded: set[int] = set()
        self._first_calls = FirstCalls(comm.rank)
        self._advised = False
        self._thread = threading.Thread(target=self._run, name="mpi-watch", daemon=True)
        self._thread.start()
        atexit.register(self._farewell)

    def state(self) -> State:
        """What this rank does at this moment."""
        waiting, count = self._activity.waiting, self._activity.count
        if count != self._count or waiting is None:
            self._count, self._since, self._reported = count, time.monotonic(), 0.0
        return State(waiting, count, time.monotonic() - self._since, self._ended)

    def stop(self) -> None:
        """Watches no longer, and waits for nobody in the end: ranks are lost, and others watch what goes on."""
        atexit.unregister(self._farewell)
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_LOOK):
                self._look()
        except MPI.Exception as error:
            if not comes_of_loss(error, self.comm):
                raise

    def _look(self) -> None:
        with self._lock:
            self._serve()
            if reason := RECORDER.request():
                RECORDER.write(reason, goes_on=True)
            self._compare_first_calls()
            state = self.state()
            if state.waiting is None or self._ended:
                return
            if self.verdict is not None:
                self._insist(state)
                return
            self._suspect(state, state.waiting)
            if self.timeout and state.seconds - self._reported > self.timeout:
                self._reported = state.seconds
                self._report()

    def _suspect(self, state: State, waiting: Waiting) -> None:
        """Looks whether the wait is in vain, where that can be known."""
        if state.seconds > _SURE and (ended := self._never_came(waiting)):
            text = f"process {self.comm.rank} waits in vain for {ranks_text(ended)}\n"
            self.verdict = text + states_text(self._texts(self._ask_all()))
            return
        if state.seconds > _SUSPECT and waiting.ranks:
            self._probed += 1  # one at a look, each rank another one: many ranks that wait for one do not flood it
            self._tell(waiting.ranks[(self.comm.rank + self._probed) % len(waiting.ranks)], ("probe", 0, None))
        if (self.suspicious or waiting.settles) and state.seconds > _SUSPECT:
            now = time.monotonic()
            if now - self._accused > _SUSPECT:
                self._accuse()
                self._accused = time.monotonic()

    def _never_came(self, waiting: Waiting) -> list[int]:
        """The ranks that have ended, and had not begun what this one waits for them in."""
        awaited = self._gone.keys() & set(waiting.ranks)
        return sorted(r for r in awaited if not waiting.group or self._gone[r].get(waiting.group, 0) < waiting.turn)

    def _insist(self, state: State) -> None:
        """Ends the job when the rank does not raise the verdict, since it waits deep inside MPI."""
        now = time.monotonic()
        if self._insisted is None or self._insisted[0] != state.count:
            self._insisted = state.count, now
        elif now - self._insisted[1] > _ANSWER and self.verdict is not None:
            self.end_job(self.verdict)

    def _serve(self) -> None:
        status = MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
            kind, number, content = self.comm.recv(source=status.Get_source(), tag=_TAG)
            if kind == "ask":
                self._tell(status.Get_source(), ("state", number, self.state()))
            elif kind == "state" and number == self._round:
                self._answers[status.Get_source()] = content
            elif kind == "verdict":
                self.verdict = content
            elif kind == "probe":
                if self._ended:
                    self._tell(status.Get_source(), ("ended", 0, self._activity.begun()))
            elif kind == "ended":
                self._gone[status.Get_source()] = content
            elif kind == "calls":
                self._first_calls.hear(status.Get_source(), content)
            elif kind == "record":
                RECORDER.write(content)
                self._tell(status.Get_source(), ("recorded", 0, None))
            elif kind == "recorded":
                self._recorded.add(status.Get_source())

    def _compare_first_calls(self) -> None:
        """Tells the next process of each group what this one has called for the first time, and ends the job where the
        one before has called something else as the same of the group's collectives: what either got is wrong."""
        for rank, calls in self._first_calls.new(self._activity.firsts).items():
            self._tell(rank, ("calls", 0, calls))
        if fault := self._first_calls.difference():
            self.end_job(fault)

    def record(self, reason: str) -> Path | None:
        """Has all ranks write what they have recorded, and waits a moment for it: the folder of that, or None."""
        if not self._lock.acquire(timeout=_RECORDING):
            return RECORDER.write(reason)
        try:
            self._recorded = set()
            others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
            for rank in others:
                self._tell(rank, ("record", 0, reason))
            folder = RECORDER.write(reason)
            end = time.monotonic() + _RECORDING
            while folder is not None and len(self._recorded) < len(others) and time.monotonic() < end:
                self._serve()
                time.sleep(0.005)
            return folder
        except MPI.Exception:
            return RECORDER.write(reason)  # ranks are lost
        finally:
            self._lock.release()

    def _tell(self, rank: int, message: Any) -> None:
        self._sends.add(self.comm.isend(message, rank, _TAG))

    def _ask_all(self) -> Mapping[int, State]:
        """The states of all ranks that answer in time."""
        self._round += 1
        others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        self._answers = {self.comm.rank: self.state()}
        for rank in others:
            self._tell(rank, ("ask", self._round, None))
        end = time.monotonic() + _ANSWER
        while len(self._answers) <= len(others) and time.monotonic() < end:
            self._serve()
            time.sleep(0.005)
        return dict(self._answers)

    def _texts(self, states: Mapping[int, State]) -> dict[int, str]:
        return {r: str(states[r]) if r in states else "does not answer" for r in range(self.comm.size)}

    def _report(self) -> None:
        states = self._ask_all()
        longest = [r for r, s in states.items() if s.waiting and not s.ended and s.seconds > self.timeout - 1]
        if longest and self.comm.rank != min(longest):
            return  # one message is enough
        own = self.state()
        if own.waiting is None or own.seconds < self.timeout:
            return  # the wait ended while the others were asked
        text = f"process {self.comm.rank} has waited {own.seconds:.0f} s\n" + states_text(self._texts(states))
        self._warn(text)

    def _tell_of_others(self, waited: float) -> None:
        """This rank has ended and cannot leave before the others; the lowest such rank says so."""
        states = self._ask_all()
        if len(states) == self.comm.size and all(state.ended for state in states.values()):
            return  # they have ended meanwhile
        if min(rank for rank, state in states.items() if state.ended) == self.comm.rank:
            text = f"process {self.comm.rank} has ended {waited:.0f} s ago and waits for the others to end\n"
            self._warn(text + states_text(self._texts(states)))

    def _warn(self, text: str) -> None:
        if self.abort:
            self.end_job(text)
        else:
            written = self.record(text.partition("\n")[0])
            warn(text if self._advised or not written else f"{text}\n{advice(written)}")
            self._advised = True

    def _accuse(self) -> None:
        """Asks again and again; when nothing moves and the waits can never end, says so to all who wait.

        A rank may have been answered and not have had a processor to see it: it is given time.
        """
        first = self._ask_all()
        stuck = waits_in_vain(self.comm.rank, first)
        if not stuck:
            return
        for _ in range(_TIMES):
            time.sleep(_SUSPECT / _TIMES)
            second = self._ask_all()
            if waits_in_vain(self.comm.rank, second) != stuck or any(first[r].count != second[r].count for r in stuck):
                return
        waiting = sorted(r for r in stuck if not second[r].ended)
        text = f"{ranks_text(waiting)} wait{'s' * (len(waiting) == 1)} in vain\n" + states_text(self._texts(second))
        for rank in waiting:
            if rank != self.comm.rank:
                self._tell(rank, ("verdict", 0, text))
        self.verdict = text

    def _farewell(self) -> None:
        """Answers for this rank, which has ended, until all have."""
        if MPI.Is_finalized():
            return
        self._stop.set()
        self._thread.join()
        self._ended = True
        try:
            self._outlast_others()
        except MPI.Exception as error:
            if not comes_of_loss(error, self.comm):
                raise
        stop_progress()

    def _outlast_others(self) -> None:
        late = bool(self._activity.firsts)
        self._compare_first_calls()
        everyone = self.comm.Ibarrier()
        since, told = time.monotonic(), 0.0
        while not everyone.Test():
            self._serve()
            self._compare_first_calls()
            waited = time.monotonic() - since
            if self.timeout and waited - told > self.timeout:
                told = waited
                self._tell_of_others(waited)
            time.sleep(0.001)
        end = time.monotonic() + _LAST_WORDS * late
        while time.monotonic() < end:
            self._serve()
            self._compare_first_calls()
            time.sleep(0.001)
        # Nobody is left to receive anything; what is on its way has a moment to arrive.
        end = time.monotonic() + _ANSWER
        while unfinished() and time.monotonic() < end:
            time.sleep(0.001)
        if lost := unfinished():
            self.end_job("\n".join(lost))


def waits_in_vain(rank: int, states: Mapping[int, State]) -> frozenset[int]:
    """The ranks that ``rank`` waits for, directly or not, when none of them can go on; else nothing.

    They can when one of them computes or does not answer, or when they all wait in one communication, which is
    merely slow.
    """
    waiting_in_vain: set[int] = set()
    pending: Iterable[int] = [rank]
    while pending:
        waiting_in_vain.update(pending)
        waits = [states.get(r) for r in pending]
        if any(s is None or (s.waiting is None and not s.ended) for s in waits):
            return frozenset()
        pending = {r for s in waits if s and s.waiting and not s.ended for r in s.waiting.ranks} - waiting_in_vain
    texts = {"" if (waiting := states[r].waiting) is None or states[r].ended else waiting.text for r in waiting_in_vain}
    return frozenset(waiting_in_vain) if len(texts) > 1 or len(waiting_in_vain) == 1 else frozenset()
