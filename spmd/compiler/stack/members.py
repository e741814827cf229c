"""Process groups of a collective as arrays, computed once for all ops with equal groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int64]


class Members:
    """Groups of ranks among `processes`; the order within a group matters."""

    def __init__(self, groups: Sequence[Sequence[int]], processes: int) -> None:
        self.rows: list[Ranks] = [np.array(group, np.int64) for group in groups]
        self.processes = processes

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The distinct sizes of groups."""
        return tuple(sorted({len(row) for row in self.rows}))

    @cached_property
    def joined(self) -> Ranks:
        """The ranks of all groups, concatenated."""
        return np.concatenate(self.rows) if self.rows else np.zeros(0, np.int64)

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """The processes in no group."""
        return tuple(np.flatnonzero(np.bincount(self.joined, minlength=self.processes) == 0).tolist())

    @cached_property
    def table(self) -> Ranks | None:
        """One row per group if groups have equal size and cover all processes; else None."""
        alike = len(self.sizes) == 1 and len(self.joined) == self.processes
        return self.joined.reshape(len(self.rows), -1) if alike else None

    @cached_property
    def extent(self) -> tuple[int, int, int] | None:
        """(A, G, B) if groups are the middle dimension of all ranks in that shape; else None."""
        table = self.table
        if table is None:
            return None
        count, size = table.shape
        inner = int(table[0, 1] - table[0, 0]) if size > 1 else 1
        if inner < 1 or not (table == table[:, :1] + inner * np.arange(size)).all():
            return None
        outer, rest = divmod(count, inner)
        heads = np.arange(outer)[:, None] * inner * size + np.arange(inner)
        if rest or not (np.sort(table[:, 0]) == heads.ravel()).all():
            return None
        return outer, size, inner

    @cached_property
    def by_size(self) -> list[Ranks]:
        """One table per size."""
        return [np.array([row for row in self.rows if len(row) == size]) for size in self.sizes]

    @cached_property
    def padded(self) -> Ranks:
        """One row per group, padded with -1."""
        ranks = np.full((len(self.rows), max(self.sizes, default=0)), -1, np.int64)
        for row, group in zip(ranks, self.rows, strict=True):
            row[: len(group)] = group
        return ranks
