"""Collectives that first make sure of each other.

Before each collective the processes of the group send a digest of what they are about to do to the group's first
process, which compares. Where they differ, every one of them raises CollectiveError with what each does and where.
Where they never meet, because they are in different groups or one has ended, the watcher finds out. The messages are
16 bytes point to point; waiting is step by step, so that it can end with an error.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collectives.activity import Waiting
from collectives.communicator import Call, Communicator, Request, Start
from collectives.errors import CollectiveError, GroupError
from collectives.operations import CollectivePermute, Operation, Shape, describe, short_list
from collectives.states import mismatch_text

if TYPE_CHECKING:
    from collectives.mpi import MpiCommunicator

Array = npt.NDArray[Any]

_DIGEST_TAG, _ANSWER_TAG, _TEXT_TAG = 1, 2, 3
_SPIN = 2e-4  # seconds to look for messages without pause
_PAUSE = 2e-5


class CheckedCommunicator(Communicator):
    """The group ``members`` of ``world``, with a check before each collective.

    MPI's communicator for the group is made only when its processes have agreed for the first time, since making it
    is a collective call that a process in another group would never answer.
    """

    def __init__(self, world: MpiCommunicator, members: tuple[int, ...], comm: MPI.Intracomm) -> None:
        self._world = world
        self._comm = comm
        self._groups: dict[tuple[int, ...], CheckedCommunicator] = {}
        self.members = members
        self.size = len(members)
        self.rank = members.index(world.rank)

    def checked(self) -> Communicator:
        return self

    def group(self, members: Sequence[int]) -> Communicator:
        members = tuple(members)
        found = self._groups.get(members)
        if found is None:
            if self._world.rank not in members:
                raise GroupError(f"process {self._world.rank} is not in the group {list(members)} that it asks for")
            found = self._groups[members] = CheckedCommunicator(self._world, members, self._comm)
            found._groups = self._groups
        return found

    def bind(self, operation: Operation, where: str = "") -> Call:
        operation.result_shape(self.size)  # raises where the shapes do not fit the group
        check = self._check(operation, where)
        made: list[Call] = []

        def call(array: Array, out: Array | None = None) -> Array:
            check()
            if not made:
                made.append(self._plain().bind(operation, where))
            return made[0](array, out)

        return call

    def bind_start(self, operation: Operation, where: str = "") -> Start:
        operation.result_shape(self.size)
        check = self._check(operation, where)
        made: list[Start] = []

        def start(array: Array) -> Request:
            check()
            if not made:
                made.append(self._plain().bind_start(operation, where))
            return made[0](array)

        return start

    def send(self, array: Array, target: int, tag: int, where: str = "") -> None:
        self._plain().send(array, target, tag, where)

    def receive(self, shape: Shape, dtype: npt.DTypeLike, source: int, tag: int, where: str = "") -> Array:
        return self._plain().receive(shape, dtype, source, tag, where)

    def exchange(self, value: object) -> list[Any]:
        return self._plain().exchange(value)

    def _plain(self) -> MpiCommunicator:
        return self._world.group(self.members)

    def _check(self, operation: Operation, where: str) -> Callable[[], None]:
        members, rank = self.members, self.rank
        if isinstance(operation, CollectivePermute):
            # Only the ends of transfers meet; what they must agree on is the whole list of pairs.
            ends = {end for pair in operation.pairs for end in pair}
            if rank not in ends:
                return lambda: None
            members = tuple(self.members[i] for i in sorted(ends))
        if len(members) == 1:
            return lambda: None
        text = f"{describe(operation)} among {short_list(members)}"
        digest = np.frombuffer(hashlib.blake2b(f"{operation!r} {members}".encode(), digest_size=16).digest(), np.uint64)
        label = f"{text} at {where}" if where else text
        own = self.members[rank]
        waiting = Waiting(label, tuple(r for r in members if r != own))
        if own == members[0]:
            return lambda: self._lead(members, digest, operation, label, waiting)
        return lambda: self._follow(members[0], digest, label, waiting)

    def _lead(
        self, members: tuple[int, ...], digest: Array, operation: Operation, label: str, waiting: Waiting
    ) -> None:
        comm, others = self._comm, members[1:]
        heard = np.zeros((len(others), 2), np.uint64)
        requests = [comm.Irecv(heard[i], r, _DIGEST_TAG) for i, r in enumerate(others)]
        self._wait(requests, waiting)
        agreed = bool((heard == digest).all())
        answer = np.array([agreed], np.uint8)
        sends = [comm.Isend(answer, r, _ANSWER_TAG) for r in others]
        MPI.Request.Waitall(sends)
        if agreed:
            return
        labels = {members[0]: label} | {r: comm.recv(source=r, tag=_TEXT_TAG) for r in others}
        text = mismatch_text(labels)
        for r in others:
            comm.isend(text, r, _TEXT_TAG)
        raise CollectiveError(text)

    def _follow(self, leader: int, digest: Array, label: str, waiting: Waiting) -> None:
        comm = self._comm
        answer = np.empty(1, np.uint8)
        requests = [comm.Isend(digest, leader, _DIGEST_TAG), comm.Irecv(answer, leader, _ANSWER_TAG)]
        self._wait(requests, waiting)
        if not answer[0]:
            comm.send(label, leader, tag=_TEXT_TAG)
            raise CollectiveError(comm.recv(source=leader, tag=_TEXT_TAG))

    def _wait(self, requests: list[MPI.Request], waiting: Waiting) -> None:
        self._world.wait_for(lambda: MPI.Request.Testall(requests), waiting)


def patiently(done: Callable[[], bool], verdict: Callable[[], str | None]) -> None:
    """Waits until ``done``, looking often at first; raises CollectiveError with the ``verdict`` when there is one."""
    start = time.perf_counter()
    while not done():
        if time.perf_counter() - start > _SPIN:
            text = verdict()
            if text is not None:
                raise CollectiveError(text)
            time.sleep(_PAUSE)
