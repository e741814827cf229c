"""What a process is doing, as far as others may have to wait for it."""

from __future__ import annotations


class Activity:
    """The communication that a process waits in: ``what`` is None between them, ``count`` tells one from the next.

    Two attribute stores a collective are all that watching costs; clocks are read by whoever watches.
    """

    __slots__ = ("count", "what")

    def __init__(self) -> None:
        self.what: str | None = None
        self.count = 0
