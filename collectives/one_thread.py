"""One Python thread at a time in the collectives of a process group.

Ranks cannot agree on the order in which the collectives of two threads come: one rank's first meets the other's
second, and where shapes fit their results are mixed up. Two threads that are inside at the same time are therefore an
error: for the second at once, for the first when it leaves, and for all that come later, since nobody knows what has
been mixed up by then.
"""

from __future__ import annotations

import threading

from collectives.errors import CommunicationError


class OneThread:
    """``if not enter(False): raise crowded(what)``, then ``leave()`` in the end. ``owner`` is for its user's notes.

    ``enter`` is a lock's own method: entering costs some tens of nanoseconds.
    """

    __slots__ = ("_fault", "_lock", "enter", "owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: str | None = None
        self.enter = self._lock.acquire
        self.owner = 0

    def leave(self) -> None:
        """CommunicationError when another thread has tried to enter meanwhile; nobody can enter any more then."""
        if self._fault is not None:
            raise CommunicationError(self._fault)
        self._lock.release()

    def crowded(self, what: str) -> CommunicationError:
        """The error of a thread that finds another one inside."""
        if self._fault is None:
            self._fault = (
                f"two threads of this process are in one process group: {threading.current_thread().name} has come to "
                f"{what} while another thread was inside; ranks cannot agree on the order of two threads, so that only "
                "one at a time may call what communicates"
            )
        return CommunicationError(self._fault)
