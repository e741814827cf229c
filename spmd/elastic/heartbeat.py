"""Heartbeats detect ranks that are unresponsive but not dead: hung, stopped, or unreachable.

A thread of each rank sends a message to the next live rank every `patience / 8` seconds, and receives those of the
previous one. After half of `patience` without a message it pings the ranks of that rank's host. After all of
`patience` the silent rank is killed, by this process or by a rank on its host; MPI then reports it as failed. If no
rank of its host replies either, the thread reports the host to the launcher as unreachable, which ends the ranks of one
of the two hosts (`launch.silence`). The time for which this process itself was stopped does not count.

The thread also forwards the exit status with which a rank ends the job: MPI_Abort does not reach ranks that were
spawned later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
from mpi4py import MPI

from collectives import failure
from collectives.mpi.sends import PendingSends
from collectives.mpi.watch import LAST_TAG
from spmd.elastic.members import Member
from spmd.runtime.silence import Silence

_BEATS = 8  # in `patience` seconds
_BEAT, _ASK, _END, _FAILED = _TAGS = range(LAST_TAG + 1, LAST_TAG + 5)
_GRACE = 3  # multiple of `patience` after which the job fails: the rank was not killed and MPI reports no failure


class Heartbeat:
    """The heartbeat thread of one rank. Messages use `comm`, whose ranks are `members` and which is never revoked.

    `patience` is the timeout in seconds.
    """

    def __init__(self, comm: MPI.Intracomm, members: Sequence[Member], patience: float) -> None:
        self._comm, self._members, self._patience = comm, members, patience
        self._pause = patience / _BEATS
        self._sends = PendingSends(comm)
        self._buffer = np.empty(1, np.int64)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._watched = -1
        #: The arrival time of the last message of each rank that has sent any.
        self._last: dict[int, float] = {}
        self._since = self._looked = time.monotonic()
        self._reported = False
        self._thread = threading.Thread(target=self._run, name="elastic-heartbeat", daemon=True)
        self._thread.start()

    def end_if_another_failed(self) -> None:
        """Exit this rank if another one, which may have failed since, sent the status with which the job ends."""
        with self._lock:
            for rank in self._others():
                self._receive(rank, (_FAILED,), time.monotonic())

    def stop(self) -> None:
        """End the thread. Not collective."""
        self._stop.set()
        self._thread.join()

    def send_failure(self, status: int) -> None:
        """Send exit status `status` to the other ranks and wait until they have ended, for at most `patience` s."""
        others = self._others()
        deadline = time.monotonic() + self._patience
        for rank in others:
            self._send(rank, _FAILED, status)
        while self._comm.Get_failed().size < len(others) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            self._beat()

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._looked > self._patience / 2:
            self._since = now  # this process did not run
        self._looked = now
        living = self._living()
        with self._lock:
            for rank in living:
                self._receive(rank, _TAGS, now)
        if len(living) < 2:
            return
        place = living.index(self._comm.rank)
        before, behind = living[place - 1], living[(place + 1) % len(living)]
        self._send(behind, _BEAT, 0)
        if before != self._watched:
            self._watched, self._since = before, now
        self._judge(before, living, now)

    def _judge(self, rank: int, living: Sequence[int], now: float) -> None:
        """Ping the host of the watched `rank` after half of `patience` without a message, kill it after all of it."""
        silent = self._silence(rank, now)
        if silent <= self._patience / 2:
            self._reported = False
            return
        member = self._members[rank]
        host = [other for other in living if self._members[other].host == member.host]
        for other in host:
            self._send(other, _ASK, 0)
        if silent > self._patience:
            self._end(member, [other for other in host if other != rank], now)
        if silent > _GRACE * self._patience:
            failure.fail(f"nothing has come from {member} for {silent:.0f} s, and MPI does not find it failed")

    def _end(self, member: Member, neighbours: Sequence[int], now: float) -> None:
        """Kill a silent rank, directly or through `neighbours`, the other ranks on its host."""
        if member.is_here:
            member.end()
            return
        for other in neighbours:
            self._send(other, _END, self._members.index(member))
        if not self._reported and all(self._silence(other, now) > self._patience / 2 for other in neighbours):
            self._reported = True
            own = self._members[self._comm.rank]
            Silence(own.number, own.place, member.number, member.place, member.process, member.started).report()

    def _silence(self, rank: int, now: float) -> float:
        """Return the seconds since the last message of `rank`, or since the start of the watch if later."""
        return now - max(self._since, self._last.get(rank, self._since))

    def _others(self) -> list[int]:
        return [rank for rank in range(self._comm.size) if rank != self._comm.rank]

    def _living(self) -> list[int]:
        """Return the ranks that MPI has not found failed."""
        failed = self._comm.Get_failed()
        ranks = failed.Translate_ranks(range(failed.size), self._comm.Get_group()) if failed.size else []
        return [rank for rank in range(self._comm.size) if rank not in set(ranks)]

    def _receive(self, rank: int, tags: Sequence[int], now: float) -> None:
        """Receive the pending messages of `rank`. Those of a failed rank cannot always be received."""
        if rank == self._comm.rank:
            return
        with suppress(MPI.Exception):
            for tag in self._arrived(rank, tags):
                self._comm.Recv(self._buffer, rank, tag)
                self._last[rank] = now
                if tag == _FAILED:
                    failure.end_with_others(int(self._buffer[0]))
                elif tag == _END:
                    self._members[int(self._buffer[0])].end()
                elif tag == _ASK:
                    self._sends.add(self._comm.Isend(np.zeros(1, np.int64), rank, _BEAT))

    def _arrived(self, rank: int, tags: Sequence[int]) -> Iterator[int]:
        for tag in tags:
            while self._comm.Iprobe(rank, tag):
                yield tag

    def _send(self, rank: int, tag: int, content: int) -> None:
        """Send, unless `rank` has failed."""
        with self._lock, suppress(MPI.Exception):
            self._sends.add(self._comm.Isend(np.array([content], np.int64), rank, tag))
