"""Detection of blocked ranks: timeouts, and deadlocks.

A thread of each rank replies to queries about the rank's state on a communicator that only these threads use, while the
main thread may be blocked in an MPI call. A rank that waits longer than the timeout queries all others and prints all
states in one message. The thread sleeps between polls, and adds no code to the path of a collective.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpi4py import MPI

from collectives import failure
from collectives.mpi.losses import comes_of_loss, garbage_is_loss
from collectives.mpi.request import stop_progress, unfinished
from collectives.mpi.sends import PendingSends
from collectives.record.activity import Activity, Counted, Waiting
from collectives.record.first_calls import FirstCalls
from collectives.record.recorder import RECORDER
from collectives.record.records import advice
from collectives.settings import WatchSettings
from collectives.states import ranks_text, states_text

log = logging.getLogger("collectives")

_LOOK = 0.1  # polling interval in seconds
_PATIENCE = 2.0  # grace period in seconds for calls that may end by themselves
_SUSPECT = 1.0  # seconds of waiting after which a checked rank looks for a deadlock, and the interval of further checks
_SURE = 2.0  # seconds after which every message that a rank sent before it exited has arrived
_TIMES = 5
_LAST_WORDS = 0.02  # seconds for which messages sent before all ranks exited may be in flight
_TAG = 0
#: Timeout in seconds for the other ranks to write their flight recordings.
RECORDING_SECONDS = 0.6
#: Higher tags are free for other threads that use the communicator.
LAST_TAG = _TAG


@dataclass(frozen=True)
class State:
    """The state that a rank reports: the call it waits in (None: it computes), which communication, and how long."""

    waiting: Waiting | None
    count: int
    seconds: float
    ended: bool = False
    #: The communications that it has begun, by group and by pairs.
    begun: Mapping[Counted, int] = field(default_factory=dict)

    @property
    def is_through(self) -> bool:
        """Whether the rank will begin no more communications of its program."""
        return self.ended or (self.waiting is not None and self.waiting.finished)

    def __str__(self) -> str:
        if self.ended:
            return "has ended"
        if self.waiting is None:
            return "computes"
        has = "has finished its program, and " if self.waiting.finished else ""
        return f"{has}waits {self.seconds:.0f} s in {self.waiting.text}"


def warn(text: str) -> None:
    """Print a warning; the job continues."""
    log.warning("%s", text)


class Watcher:
    """The thread that watches one rank and replies to queries about it.

    ``verdict`` is set to a text when the states of all ranks show that this rank's wait cannot end; calls that poll
    raise it. ``end_job`` is called with the message when a timeout has to end the job.
    """

    #: Timeout in seconds of a query.
    answer_seconds = 2.0

    def __init__(self, comm: MPI.Intracomm, activity: Activity, settings: WatchSettings) -> None:
        self.timeout = settings.timeout
        self.abort = settings.abort
        self.end_job: Callable[[str], None] = failure.fail
        self.verdict: str | None = None
        self.suspicious = False
        #: A duplicate of the ranks' communicator for threads; it stays in use during a recovery from rank failures.
        self.comm = comm
        self._activity = activity
        self._count = -1
        self._since = time.monotonic()
        self._ended = False
        self._answers: dict[int, State] = {}
        #: The time of the last round of queries about a possible deadlock.
        self._accused = 0.0
        #: The number of queries to awaited ranks about whether they have exited.
        self._probed = 0
        #: The communications that ranks had begun before they ended or finished their programs, by group and by pairs.
        self._finished: dict[int, Mapping[Counted, int]] = {}
        #: The number of programs that this rank has finished.
        self._finishes = 0
        self._sends = PendingSends(comm)
        self._round = 0
        self._reported = 0.0
        self._insisted: tuple[int, float] | None = None
        self._stop = threading.Event()
        self._lock = threading.RLock()
        #: The ranks that have written their recordings since the last request.
        self._recorded: set[int] = set()
        self._first_calls = FirstCalls(comm.rank)
        self._advised = False
        self._thread = threading.Thread(target=self._run, name="mpi-watch", daemon=True)
        self._thread.start()
        atexit.register(self._farewell)
        # MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else (MPI 4.1, section 11.2.4): for the
        # other ranks, a program that calls it ends here.
        self._at_finalize = MPI.Comm.Create_keyval(delete_fn=lambda *attribute: self._farewell())
        MPI.COMM_SELF.Set_attr(self._at_finalize, None)

    def state(self) -> State:
        """Return the current state of this rank."""
        waiting, count = self._activity.waiting, self._activity.count
        if count != self._count or waiting is None:
            self._count, self._since, self._reported = count, time.monotonic(), 0.0
        return State(waiting, count, time.monotonic() - self._since, self._ended, self._activity.begun())

    def stop(self) -> None:
        """Stop watching, and do not wait for other ranks at exit.

        Called after a rank failure, when a new watcher takes over.
        """
        atexit.unregister(self._farewell)
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if not MPI.Is_finalized():
            MPI.COMM_SELF.Delete_attr(self._at_finalize)
            MPI.Comm.Free_keyval(self._at_finalize)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Return a context in which this rank waits for all others to finish their programs."""
        self._finishes += 1
        yield
        self._finished = {}  # they continue with other communications

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
        """Check whether the wait cannot end, where that can be determined."""
        if waiting.finished:
            return  # those that wait for this rank check
        if state.seconds > _SURE and (ended := self._never_came(waiting)):
            text = f"process {self.comm.rank} waits forever for {ranks_text(ended)}\n"
            self.verdict = text + states_text(self._texts(self._ask_all()))
            return
        if state.seconds > _SUSPECT and waiting.ranks:
            self._probed += 1  # one query per poll, each rank starting elsewhere: the awaited ranks share the load
            self._send(waiting.ranks[(self.comm.rank + self._probed) % len(waiting.ranks)], ("probe", 0, None))
        if (self.suspicious or waiting.settles) and state.seconds > _SUSPECT:
            now = time.monotonic()
            if now - self._accused > _SUSPECT:
                self._accuse()
                self._accused = time.monotonic()

    def _never_came(self, waiting: Waiting) -> list[int]:
        """Return the ranks that are through and never began the communication in which this rank waits for them."""
        return never_came(self.comm.rank, waiting, self._activity.begun(), self._finished)

    def _insist(self, state: State) -> None:
        """End the job if the main thread does not raise the verdict because it is blocked in an MPI call."""
        now = time.monotonic()
        if self._insisted is None or self._insisted[0] != state.count:
            self._insisted = state.count, now
        elif now - self._insisted[1] > _PATIENCE and self.verdict is not None:
            self.end_job(self.verdict)

    def _serve(self) -> None:
        status = MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
            with garbage_is_loss(self.comm):
                kind, number, content = self.comm.recv(source=status.Get_source(), tag=_TAG)
            if kind == "ask":
                self._send(status.Get_source(), ("state", number, self.state()))
            elif kind == "state" and number == self._round:
                self._answers[status.Get_source()] = content
            elif kind == "verdict":
                self.verdict = content
            elif kind == "probe":
                if self.state().is_through:
                    number = 0 if self._ended else self._finishes
                    self._send(status.Get_source(), ("through", number, self._activity.begun()))
            elif kind == "through":
                if not number or number > self._finishes:  # else this rank has finished that program, too
                    self._finished[status.Get_source()] = content
            elif kind == "calls":
                self._first_calls.receive(status.Get_source(), content)
            elif kind == "record":
                RECORDER.write(content)
                self._send(status.Get_source(), ("recorded", 0, None))
            elif kind == "recorded":
                self._recorded.add(status.Get_source())

    def _compare_first_calls(self) -> None:
        """Send the first calls of this process to the next process of each group.

        Ends the job if the previous process called something else as the same collective: both results are wrong.
        """
        for rank, calls in self._first_calls.new(self._activity.firsts).items():
            self._send(rank, ("calls", 0, calls))
        if fault := self._first_calls.difference():
            self.end_job(fault)

    def record(self, reason: str, seconds: float = RECORDING_SECONDS) -> Path | None:
        """Make all ranks write their recordings, within `seconds`; return the folder, or None."""
        if not self._lock.acquire(timeout=seconds):
            return RECORDER.write(reason)
        try:
            self._recorded = set()
            others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
            for rank in others:
                self._send(rank, ("record", 0, reason))
            folder = RECORDER.write(reason)
            end = time.monotonic() + seconds
            while folder is not None and len(self._recorded) < len(others) and time.monotonic() < end:
                self._serve()
                time.sleep(0.005)
            return folder
        except MPI.Exception:
            return RECORDER.write(reason)  # ranks have failed
        finally:
            self._lock.release()

    def _send(self, rank: int, message: Any) -> None:
        self._sends.add(self.comm.isend(message, rank, _TAG))

    def _ask_all(self) -> Mapping[int, State]:
        """Return the states of all ranks that reply within `answer_seconds`."""
        self._round += 1
        others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        self._answers = {self.comm.rank: self.state()}
        for rank in others:
            self._send(rank, ("ask", self._round, None))
        end = time.monotonic() + self.answer_seconds
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
            return  # the wait ended during the queries
        self._accuse()
        if self.verdict is not None:
            return  # a wait that cannot end ends the job
        text = f"process {self.comm.rank} has waited {own.seconds:.0f} s\n" + states_text(self._texts(states))
        self._warn(text)

    def _tell_of_others(self, waited: float) -> None:
        """Report that this rank waits at exit for others; only the lowest such rank prints the message."""
        states = self._ask_all()
        if len(states) == self.comm.size and all(state.ended for state in states.values()):
            return  # they have exited meanwhile
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
        """Query all ranks repeatedly, and send the verdict to the waiting ones if their waits cannot end.

        A rank whose wait has ended may not have been scheduled yet, hence the repetition.
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
        waiting = sorted(r for r in stuck if not second[r].is_through)
        through = stuck - set(waiting)
        through_text = f" for {ranks_text(sorted(through))}" if through else ""
        text = f"{ranks_text(waiting)} wait{'s' * (len(waiting) == 1)} forever{through_text}\n"
        text += states_text(self._texts(second))
        for rank in waiting:
            if rank != self.comm.rank:
                self._send(rank, ("verdict", 0, text))
        self.verdict = text

    def _farewell(self) -> None:
        """Reply to queries about this rank, which has finished, until all ranks have."""
        if MPI.Is_finalized() or self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        self._ended = True
        failure.note_end()
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
        since, reported = time.monotonic(), 0.0
        while not everyone.Test():
            self._serve()
            self._compare_first_calls()
            waited = time.monotonic() - since
            if self.timeout and waited - reported > self.timeout:
                reported = waited
                self._tell_of_others(waited)
            time.sleep(0.001)
        end = time.monotonic() + _LAST_WORDS * late
        while time.monotonic() < end:
            self._serve()
            self._compare_first_calls()
            time.sleep(0.001)
        # No rank posts another receive; wait for messages in flight.
        end = time.monotonic() + _PATIENCE
        while unfinished() and time.monotonic() < end:
            time.sleep(0.001)
        if lost := unfinished():
            self.end_job("\n".join(lost))


def never_came(
    rank: int, waiting: Waiting, begun: Mapping[Counted, int], gone: Mapping[int, Mapping[Counted, int]]
) -> list[int]:
    """Return the ranks that are through without having begun the communication in which ``rank`` waits for them.

    ``begun`` are the communications that ``rank`` has begun, and ``gone`` those of each rank that is through. Of
    permutations those between two ranks are counted: each rank may name its own pairs alone.
    """
    return sorted(r for r in gone.keys() & set(waiting.ranks) if not _has_come(rank, waiting, begun, r, gone[r]))


def _has_come(
    rank: int, waiting: Waiting, begun: Mapping[Counted, int], other: int, begun_there: Mapping[Counted, int]
) -> bool:
    """Return whether ``other`` has begun the communication in which ``rank`` waits for it."""
    if waiting.links:
        return _between(rank, other, begun_there) >= _between(rank, other, begun)
    return bool(waiting.group) and begun_there.get(waiting.group, 0) >= waiting.sequence


def _between(rank: int, other: int, begun: Mapping[Counted, int]) -> int:
    """Return the number of permutations that have begun in which one of two ranks sends to the other."""
    links = {(rank, other), (other, rank)}
    return sum(count for counted, count in begun.items() if not links.isdisjoint(counted))


def waits_in_vain(rank: int, states: Mapping[int, State]) -> frozenset[int]:
    """Return the ranks that ``rank`` waits for, directly or transitively, if none can progress; otherwise empty.

    They can progress if one of them computes or does not reply, if all that one of them waits for have come to the same
    communication, or if they all wait in it: it is merely slow.
    """
    waiting_in_vain: set[int] = set()
    pending: Iterable[int] = [rank]
    while pending:
        waiting_in_vain.update(pending)
        awaited: set[int] = set()
        for each in pending:
            state = states.get(each)
            if state is None or (state.waiting is None and not state.ended):
                return frozenset()
            if state.waiting is None or state.is_through:
                continue
            missing = {r for r in state.waiting.ranks if r not in states or not _is_there(each, state, r, states[r])}
            if not missing:
                return frozenset()
            awaited |= missing
        pending = awaited - waiting_in_vain
    through = {r for r in waiting_in_vain if states[r].is_through}
    texts = {"" if r in through or (waiting := states[r].waiting) is None else waiting.text for r in waiting_in_vain}
    return frozenset(waiting_in_vain) if len(texts) > 1 or len(waiting_in_vain) == 1 else frozenset()


def _is_there(rank: int, state: State, other: int, its: State) -> bool:
    assert state.waiting is not None
    return _has_come(rank, state.waiting, state.begun, other, its.begun)
