"""Comparison of the first calls of collectives between processes, asynchronously.

MPI does not check: if one process calls a sum and another a maximum, both get a wrong result without an error. The
watchdog threads send the first call of each bound collective to the next process of its group, which compares it with
its own call of the same sequence number as soon as both are known. Later calls are not compared, and the program does
not wait. So mismatches that `Communicator.compare` and `COLLECTIVE_CHECK` detect before the call are detected here
after it: of nonblocking collectives, and of operations that have been compared before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from collectives.operations import CollectivePermute
from collectives.record.activity import CAPACITY, Waiting
from collectives.states import mismatch_text

K = TypeVar("K")
V = TypeVar("V")

#: A call: group, sequence number, signature to compare, text for messages.
_Message = tuple[tuple[int, ...], int, str, str]
_Key = tuple[tuple[int, ...], int]


class FirstCalls:
    """The first calls of this process, and those received from its predecessor in each group."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._own: dict[_Key, tuple[str, str]] = {}
        self._received: dict[_Key, tuple[int, str, str]] = {}

    def new(self, firsts: deque[tuple[Waiting, int]]) -> dict[int, list[_Message]]:
        """Remove the new calls from `firsts`, and return them by the rank to send them to."""
        messages: dict[int, list[_Message]] = {}
        while firsts:
            waiting, sequence = firsts.popleft()
            call, group = waiting.call, waiting.group
            # Each process of a permutation may name only its own pairs.
            if call is None or call.name == CollectivePermute.name:
                continue
            identity = f"{call.text} to {call.result}"
            following = group[(group.index(self._rank) + 1) % len(group)]
            messages.setdefault(following, []).append((group, sequence, identity, waiting.text))
            _store(self._own, (group, sequence), (identity, waiting.text))
        return messages

    def receive(self, rank: int, calls: Sequence[_Message]) -> None:
        """Record the calls that process `rank` has sent."""
        for group, sequence, identity, text in calls:
            _store(self._received, (group, sequence), (rank, identity, text))

    def difference(self) -> str:
        """Return the mismatch with the predecessor, or ""."""
        for key in self._own.keys() & self._received.keys():
            identity, text = self._own.pop(key)
            rank, its_identity, its_text = self._received.pop(key)
            if identity != its_identity:
                return mismatch_text({self._rank: text, rank: its_text})
        return ""


def _store(table: dict[K, V], key: K, value: V) -> None:
    """Store a value; evict the oldest beyond `CAPACITY`."""
    table[key] = value
    if len(table) > CAPACITY:
        del table[next(iter(table))]
