"""A communicator's double, which nobody waits for but the thread that is to use it."""

from __future__ import annotations

import threading
import time

from mpi4py import MPI

from collectives.mpi_losses import is_loss

_LOOK = 2e-4  # seconds between two looks at a double that is on its way


class Double:
    """A double of ``comm``. Making one is collective, and begins here; ``finish`` waits for its end."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._original = comm
        self._comm, self._request = comm.Idup()
        self._lock = threading.Lock()
        self._finished = self._revoked = False

    def finish(self) -> MPI.Intracomm:
        """The double, once all ranks have begun it; raises MPI's error where ranks are lost meanwhile."""
        while True:
            with self._lock:
                if self._revoked or (not self._finished and is_loss(self._original)):
                    raise MPI.Exception(MPI.ERR_REVOKED)
                self._finished = self._finished or self._request.Test()
                if self._finished:
                    return self._comm
            time.sleep(_LOOK)

    def revoke(self) -> None:
        """Ranks are lost: whoever waits for the double, or in it, gets an error."""
        with self._lock:
            self._revoked = True
            if self._finished:
                self._comm.Revoke()
