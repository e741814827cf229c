"""Detection of several Python threads in the collectives of one process group.

Ranks cannot agree on the order of the collectives of two threads: the first on one rank may match the second on
another, which mixes up results of the same shape. Two threads inside at the same time are therefore an error: for the
second immediately, for the first when it leaves, and for all later ones, since results may have been mixed up.
"""

from __future__ import annotations

import threading

from collectives.errors import CommunicationError


class OneThread:
    """A lock: ``if not enter(False): raise crowded(what)``, then ``leave()``. ``owner`` is free for the user.

    ``enter`` is the method of a lock, which costs some tens of nanoseconds.
    """

    __slots__ = ("_fault", "_lock", "enter", "owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: str | None = None
        self.enter = self._lock.acquire
        self.owner = 0

    def leave(self) -> None:
        """Release; CommunicationError if another thread has tried to enter meanwhile, and then for all later ones."""
        if self._fault is not None:
            raise CommunicationError(self._fault)
        self._lock.release()

    def crowded(self, what: str) -> CommunicationError:
        """Return the error of a thread that finds another inside, and store it for the others."""
        if self._fault is None:
            self._fault = (
                f"two threads of this process are in one process group: {threading.current_thread().name} has come to "
                f"{what} while another thread was inside; ranks cannot agree on the order of two threads, so that only "
                "one at a time may call what communicates"
            )
        return CommunicationError(self._fault)
