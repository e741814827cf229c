"""Messages that nobody waits for until they have gone."""

from __future__ import annotations

from mpi4py import MPI

from collectives.mpi_losses import comes_of_loss


class PendingSends:
    """The sends over `comm` that are under way.

    MPI may read a message later, where the ranks are not connected yet, and mpi4py holds it as long as its request
    lives: each is kept until it has gone, or its receiver is lost.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._requests: list[MPI.Request] = []

    def add(self, request: MPI.Request) -> None:
        """Keeps `request`, and gives up those that are complete."""
        self._requests = [pending for pending in self._requests if not self._complete(pending)]
        self._requests.append(request)

    def _complete(self, request: MPI.Request) -> bool:
        try:
            return request.Test()
        except MPI.Exception as error:
            if not comes_of_loss(error, self._comm):
                raise
            return request == MPI.REQUEST_NULL
