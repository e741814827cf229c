"""Transfers by channel between the ranks of an MPI communicator.

A channel may have any 64-bit number, but MPI guarantees tags only up to 32,767. Small numbers are used as tags.
Messages of all other channels share one tag and begin with their channel's number; a rank that receives one of another
channel than it waits for queues it until that channel is received from.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from time import monotonic

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collectives.arrays import Array, DType
from collectives.errors import CommunicationError
from collectives.layout import wire_dtype
from collectives.mpi.calls import PERMUTE_TAG
from collectives.mpi.request import MpiRequest
from collectives.record.activity import Activity, Call, Waiting
from collectives.record.calls import caller_of
from collectives.shapes import Shape, extent_text

#: ``wait(done, waiting)`` polls ``done()`` until it returns True.
Wait = Callable[[Callable[[], bool], Waiting], None]
_WaitUntil = Callable[[Callable[[], bool]], None]

_SHARED_TAG = PERMUTE_TAG + 1
_FIRST_TAG = _SHARED_TAG + 1
_OWN_TAGS = 1 << 14
#: Higher tags are free for other users of a group's communicator.
LAST_TAG = _FIRST_TAG + _OWN_TAGS - 1
_HEADER = np.dtype(np.int64).itemsize


class MpiChannels:
    """The channels of one group; ``members`` are the world ranks of its processes."""

    def __init__(self, comm: MPI.Intracomm, members: tuple[int, ...], activity: Activity) -> None:
        self._comm, self._members, self._activity = comm, members, activity
        #: The number of arrays sent and received, by peer and channel.
        self._sent: Counter[tuple[int, int]] = Counter()
        self._received: Counter[tuple[int, int]] = Counter()
        self._early: dict[tuple[int, int], deque[Array]] = {}

    def send(self, array: Array, target: int, channel: int, where: str) -> None:
        """Send a copy of ``array`` in the background, without waiting for the receiver."""
        text = f"process {self._members[self._comm.rank]} sends {extent_text(array.shape, array.dtype)}{_at(where)}"
        text += f" to process {self._members[target]}, which does not receive it"
        if _has_tag(channel):
            data, tag = array.copy().view(wire_dtype(array.dtype)), _FIRST_TAG + channel
        else:
            data, tag = np.empty(_HEADER + array.nbytes, np.uint8), _SHARED_TAG
            data[:_HEADER].view(np.int64)[0] = channel
            data[_HEADER:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._sent[target, channel] += 1
        pair = self._members[self._comm.rank], self._members[target]
        number = self._sent[target, channel]
        call = _call("send", array.shape, array.dtype, pair, where, channel, number)
        event = self._activity.start(Waiting(text, (), call=call), self._activity.waits)
        # A synchronous send completes when it is received, so that a missing receive is detected.
        MpiRequest.detach(self._comm.Issend(data, target, tag), data, text)
        event.ended = monotonic()

    def receive(self, wait: Wait, shape: Shape, dtype: npt.DTypeLike, source: int, channel: int, where: str) -> Array:
        """Return the next array from ``source`` on ``channel``; CommunicationError if its size differs."""
        out, peer = np.empty(shape, dtype), self._members[source]
        label = f"receive of {extent_text(shape, out.dtype)} from process {peer}{_at(where)}"
        self._received[source, channel] += 1
        pair, number = (peer, self._members[self._comm.rank]), self._received[source, channel]
        waiting = Waiting(label, (peer,), call=_call("recv", shape, out.dtype, pair, where, channel, number))
        message = self._by_tag if _has_tag(channel) else self._by_number
        message(lambda done: wait(done, waiting), out, source, channel, where)
        return out

    def _by_tag(self, wait: _WaitUntil, out: Array, source: int, channel: int, where: str) -> None:
        messages, status = [], MPI.Status()

        def arrived() -> bool:
            message = self._comm.Improbe(source, _FIRST_TAG + channel, status)
            if message is not None:
                messages.append(message)
            return bool(messages)

        wait(arrived)
        self._check_size(status.Get_count(MPI.BYTE), out, source, where)
        messages[0].Recv([out.view(wire_dtype(out.dtype)), MPI.BYTE])

    def _by_number(self, wait: _WaitUntil, out: Array, source: int, channel: int, where: str) -> None:
        early = self._early.setdefault((source, channel), deque())

        def arrived() -> bool:
            if not early:
                self._sort_in(source)
            return bool(early)

        wait(arrived)
        data = early.popleft()
        self._check_size(data.size, out, source, where)
        out.reshape(-1).view(np.uint8)[...] = data

    def _sort_in(self, source: int) -> None:
        """Receive a message of ``source`` with the shared tag and queue it for its channel."""
        status = MPI.Status()
        while (message := self._comm.Improbe(source, _SHARED_TAG, status)) is not None:
            data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            message.Recv([data, MPI.BYTE])
            channel = int(data[:_HEADER].view(np.int64)[0])
            self._early.setdefault((source, channel), deque()).append(data[_HEADER:])

    def _check_size(self, sent: int, out: Array, source: int, where: str) -> None:
        if sent != out.nbytes:
            text = f"process {self._members[source]} sent {sent} bytes where {out.nbytes} are received"
            raise CommunicationError(f"{where}: {text}" if where else text)


def _has_tag(channel: int) -> bool:
    return 0 <= channel < _OWN_TAGS


def _call(name: str, shape: Shape, dtype: DType, pair: tuple[int, int], where: str, channel: int, number: int) -> Call:
    text = f"{name} of {extent_text(shape, dtype)}"
    return Call(name, text, shape, shape, dtype, pair, where or caller_of(), channel, number)


def _at(where: str) -> str:
    return f" at {where}" if where else ""
