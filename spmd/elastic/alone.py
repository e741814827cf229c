"""The counterpart of `Session` for a job of one process without MPI."""

from __future__ import annotations

from collections.abc import Callable

from spmd.elastic.members import Member, Reason
from spmd.support.arrays import Tree


class Alone:
    """`Session`'s interface for a single process, which has no other ranks that could fail or join."""

    is_elastic = False
    rank = 0
    ranks = 1
    is_new = False
    expected = 1

    def start(self, hand_over: Callable[[Tree], None]) -> None:
        """Do nothing: there are no other ranks."""

    def tells_of_loss(self, error: BaseException) -> bool:
        return False

    def recover(
        self, hand_over: Callable[[Tree], None], reason: Reason
    ) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
        return (), ()

    def is_called(self, number: int, prepare: Callable[[int], None]) -> bool:
        return False

    def end(self) -> None:
        """Do nothing: there are no other ranks."""

    def agree(self, whether: bool) -> bool:
        return whether
