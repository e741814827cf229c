"""Nonblocking sends that complete in the background."""

from __future__ import annotations

from mpi4py import MPI

from collectives.mpi.losses import comes_of_loss


class PendingSends:
    """The pending sends over `comm`.

    If the ranks are not connected yet, MPI reads the buffer later; mpi4py's request object keeps it alive. So each
    request is kept until it is complete or its receiver has failed.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._requests: list[MPI.Request] = []

    def add(self, request: MPI.Request) -> None:
        """Keep `request` alive, and drop the requests that are complete."""
        self._requests = [pending for pending in self._requests if not self._complete(pending)]
        self._requests.append(request)

    def _complete(self, request: MPI.Request) -> bool:
        try:
            return request.Test()
        except MPI.Exception as error:
            if not comes_of_loss(error, self._comm):
                raise
            return request == MPI.REQUEST_NULL
