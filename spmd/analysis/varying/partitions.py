"""Partitions of the processes of a grid by equal values: one label per process.

Processes with the same label hold equal values, whatever the program's input. Partitions are unique objects, compared
by identity, and results of operations on them are cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]


class Partition:
    """A partition of the processes; uniform if all hold equal values. Made by `Partitions` only."""

    __slots__ = ("count", "is_uniform", "labels")

    def __init__(self, labels: Labels, count: int) -> None:
        self.labels = labels
        self.count = count
        self.is_uniform = count <= 1

    def disagreeing(self, ranks: Sequence[int]) -> tuple[int, int] | None:
        """Return two of the processes `ranks` that may hold different values; None if all agree."""
        labels = self.labels[list(ranks)]
        other = np.flatnonzero(labels != labels[0])
        return (ranks[0], ranks[int(other[0])]) if other.size else None


class Partitions:
    """The partitions of `size` processes, each made once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._known: dict[bytes, Partition] = {}
        self._joined: dict[tuple[Partition, Partition], Partition] = {}
        self.uniform = self.of(np.zeros(size, np.int64))
        self.distinct = self.of(np.arange(size))

    def of(self, labels: npt.ArrayLike) -> Partition:
        """Return the partition given by arbitrary labels, one per process."""
        return self._named(numbered(np.asarray(labels, np.int64)))

    def of_rows(self, rows: npt.ArrayLike) -> Partition:
        """Return the partition by equal rows, one per process."""
        return self._named(numbered(np.asarray(rows).reshape(self.size, -1)))

    def _named(self, labels: Labels) -> Partition:
        key = labels.tobytes()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Partition(labels, int(labels.max(initial=0)) + 1)
        return known

    def join(self, parts: Iterable[Partition]) -> Partition:
        """Return the join of `parts`: the partition of a value computed from values of these partitions."""
        result = self.uniform
        for part in parts:
            if part is result or part.is_uniform:
                continue
            result = part if result.is_uniform else self._join(result, part)
        return result

    def _join(self, left: Partition, right: Partition) -> Partition:
        key = (left, right)
        joined = self._joined.get(key)
        if joined is None:
            joined = self.of(left.labels * right.count + right.labels)
            self._joined[key] = self._joined[right, left] = joined
        return joined

    def selected(self, masks: Sequence[npt.NDArray[np.bool_]], parts: Sequence[Partition]) -> Partition:
        """Return the partition that is `parts[i]` on the processes of `masks[i]`, sharing no labels between them."""
        labels = np.zeros(self.size, np.int64)
        offset = 0
        for mask, part in zip(masks, parts, strict=True):
            labels = np.where(mask, part.labels + offset, labels)
            offset += part.count
        return self.of(labels)


#: The number of rows up to which a loop is faster than sorting.
_FEW = 256


def numbered(rows: npt.NDArray[np.generic]) -> Labels:
    """Return a label per row, or per element of a vector: equal ones have the same, numbered by first occurrence."""
    if len(rows) <= _FEW:
        seen: dict[object, int] = {}
        keys = rows.tolist() if rows.ndim == 1 else [row.tobytes() for row in rows]
        return np.array([seen.setdefault(key, len(seen)) for key in keys], np.int64)
    _, first, labels = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.empty(len(first), np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    canonical: Labels = order[labels.reshape(-1)]
    return canonical
