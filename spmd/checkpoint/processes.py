"""The processes that write or read a checkpoint together, and how they agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from spmd.errors import CheckpointError
from spmd.runtime import world

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


class CheckpointRanks:
    """`size` processes of which this one is number `rank`; alone without a communicator."""

    def __init__(self, communicator: MPI.Comm | None) -> None:
        if communicator is None and world.under_mpi():
            communicator = _world()
        self._communicator = communicator if communicator is not None and communicator.size > 1 else None
        self.rank = 0 if self._communicator is None else self._communicator.rank
        self.size = 1 if self._communicator is None else self._communicator.size

    def all_gather(self, value: T) -> list[T]:
        """What each process gives, in their order."""
        return [value] if self._communicator is None else self._communicator.allgather(value)

    def agree(self, act: Callable[[], T]) -> T:
        """What `act` returns here. When it fails on one process, all raise: that its own error, the others one that
        names it."""
        if self._communicator is None:
            return act()
        failed: Exception | None = None
        try:
            result = act()
        except Exception as error:
            failed = error
        told = self.all_gather(None if failed is None else str(failed) or type(failed).__name__)
        if failed is not None:
            raise failed
        for rank, message in enumerate(told):
            if message is not None:
                raise CheckpointError(f"process {rank}: {message}")
        return result

    def on_first(self, act: Callable[[], T]) -> T | None:
        """Like `agree`, with process 0 alone acting; None elsewhere."""
        return self.agree(lambda: act() if self.rank == 0 else None)


#: All ranks, on a communicator of our own: messages of checkpoints do not meet those of others. By generation.
_worlds: dict[int, MPI.Comm] = {}


def _world() -> MPI.Comm:
    comm = _worlds.get(world.generation)
    if comm is None:
        comm = _worlds[world.generation] = world.base().Dup()
    return comm


def retire() -> None:
    """Ends what this process does for checkpoints with other ranks, of which some are lost. Not collective."""
    retired = _worlds.pop(world.generation, None)
    if retired is not None:
        retired.Revoke()
