"""A process of the grid: who it is, and what it talks to.

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
    """Where infeed reads from: each call gives the arrays of one infeed op."""

    def __call__(self) -> tuple[Nested, ...]: ...


class Outfeed(Protocol):
    """Where outfeed writes to: takes the arrays of one outfeed op."""

    def __call__(self, arrays: tuple[Array, ...]) -> None: ...


#: Infeed and outfeed of each process of a grid.
Streams = Sequence[tuple[Infeed | None, Outfeed | None]]


class _Nobody:
    """The communicator of a process that has none."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise CommunicationError(self._reason)


class Process:
    """One process. `bound` keeps what collectives found out once for this process (groups, bound calls); `threads`
    lets one Python thread at a time run programs that communicate, where several might. `streams` are infeed and
    outfeed of each process of a grid that this one computes as one program.
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
        """What `make` gives for this process, made at the first call with `key` and kept."""
        bound: T | None = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = make(self)
        return bound

    def member(self, grid: ProcessGrid, rank: int) -> Process:
        """The process `rank` of `grid`, which this one computes as one program with its others."""

        def make(whole: Process) -> Process:
            own = (whole.infeed, whole.outfeed) if whole.streams is None else whole.streams[rank]
            member = Process(grid, single_process(), infeed=own[0], outfeed=own[1])
            member.rank, member.id = rank, grid.process_id(rank)
            return member

        return self.bind((Process, grid, rank), make)

    def join(self, communicator: Communicator) -> None:
        """Goes on as a process of other ranks: what was found out about those of before is forgotten."""
        self.communicator = communicator
        self.rank = communicator.rank
        self.id = self.grid.process_id(communicator.rank)
        self.bound.clear()

    def leave(self, reason: str) -> None:
        """Takes part in no communication any more: whatever would is a CommunicationError with the ``reason``."""
        self.communicator = cast(Communicator, _Nobody(reason))
        self.bound.clear()

    def __repr__(self) -> str:
        return f"<process {self.rank} {self.id} of {self.grid}>"
