"""Collectives that compare their arguments across processes first.

Before each collective the processes of the group send a description of it to the group's first process, which compares
them and replies. If they differ, every process raises CommunicationError with each process's operation and source
location. If they never meet, because they are in different groups or one has exited, the watcher detects it. The
messages are point to point, half a kilobyte each. Waits poll, so that they can end with an error, and so that a first
process replies while it waits itself. A started (nonblocking) collective is checked while it is pending.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol
from zlib import crc32

import numpy as np
from mpi4py import MPI

from collectives.agreement import Agreement, ProcessStep, difference_text
from collectives.arguments import as_members
from collectives.arrays import Array, DType
from collectives.communicator import SET_UP, BoundCollective, Communicator, Request, Start, V
from collectives.errors import CommunicationError
from collectives.mpi.channels import LAST_TAG, MpiChannels
from collectives.mpi.faults import fault_of
from collectives.mpi.losses import garbage_is_loss
from collectives.operations import Operation
from collectives.record.activity import Activity, Waiting
from collectives.record.calls import call_of, part_of, text_of
from collectives.shapes import Shape
from collectives.states import mismatch_text

_TELL_TAG = LAST_TAG + 1
_FIRST_ANSWER_TAG = _TELL_TAG + 1
_ANSWERS = 4096  # maximum number of pending checks between two processes
# Tags of first calls to compare, answers, and faults. Several Python threads may be in them, each in a group.
_COMPARED = 2048
_FIRST_COMPARE_TAG = _FIRST_ANSWER_TAG + 2 * _ANSWERS
_DIGEST = 16  # bytes
_WORDS = _DIGEST + 1
_DIFFER, _AGREE, _SAY_HOW = 0, 1, 2
_MESSAGE = 512
_SPIN = 2e-4  # seconds of polling without sleep
_PAUSE = 2e-5


class PlainCommunicator(Protocol):
    """The interface that a check needs from the communicator whose collectives it checks."""

    rank: int
    size: int
    channels: MpiChannels
    activity: Activity

    def group(self, members: Sequence[int]) -> PlainCommunicator: ...

    def bind_unchecked(self, operation: Operation, where: str = "") -> BoundCollective: ...

    def bind_start_unchecked(self, operation: Operation, where: str = "") -> Start: ...

    def send(self, array: Array, target: int, tag: int, where: str = "") -> None: ...

    def allgather_object(self, value: V, what: str = SET_UP) -> list[V]: ...

    def wait_for(self, done: Callable[[], bool], waiting: Waiting, members: tuple[int, ...] = ()) -> None: ...


class CheckedCommunicator(Communicator):
    """The group ``members`` of ``world``, with a check before each collective.

    The group's MPI communicator is created only after its processes have passed their first check, since creating it is
    a collective call that blocks if a process is in another group.
    """

    def __init__(self, world: PlainCommunicator, members: tuple[int, ...], comm: MPI.Intracomm) -> None:
        self._world = world
        self.comm = comm
        self._groups: dict[tuple[int, ...], CheckedCommunicator] = {}
        self._led: list[_Lead] = []
        #: Several Python threads may wait, each in a group of its own, and step the same checks.
        self._stepping = Lock()
        self._counts: Counter[int] = Counter()
        self.members = members
        self.size = len(members)
        self.rank = members.index(world.rank)

    def checked(self) -> Communicator:
        return self

    def group(self, members: Sequence[int]) -> Communicator:
        return self.of(tuple(members))

    def of(self, members: tuple[int, ...]) -> CheckedCommunicator:
        """Return the group of ``members``."""
        communicator = self._groups.get(members)
        if communicator is None:
            members = as_members(members, self._world.size, self._world.rank)
            communicator = self._groups[members] = CheckedCommunicator(self._world, members, self.comm)
            communicator._groups, communicator._led, communicator._counts = self._groups, self._led, self._counts
            communicator._stepping = self._stepping
        return communicator

    def bind(self, operation: Operation, where: str = "") -> BoundCollective:
        operation.result_shape(self.size)  # raises if the operand does not fit the group
        check = self._check(operation, where)
        calls: list[BoundCollective] = []

        def call(array: Array, out: Array | None = None) -> Array:
            check().finish()
            if not calls:
                calls.append(self._plain().bind_unchecked(operation, where))
            return calls[0](array, out)

        return call

    def bind_start(self, operation: Operation, where: str = "") -> Start:
        operation.result_shape(self.size)
        check = self._check(operation, where)
        starts: list[Start] = []

        def start(array: Array) -> Request:
            begun = check()
            if not starts:
                starts.append(self._plain().bind_start_unchecked(operation, where))
            activity = self._plain().activity
            activity.compares = False  # the pending check does
            try:
                return _CheckedRequest(begun, starts[0](array))
            finally:
                activity.compares = True

        return start

    def _send(self, array: Array, target: int, tag: int, where: str) -> None:
        self._plain().send(array, target, tag, where)

    def _receive(self, shape: Shape, dtype: DType, source: int, tag: int, where: str) -> Array:
        return self._plain().channels.receive(self.wait, shape, dtype, source, tag, where)

    def allgather_object(self, value: V, what: str = SET_UP) -> list[V]:
        return self._plain().allgather_object(value, what)

    def agree(self, agreement: Agreement) -> None:
        message = _message(b"agreement" + agreement.digest, agreement.what, is_agreement=True)
        check = self._begin(self.members, message, Waiting(agreement.what, self.others, settles=True))
        try:
            check.finish()
        except _DifferentAgreements:
            sides = self.allgather_object(ProcessStep(agreement.what, agreement.facts()), agreement.what)
            raise CommunicationError(difference_text(self.members, sides, agreement.advice)) from None

    def compare_call(self, operation: Operation, where: str) -> None:
        """Compare ``operation``, which all processes of the group are about to call."""
        if self.size == 1:
            return
        call = call_of(operation, self.members, self.rank, where)
        label = _text(operation, text_of(call, self.members, call.where))
        message = _message(_identity(operation, self.members, self.rank), label)
        waiting = Waiting(label, self.others, settles=True, call=call)
        try:
            self._begin(self.members, message, waiting, _FIRST_COMPARE_TAG + 3 * (self._number() % _COMPARED)).finish()
        except MPI.Exception as error:
            raise fault_of(error, waiting, self.comm, self.world_rank) from error

    def _plain(self) -> PlainCommunicator:
        return self._world.group(self.members)

    def _number(self) -> int:
        """Return a hash of the group's members."""
        return crc32(np.array(self.members, np.int64).tobytes())

    def answer_tag(self, other: int) -> int:
        """Return the tag of the reply to this process's next check with ``other``; a fault uses the next higher tag.

        Replies may arrive out of order: a check that started earlier may wait for a third process.
        """
        self._counts[other] += 1
        return _FIRST_ANSWER_TAG + 2 * (self._counts[other] % _ANSWERS)

    def wait(self, done: Callable[[], bool], waiting: Waiting) -> None:
        """Poll until ``done``, replying to pending checks of other processes meanwhile."""

        def step() -> bool:
            with self._stepping:
                self._led[:] = [lead for lead in self._led if not lead.step()]
                return done()

        self._world.wait_for(step, waiting, self.members)

    def refuse(self) -> None:
        """Mark the collective that this process waited in last as not executed."""
        self._world.activity.last.ended = -1.0

    def _check(self, operation: Operation, where: str) -> Callable[[], _Check]:
        """Return a function that starts the check of ``operation``."""
        call = call_of(operation, self.members, self.rank, where)
        members = call.members
        if len(members) <= 1:
            return _Check
        own, label = self.world_rank, _text(operation, text_of(call, members, where))
        message = _message(_identity(operation, members, self.rank), label)
        waiting = Waiting(label, tuple(r for r in members if r != own), call=call)
        return lambda: self._begin(members, message, waiting)

    def _begin(self, members: tuple[int, ...], message: Array, waiting: Waiting, tag: int = 0) -> _Check:
        """Start a check among ``members``, which include this process; a ``tag`` separates it from all others."""
        if self._world.rank != members[0]:
            return _Follow(self, self.comm, members[0], message, waiting, tag)
        check = _Lead(self, self.comm, members, message, waiting, tag)
        self._led.append(check)
        return check


def _identity(operation: Operation, members: tuple[int, ...], rank: int) -> bytes:
    """Return what must be equal on the ``members`` that communicate with the process at position ``rank``."""
    return f"{part_of(operation, rank)!r} {members}".encode()


def _text(operation: Operation, text: str) -> str:
    """Return ``text`` with the fields that must be equal as well."""
    return f"{text}, reproducible" if vars(operation).get("reproducible") else text


def _message(identity: bytes, label: str, *, is_agreement: bool = False) -> Array:
    """Return the message of a check: a digest of what must be equal, whether it is an agreement, and a description."""
    message = np.zeros(_MESSAGE, np.uint8)
    message[:_DIGEST] = np.frombuffer(hashlib.blake2b(identity, digest_size=_DIGEST).digest(), np.uint8)
    message[_DIGEST] = is_agreement
    label_bytes = label.encode()[: _MESSAGE - _WORDS]
    message[_WORDS : _WORDS + len(label_bytes)] = np.frombuffer(label_bytes, np.uint8)
    return message


def _label(message: Array) -> str:
    return bytes(message[_WORDS:]).rstrip(b"\0").decode(errors="replace")


class _DifferentAgreements(Exception):
    """All processes called an agreement, with values that differ."""


class _Check:
    """A pending check; this base class is that of a group of one process."""

    def finish(self) -> None:
        """Wait for the outcome; raise CommunicationError if the processes differ."""


class _Lead(_Check):
    """The check on the group's first process."""

    def __init__(
        self,
        owner: CheckedCommunicator,
        comm: MPI.Intracomm,
        members: tuple[int, ...],
        message: Array,
        waiting: Waiting,
        tag: int,
    ) -> None:
        self._owner, self._comm, self._members, self._waiting = owner, comm, members, waiting
        self._received = np.zeros((len(members), _MESSAGE), np.uint8)
        self._received[0] = message
        self._requests = [comm.Irecv(self._received[i], r, tag or _TELL_TAG) for i, r in enumerate(members) if i]
        self._tags = {r: tag + 1 if tag else owner.answer_tag(r) for r in members[1:]}
        self._sends: list[MPI.Request] = []
        self._answered = False
        self._outcome = _DIFFER
        self._fault: str | None = None

    def step(self) -> bool:
        """Reply once all messages have arrived; return whether it has."""
        if not self._answered and MPI.Request.Testall(self._requests):
            self._answered = True
            if (self._received[:, :_DIGEST] == self._received[0, :_DIGEST]).all():
                self._outcome = _AGREE
            elif self._received[:, _DIGEST].all():
                self._outcome = _SAY_HOW
            else:
                self._fault = mismatch_text({r: _label(m) for r, m in zip(self._members, self._received, strict=True)})
            answer = np.array([self._outcome], np.uint8)
            self._sends = [self._comm.Isend(answer, r, tag) for r, tag in self._tags.items()]
            if self._fault is not None:
                self._sends += [self._comm.isend(self._fault, r, tag + 1) for r, tag in self._tags.items()]
        return self._answered

    def finish(self) -> None:
        self._owner.wait(self.step, self._waiting)
        MPI.Request.Waitall(self._sends)
        if self._outcome != _AGREE:
            self._owner.refuse()
        if self._outcome == _SAY_HOW:
            raise _DifferentAgreements
        if self._fault is not None:
            raise CommunicationError(self._fault)


class _Follow(_Check):
    """The check on every other process."""

    def __init__(
        self, owner: CheckedCommunicator, comm: MPI.Intracomm, leader: int, message: Array, waiting: Waiting, tag: int
    ) -> None:
        self._owner, self._comm, self._leader, self._waiting = owner, comm, leader, waiting
        self._answer = np.empty(1, np.uint8)
        self._tag = tag + 1 if tag else owner.answer_tag(leader)
        self._requests = [comm.Isend(message, leader, tag or _TELL_TAG), comm.Irecv(self._answer, leader, self._tag)]

    def finish(self) -> None:
        self._owner.wait(lambda: MPI.Request.Testall(self._requests), self._waiting)
        if self._answer[0] != _AGREE:
            self._owner.refuse()
        if self._answer[0] == _SAY_HOW:
            raise _DifferentAgreements
        if self._answer[0] == _DIFFER:
            with garbage_is_loss(self._comm):
                fault = self._comm.recv(source=self._leader, tag=self._tag + 1)
            raise CommunicationError(fault)


class _CheckedRequest:
    """A pending collective with a pending check."""

    def __init__(self, check: _Check, request: Request) -> None:
        self._check, self._request = check, request

    def wait(self) -> Array:
        self._check.finish()
        return self._request.wait()


def patiently(done: Callable[[], bool], verdict: Callable[[], str | None]) -> None:
    """Poll ``done``, often at first; raise CommunicationError with the text of ``verdict`` once it returns one."""
    start = time.perf_counter()
    while not done():
        if time.perf_counter() - start > _SPIN:
            text = verdict()
            if text is not None:
                raise CommunicationError(text)
            time.sleep(_PAUSE)
