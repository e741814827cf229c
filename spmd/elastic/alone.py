"""A job of one process, without MPI: what `Session` is for ranks."""

from __future__ import annotations

from collections.abc import Callable

from spmd.elastic.members import Member, Reason
from spmd.support.arrays import Tree


class Alone:
    """The one process that there is. Nobody can be lost."""

    is_elastic = False
    rank = 0
    ranks = 1
    is_new = False
    expected = 1

    def start(self, hand_over: Callable[[Tree], None]) -> None:
        """There is nobody to hand anything over to."""

    def tells_of_loss(self, error: BaseException) -> bool:
        return False

    def recover(
        self, hand_over: Callable[[Tree], None], reason: Reason
    ) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
        return (), ()

    def is_called(self, number: int, prepare: Callable[[int], None]) -> bool:
        return False

    def end(self) -> None:
        """There is nobody to be told."""

    def agree(self, whether: bool) -> bool:
        return whether
