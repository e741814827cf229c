"""That the processes of a group call the same collectives, compared behind the program's back.

MPI compares nothing: a sum on one process that meets a maximum on another gives both something, and nothing says so.
Threads that watch send the first call of each bound collective to the next process of its group; it is compared with
what that one called as the same of the group's collectives, as soon as both are known. Later calls are not compared,
and the program does not wait. What `Communicator.compare` and `COLLECTIVE_CHECK` find before it happens is found here
after it: collectives that are started, and those of a kind that has been compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from collectives.activity import KEPT, Waiting
from collectives.operations import CollectivePermute
from collectives.states import mismatch_text

K = TypeVar("K")
V = TypeVar("V")

#: Which collective of which group; what must be equal; what to tell.
_Told = tuple[tuple[int, ...], int, str, str]
_Key = tuple[tuple[int, ...], int]


class FirstCalls:
    """Those of one process, and those that it has heard of from the one before it in each group."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._own: dict[_Key, tuple[str, str]] = {}
        self._heard: dict[_Key, tuple[int, str, str]] = {}

    def new(self, firsts: deque[tuple[Waiting, int]]) -> dict[int, list[_Told]]:
        """Takes what is new from `firsts`: what to tell to whom."""
        told: dict[int, list[_Told]] = {}
        while firsts:
            waiting, turn = firsts.popleft()
            call, group = waiting.call, waiting.group
            # Of a permutation each process may name its own pairs alone.
            if call is None or call.name == CollectivePermute.name:
                continue
            identity = f"{call.text} to {call.result}"
            following = group[(group.index(self._rank) + 1) % len(group)]
            told.setdefault(following, []).append((group, turn, identity, waiting.text))
            _keep(self._own, (group, turn), (identity, waiting.text))
        return told

    def hear(self, rank: int, calls: Sequence[_Told]) -> None:
        """What process `rank` has told."""
        for group, turn, identity, text in calls:
            _keep(self._heard, (group, turn), (rank, identity, text))

    def difference(self) -> str:
        """How this process and the one before differ, if they do."""
        for key in self._own.keys() & self._heard.keys():
            identity, text = self._own.pop(key)
            rank, other, its_text = self._heard.pop(key)
            if identity != other:
                return mismatch_text({self._rank: text, rank: its_text})
        return ""


def _keep(table: dict[K, V], key: K, value: V) -> None:
    """Files a value; the oldest goes where there are many."""
    table[key] = value
    if len(table) > KEPT:
        del table[next(iter(table))]
