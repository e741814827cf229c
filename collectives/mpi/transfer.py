"""A collective as a sequence of MPI steps, which is fixed when the collective is bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpi4py import MPI

from collectives.arrays import Array
from collectives.mpi.types import Message


@dataclass(frozen=True)
class Transfer:
    """The MPI steps of a collective.

    ``encode(array)`` returns the send buffer and ``receive_into(out)`` the receive buffer; ``post`` and ``start`` are
    the blocking and the nonblocking MPI call; ``decode(received, out)`` fills ``out`` if the receive buffer is a
    different one. ``in_place`` is the blocking call on a result buffer that already holds the operand.
    """

    encode: Callable[[Array], Message]
    receive_into: Callable[[Array], Message]
    post: Callable[[Message, Message], object]
    start: Callable[[Message, Message], Sequence[MPI.Request]]
    decode: Callable[[Message, Array], None] | None = None
    in_place: Callable[[Array], object] | None = None
