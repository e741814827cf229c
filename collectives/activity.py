"""What a process is doing, as far as others may have to wait for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A communication to wait in: what it is, and the ranks without which it does not end.

    ``group`` are the ranks of the process group whose collective it is; ``turn`` is the collective's number in the
    group's order, or 0 for the last that the process has begun. ``settles`` is set where the ranks of the job come to
    terms: all of them are about to come, and a rank that does anything else that waits will not.
    """

    text: str
    ranks: tuple[int, ...]
    group: tuple[int, ...] = ()
    turn: int = 0
    settles: bool = False

    def at(self, turn: int) -> Waiting:
        """The same, of the collective of that number."""
        return Waiting(self.text, self.ranks, self.group, turn)


class Turns:
    """How many collectives of one process group a process has begun."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Activity:
    """The communication that a process is in: ``what`` is None between them, ``count`` tells one from the next.

    Two attribute stores a collective are all that watching costs; clocks are read by whoever watches. ``waits`` counts
    what is no collective of a group.
    """

    __slots__ = ("_turns", "waits", "what")

    def __init__(self) -> None:
        self.what: Waiting | None = None
        self.waits = Turns()
        self._turns: dict[tuple[int, ...], Turns] = {(): self.waits}

    def turns(self, group: tuple[int, ...]) -> Turns:
        """The counter of the group of these ranks."""
        return self._turns.setdefault(group, Turns())

    @property
    def count(self) -> int:
        """How many communications have begun."""
        return sum(turns.count for turns in tuple(self._turns.values()))

    def begun(self) -> dict[tuple[int, ...], int]:
        """How many collectives have begun in each group."""
        return {group: turns.count for group, turns in tuple(self._turns.items()) if group}
