"""A collective on its way through MPI, in steps that are decided when it is bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpi4py import MPI

from collectives.arrays import Array
from collectives.mpi_types import Message


@dataclass(frozen=True)
class Transfer:
    """A collective on its way through MPI.

    ``encode(array)`` gives the send buffer and ``receive_into(out)`` the receive buffer; ``post`` and ``start`` are
    MPI's call, blocking and not; ``decode(received, out)`` completes ``out`` where the receive buffer is another.
    ``in_place`` is the blocking call on a result that holds the operand already.
    """

    encode: Callable[[Array], Message]
    receive_into: Callable[[Array], Message]
    post: Callable[[Message, Message], object]
    start: Callable[[Message, Message], Sequence[MPI.Request]]
    decode: Callable[[Message, Array], None] | None = None
    in_place: Callable[[Array], object] | None = None
