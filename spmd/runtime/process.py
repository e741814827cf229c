"""A process of the grid: its ids, communicator and streams.

Source: specification, "Parallel execution": a process has a replica id and a partition id, and takes part in
collectives, channels and streams.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar, cast

from collectives.communicator import Communicator
from collectives.errors import CommunicationError
from collectives.grid import ProcessGrid, ProcessId
from collectives.one_thread import OneThread
from collectives.threads import single_process
from spmd.support.arrays import Array, Nested

T = TypeVar("T")


class Infeed(Protocol):
    """The source of infeed: each call returns the arrays of one infeed op."""

    def __call__(self) -> tuple[Nested, ...]: ...


class Outfeed(Protocol):
    """The target of outfeed: takes the arrays of one outfeed op."""

    def __call__(self, arrays: tuple[Array, ...]) -> None: ...


#: Infeed and outfeed of each process of a grid.
Streams = Sequence[tuple[Infeed | None, Outfeed | None]]


class _Nobody:
    """The communicator of a process without one: every use raises CommunicationError."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise CommunicationError(self._reason)


class Process:
    """One process of a grid.

    `bound` caches what collectives compute once per process (groups, bound calls); `threads` restricts programs that
    communicate to one Python thread at a time. `streams` are infeed and outfeed of each process of a grid that this one
    computes as one stacked program.
    """

    __slots__ = ("bound", "communicator", "grid", "id", "infeed", "outfeed", "rank", "streams", "threads")

    def __init__(
        self,
        grid: ProcessGrid,
        communicator: Communicator,
        *,
        infeed: Infeed | None = None,
        outfeed: Outfeed | None = None,
        threads: OneThread | None = None,
        streams: Streams | None = None,
    ) -> None:
        self.grid = grid
        self.communicator = communicator
        self.rank = communicator.rank
        self.id: ProcessId = grid.process_id(communicator.rank)
        self.infeed = infeed
        self.outfeed = outfeed
        self.threads = threads
        self.streams = streams
        self.bound: dict[Hashable, Any] = {}

    def bind(self, key: Hashable, make: Callable[[Process], T]) -> T:
        """Return the result of `make` for this process, cached by `key`."""
        bound: T | None = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = make(self)
        return bound

    def member(self, grid: ProcessGrid, rank: int) -> Process:
        """Return process `rank` of `grid`, which this one computes with the others as one stacked program."""

        def make(whole: Process) -> Process:
            own = (whole.infeed, whole.outfeed) if whole.streams is None else whole.streams[rank]
            member = Process(grid, single_process(), infeed=own[0], outfeed=own[1])
            member.rank, member.id = rank, grid.process_id(rank)
            return member

        return self.bind((Process, grid, rank), make)

    def join(self, communicator: Communicator) -> None:
        """Become a process of a new communicator; drop everything cached for the previous one."""
        self.communicator = communicator
        self.rank = communicator.rank
        self.id = self.grid.process_id(communicator.rank)
        self.bound.clear()

    def leave(self, reason: str) -> None:
        """Take part in no more communication: any attempt raises CommunicationError with the ``reason``."""
        self.communicator = cast(Communicator, _Nobody(reason))
        self.bound.clear()

    def __repr__(self) -> str:
        return f"<process {self.rank} {self.id} of {self.grid}>"
