"""The initial barrier of all ranks, before the package has a communicator of its own.

The ranks exchange one record each by a nonblocking MPI_Ialltoallv on the caller's communicator; while a rank waits, it
reads from the records that have arrived which ranks are missing. MPI matches collectives separately from the caller's
point-to-point messages, whatever their tags. With more than `MOST_NAMED` ranks a plain barrier is used instead, and
messages do not name the missing ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

from collectives import endings
from collectives.arrays import Array
from collectives.errors import CommunicationError
from collectives.failure import REPORTS_VARIABLE
from collectives.record.activity import Activity, Waiting
from collectives.settings import WatchSettings
from collectives.states import ranks_text, states_text

#: Maximum number of ranks for the exchange of records.
MOST_NAMED = 1024
_LENGTH = 256
_MARK = np.dtype(np.int64)
_PAUSES = 1e-5, 2e-3  # polling interval in seconds: initial and longest
_LOOK = 0.5  # seconds between two checks for ranks that have exited
#: Meetings that failed, kept alive because MPI may still write into their buffers.
_abandoned: list[_Meeting] = []


def meet(
    comm: MPI.Intracomm, what: str, activity: Activity, settings: WatchSettings, warn: Callable[[str], None]
) -> None:
    """Return once all ranks of ``comm`` have called it; ``what`` names the call that this rank is in. Collective.

    After every timeout of the ``settings``, calls ``warn`` with a text that lists the ranks that have arrived, with
    their calls, and those that have not.

    :raises CommunicationError: if a missing rank has exited, as reported by the ``spmd`` launcher.
    """
    if comm.size == 1:
        return
    others = tuple(rank for rank in range(comm.size) if rank != comm.rank)
    event = activity.begin(Waiting(what, others, settles=True), activity.waits)
    meeting = _Meeting(comm, what, settings.timeout, warn)
    try:
        meeting.wait()
        event.ended = time.monotonic()
    except BaseException:
        _abandoned.append(meeting)
        raise
    finally:
        activity.what = None


class _Meeting:
    def __init__(self, comm: MPI.Intracomm, what: str, timeout: float, warn: Callable[[str], None]) -> None:
        self._comm, self._what, self._timeout, self._warn = comm, what, timeout, warn
        self._names = comm.size <= MOST_NAMED
        self._record = np.zeros(_LENGTH, np.uint8)
        self._record[: _MARK.itemsize].view(_MARK)[0] = comm.rank + 1
        text_bytes = what.encode()[: _LENGTH - _MARK.itemsize]
        self._record[_MARK.itemsize : _MARK.itemsize + len(text_bytes)] = np.frombuffer(text_bytes, np.uint8)
        self._received = np.zeros((comm.size if self._names else 0, _LENGTH), np.uint8)
        self._arrived: dict[int, float] = {comm.rank: time.monotonic()}
        self._request = self._begin()

    def _begin(self) -> MPI.Request:
        if not self._names:
            return self._comm.Ibarrier()
        counts = np.full(self._comm.size, _LENGTH, np.int32)
        nowhere = np.zeros_like(counts)
        places = np.arange(self._comm.size, dtype=np.int32) * _LENGTH
        return self._comm.Ialltoallv(
            [self._record, (counts, nowhere), MPI.BYTE], [self._received, (counts, places), MPI.BYTE]
        )

    def wait(self) -> None:
        began = looked = time.monotonic()
        reported, (pause, longest) = began, _PAUSES
        while not self._request.Test():
            time.sleep(pause)
            pause = min(pause * 1.2, longest)
            now = time.monotonic()
            if now - looked > _LOOK:
                looked = now
                self._look(now - began)
            if self._timeout and now - reported > self._timeout:
                reported = now
                self._report(now - began)

    def _look(self, waited: float) -> None:
        """Record which ranks have arrived; raise CommunicationError if one that has not has exited."""
        now = time.monotonic()
        for rank in self._marked():
            self._arrived.setdefault(rank, now)
        folder = os.environ.get(REPORTS_VARIABLE, "")
        if self._names and folder and self._comm.Compare(MPI.COMM_WORLD) != MPI.UNEQUAL:
            ended = sorted(endings.ranks_ended(Path(folder)) - self._arrived.keys())
            if ended:
                text = f"process {self._comm.rank} waits forever for {ranks_text(ended)}"
                raise CommunicationError(f"{text}\n{self._states(waited, set(ended))}")

    def _marked(self) -> list[int]:
        """Return the ranks whose records have arrived; until then MPI may use the memory for other data."""
        marks: Array = np.ascontiguousarray(self._received[:, : _MARK.itemsize]).view(_MARK)[:, 0]
        return [int(rank) for rank in np.flatnonzero(marks == np.arange(len(marks)) + 1)]

    def _report(self, waited: float) -> None:
        """Warn, unless a lower rank has waited as long as this one and therefore does."""
        self._look(waited)
        since = time.monotonic() - self._timeout
        if not any(rank < self._comm.rank and arrived < since for rank, arrived in self._arrived.items()):
            self._warn(f"process {self._comm.rank} has waited {waited:.0f} s\n{self._states(waited, set())}")

    def _states(self, waited: float, ended: set[int]) -> str:
        if not self._names:
            return f"  process {self._comm.rank}: waits {waited:.0f} s in {self._what}; not all others have arrived"
        now, states = time.monotonic(), {}
        for rank in range(self._comm.size):
            if rank in self._arrived:
                text = bytes(self._received[rank, _MARK.itemsize :]).rstrip(b"\0").decode(errors="replace")
                seconds = waited if rank == self._comm.rank else now - self._arrived[rank]
                states[rank] = f"waits {seconds:.0f} s in {self._what if rank == self._comm.rank else text}"
            else:
                states[rank] = "has ended" if rank in ended else "has not reached its first communication"
        return states_text(states)
