"""Ranks that hang: nothing is heard of them, though they are not dead.

A thread of each rank sends a beat to the next living one, and listens to the one before. Of which nothing is heard for
the time given, that one is declared dead, and ended by a rank of its own host: then MPI finds that it is lost. A rank
that has been stopped does not judge others by the time it has not been there itself.

It also tells the others when a rank fails in a way that is to end the job: MPI's abort ends no ranks that were started
at another time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from mpi4py import MPI

from collectives import failure
from collectives.mpi_sends import PendingSends
from collectives.mpi_watch import LAST_TAG
from spmd.elastic.members import Member

_BEATS = 8  # in the time after which a rank is declared dead
_BEAT, _END, _FAILED = _TAGS = range(LAST_TAG + 1, LAST_TAG + 4)
_GRACE = 3  # times the patience, after which a rank that nobody can end, and that is not found lost, ends the job


class Heart:
    """The thread; `comm`, whose ranks are `members`, is for messages of threads, and is not revoked."""

    def __init__(self, comm: MPI.Intracomm, members: Sequence[Member], patience: float) -> None:
        self._comm, self._members, self._patience = comm, members, patience
        self._pause = patience / _BEATS
        self._sends = PendingSends(comm)
        self._buffer = np.empty(1, np.int64)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._watched = -1
        self._heard = self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="elastic-heart", daemon=True)
        self._thread.start()

    def listen(self) -> None:
        """Ends this rank when another, which may be lost by now, has told of a failure that ends the job."""
        for rank in set(range(self._comm.size)) - {self._comm.rank}:
            with self._lock, suppress(MPI.Exception):
                if self._comm.Iprobe(rank, _FAILED):
                    self._comm.Recv(self._buffer, rank, _FAILED)
                    failure.end_with_others(int(self._buffer[0]))

    def stop(self) -> None:
        """Sends no more beats. Not collective."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            with suppress(MPI.Exception):  # a rank is lost, and the next look is at those that live
                self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked > self._patience / 2:
            self._heard = now  # this process has not been running
        self._looked = now
        before, behind = self._neighbours()
        if before == self._comm.rank:
            return
        if before != self._watched:
            self._watched, self._heard = before, now
        self._send(behind, _BEAT, 0)
        with self._lock:
            self._listen(now)
        if now - self._heard > self._patience:
            self._declare_dead(before, now - self._heard)

    def _neighbours(self) -> tuple[int, int]:
        """The nearest living ranks before and behind this one."""
        lost = self._comm.Get_failed()
        ranks = lost.Translate_ranks(range(lost.size), self._comm.Get_group()) if lost.size else []
        living = [rank for rank in range(self._comm.size) if rank not in set(ranks)]
        place = living.index(self._comm.rank)
        return living[place - 1], living[(place + 1) % len(living)]

    def _listen(self, now: float) -> None:
        self._comm.Ack_failed()  # else nothing is heard of anybody once a rank is lost
        status = MPI.Status()
        for tag in _TAGS:
            while self._comm.Iprobe(MPI.ANY_SOURCE, tag, status):
                self._comm.Recv(self._buffer, status.Get_source(), tag)
                if tag == _FAILED:
                    failure.end_with_others(int(self._buffer[0]))
                elif tag == _END:
                    self._members[int(self._buffer[0])].end()
                elif status.Get_source() == self._watched:
                    self._heard = now

    def _declare_dead(self, rank: int, silent: float) -> None:
        member = self._members[rank]
        if member.end():
            return
        for other, its in enumerate(self._members):
            if its.host == member.host and other != rank:
                self._send(other, _END, rank)
        if silent > _GRACE * self._patience:
            failure.fail(f"nothing has been heard of {member} for {silent:.0f} s, and MPI does not find it lost")

    def tell_of_failure(self, status: int) -> None:
        """Has the other ranks end with `status`, and waits until they have, or as long as a rank may be silent."""
        others = set(range(self._comm.size)) - {self._comm.rank}
        deadline = time.monotonic() + self._patience
        for rank in others:
            with suppress(MPI.Exception):
                self._send(rank, _FAILED, status)
        while self._comm.Get_failed().size < len(others) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _send(self, rank: int, tag: int, content: int) -> None:
        with self._lock:
            self._sends.add(self._comm.Isend(np.array([content], np.int64), rank, tag))
