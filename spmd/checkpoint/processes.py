"""The processes that write or read a checkpoint together, and their agreement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from spmd.errors import CheckpointError, CollectiveError
from spmd.runtime import world

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.mpi import MpiCommunicator

T = TypeVar("T")


class CheckpointRanks:
    """The `size` processes of a collective call, of which this one is number `rank`.

    They are those of the `communicator`, or all ranks. Raises CheckpointError on all of them if they are in different
    calls, as described by `what`.
    """

    def __init__(self, communicator: MPI.Comm | None, what: str) -> None:
        self._what = what
        self._communicator = communicator
        self._ranks = self._come_together() if communicator is None and world.under_mpi() else None
        among = self._ranks or communicator
        self.rank, self.size = (0, 1) if among is None else (among.rank, among.size)

    def _come_together(self) -> MpiCommunicator:
        try:
            return world.come_together(self._what)
        except CollectiveError as error:
            raise CheckpointError(str(error)) from None

    def all_gather(self, value: T) -> list[T]:
        """Return the value of each process, in order. Collective."""
        if self.size == 1:
            return [value]
        if self._ranks is not None:
            return self._ranks.allgather_object(value, self._what)
        assert self._communicator is not None
        with world.waiting_in(self._what), world.receiving(self._communicator):
            return self._communicator.allgather(value)

    def failure_of(self, rank: int) -> Exception | None:
        """Return MPI's error if process `rank` has failed, which an elastic job survives; otherwise None."""
        return world.failure_of(rank, self._comm)

    def failure_of_any(self) -> Exception | None:
        """Return MPI's error if any process has failed, also if MPI reports it with a delay; otherwise None."""
        return world.failure_of(None, self._comm)

    @property
    def _comm(self) -> MPI.Comm | None:
        return self._communicator if self._ranks is None else self._ranks.comm

    def agree(self, act: Callable[[], T]) -> T:
        """Return the result of `act` on this process. If it fails on one, all raise: that one its error, the others a
        CheckpointError that names it. Collective.
        """
        if self.size == 1:
            return act()
        failed: Exception | None = None
        try:
            result = act()
        except Exception as error:
            failed = error
        messages = self.all_gather(None if failed is None else str(failed) or type(failed).__name__)
        if failed is not None:
            raise failed
        for rank, message in enumerate(messages):
            if message is not None:
                raise CheckpointError(f"process {rank}: {message}")
        return result

    def on_first(self, act: Callable[[], T]) -> T | None:
        """Call `act` on process 0 only, with errors as in `agree`; return its result there, None elsewhere."""
        return self.agree(lambda: act() if self.rank == 0 else None)
