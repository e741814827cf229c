"""Which processes of a grid hold the same value: a partition of them, as a label a process.

Two processes with one label hold equal values, whatever the program is given. Equal partitions are one object, so that
they are compared by identity, and what is made of them is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]


class Partition:
    """A partition of the processes; uniform where all of them hold the same value. Made by `Partitions` alone."""

    __slots__ = ("count", "is_uniform", "labels")

    def __init__(self, labels: Labels, count: int) -> None:
        self.labels = labels
        self.count = count
        self.is_uniform = count <= 1

    def disagreeing(self, ranks: Sequence[int]) -> tuple[int, int] | None:
        """Two of the processes `ranks` that may hold different values; None where all agree."""
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
        """Return the partition of these labels, one a process, of any numbers."""
        return self._named(numbered(np.asarray(labels, np.int64)))

    def of_rows(self, rows: npt.ArrayLike) -> Partition:
        """Return the partition of what each process holds: a row a process."""
        return self._named(numbered(np.asarray(rows).reshape(self.size, -1)))

    def _named(self, labels: Labels) -> Partition:
        key = labels.tobytes()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Partition(labels, int(labels.max(initial=0)) + 1)
        return known

    def join(self, parts: Iterable[Partition]) -> Partition:
        """What is computed of values of `parts`: the same where all of them are."""
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
        """Return the partition of `parts[i]` on the processes of `masks[i]`; processes of two masks share no value."""
        labels = np.zeros(self.size, np.int64)
        offset = 0
        for mask, part in zip(masks, parts, strict=True):
            labels = np.where(mask, part.labels + offset, labels)
            offset += part.count
        return self.of(labels)


#: Rows up to which numbering them one by one is quicker than sorting.
_FEW = 256


def numbered(rows: npt.NDArray[np.generic]) -> Labels:
    """Return a label a row, or an element of a vector: equal ones have one, and labels count up in the order of the
    first."""
    if len(rows) <= _FEW:
        seen: dict[object, int] = {}
        keys = rows.tolist() if rows.ndim == 1 else [row.tobytes() for row in rows]
        return np.array([seen.setdefault(key, len(seen)) for key in keys], np.int64)
    _, first, labels = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.empty(len(first), np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    canonical: Labels = order[labels.reshape(-1)]
    return canonical
