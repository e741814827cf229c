"""Source and target pairs: who sends to whom in a collective_permute."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


class Ends:
    """Who sends to whom."""

    def __init__(self, pairs: tuple[tuple[int, int], ...]) -> None:
        self.sources: Mapping[int, int] = {target: source for source, target in pairs}
        self.targets: Mapping[int, int] = dict(pairs)
        ids = (*self.sources, *self.targets)
        self._orders: dict[int, NDArray[np.int64]] = {}
        self.lowest, self.highest = min(ids, default=0), max(ids, default=-1)

    def order(self, size: int) -> NDArray[np.int64]:
        """Of ``size`` processes, who sends to each; -1 where nobody does."""
        if size not in self._orders:
            order = np.full(size, -1, np.int64)
            order[list(self.sources)] = list(self.sources.values())
            self._orders[size] = order
        return self._orders[size]

    def linked(self, id: int) -> tuple[tuple[int, int], ...]:
        """Return the pairs that link ``id`` to others, directly or through each other; they need no others.

        Sources are unique, and targets are: these pairs are a chain or a ring.
        """
        first = id
        while (source := self.sources.get(first)) is not None and source != id:
            first = source
        pairs, at = [], first
        while (target := self.targets.get(at)) is not None:
            pairs.append((at, target))
            at = target
            if at == first:
                break
        return tuple(sorted(pairs))


@lru_cache(maxsize=64)
def ends_of(pairs: tuple[tuple[int, int], ...]) -> Ends:
    """The ends of pairs: programs have the same again and again."""
    return Ends(pairs)
