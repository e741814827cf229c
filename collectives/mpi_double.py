"""A duplicate of a communicator, created without blocking any thread but the one that uses it."""

from __future__ import annotations

import threading
import time

from mpi4py import MPI

from collectives.mpi_losses import is_loss

_LOOK = 2e-4  # polling interval in seconds of a pending duplication


class Double:
    """A duplicate of ``comm``. The constructor starts the collective MPI_Comm_idup; ``finish`` waits for its end."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._original = comm
        self._comm, self._request = comm.Idup()
        self._lock = threading.Lock()
        self._finished = self._revoked = False

    def finish(self) -> MPI.Intracomm:
        """Returns the duplicate once all ranks have started it; raises MPI.Exception if ranks fail meanwhile."""
        while True:
            with self._lock:
                if self._revoked or (not self._finished and is_loss(self._original)):
                    raise MPI.Exception(MPI.ERR_REVOKED)
                self._finished = self._finished or self._request.Test()
                if self._finished:
                    return self._comm
            time.sleep(_LOOK)

    def revoke(self) -> None:
        """Revokes the duplicate after a rank failure: threads that wait for it, or on it, get an error."""
        with self._lock:
            self._revoked = True
            if self._finished:
                self._comm.Revoke()
