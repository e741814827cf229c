"""What a process is doing, as far as others may have to wait for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A communication to wait in: what it is, and the ranks without which it does not end."""

    text: str
    ranks: tuple[int, ...]


class Activity:
    """The communication that a process is in: ``what`` is None between them, ``count`` tells one from the next.

    Two attribute stores a collective are all that watching costs; clocks are read by whoever watches.
    """

    __slots__ = ("count", "what")

    def __init__(self) -> None:
        self.what: Waiting | None = None
        self.count = 0
