"""Source-target pairs of a collective_permute."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


class Ends:
    """Maps between sources and targets."""

    def __init__(self, pairs: tuple[tuple[int, int], ...]) -> None:
        self.sources: Mapping[int, int] = {target: source for source, target in pairs}
        self.targets: Mapping[int, int] = dict(pairs)
        ids = (*self.sources, *self.targets)
        self._orders: dict[int, NDArray[np.int64]] = {}
        self.lowest, self.highest = min(ids, default=0), max(ids, default=-1)

    def order(self, size: int) -> NDArray[np.int64]:
        """Return the source of each of ``size`` processes; -1 without one."""
        if size not in self._orders:
            order = np.full(size, -1, np.int64)
            order[list(self.sources)] = list(self.sources.values())
            self._orders[size] = order
        return self._orders[size]

    def linked(self, id: int) -> tuple[tuple[int, int], ...]:
        """Return the pairs that are connected with ``id``, directly or transitively.

        Sources are distinct, and targets are: these pairs form a chain or a ring.
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
    """Return the ends of ``pairs``, cached since programs repeat them."""
    return Ends(pairs)
