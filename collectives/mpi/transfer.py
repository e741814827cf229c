"""A collective as a sequence of MPI steps, which is fixed when the collective is bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpi4py import MPI

from collectives.arrays import Array
from collectives.mpi.types import Message


def _cannot_start(send: Message, receive: Message) -> Sequence[MPI.Request]:
    raise NotImplementedError("these steps are blocking ones")


@dataclass(frozen=True)
class Transfer:
    """The MPI steps of a collective.

    ``encode(array)`` returns the send buffer and ``receive_into(out)`` the receive buffer; ``post`` and ``start`` are
    the blocking and the nonblocking MPI call on both, if there is one; ``decode(received, out)`` fills ``out`` if the
    receive buffer is a different one. ``in_place`` replaces ``post`` where ``out`` is the operand, which is otherwise
    copied first.
    """

    encode: Callable[[Array], Message]
    receive_into: Callable[[Array], Message]
    post: Callable[[Message, Message], object]
    start: Callable[[Message, Message], Sequence[MPI.Request]] = _cannot_start
    decode: Callable[[Message, Array], None] | None = None
    in_place: Callable[[Message, Message], object] | None = None
