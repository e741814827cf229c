"""Memory of values within one block of memory, planned when the program is compiled.

What is needed when is written down first; places are given when all is known, the largest values first, each the
lowest place that is free for as long as it is needed. That comes close to the most that is needed at one time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

ALIGNMENT = 64
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Placement:
    """Where each buffer lies, by its number: the block that was lent, or None for the arena, and the offset.

    `size`: bytes of the arena.
    """

    blocks: Sequence[str | None]
    offsets: Sequence[int]
    size: int


@dataclass
class _Block:
    """A block of memory that buffers may lie in until `end`."""

    name: str | None
    size: int
    end: int
    numbers: list[int] = field(default_factory=list)


class Arena:
    """Buffers of one block of memory, each with the time in which it is needed.

    `needed`: bytes of those that are needed now, the least that the block has.
    """

    def __init__(self) -> None:
        self.needed = 0
        self._sizes: list[int] = []
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._now = 0
        self._lent: dict[str, _Block] = {}

    def lend(self, name: str, nbytes: int) -> None:
        """Says that other memory, which nobody needed before, is needed by its owner from now on."""
        self._now += 1
        self._lent.setdefault(name, _Block(name, nbytes, self._now))

    def allocate(self, nbytes: int) -> int:
        """The number of a buffer of `nbytes`, needed from now on."""
        self._now += 1
        self._sizes.append(max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT))
        self.needed += self._sizes[-1]
        self._begins.append(self._now)
        self._ends.append(_NEVER)
        return len(self._sizes) - 1

    def release(self, number: int) -> None:
        """Says that a buffer is not needed any more."""
        self._now += 1
        self.needed -= self._sizes[number]
        self._ends[number] = self._now

    def place(self) -> Placement:
        """Where the buffers lie: those that are needed at one time apart from each other."""
        sizes, begins, ends = (np.array(each, np.int64) for each in (self._sizes, self._begins, self._ends))
        offsets = np.zeros(len(sizes), np.int64)
        arena = _Block(None, _NEVER, _NEVER)
        lent = sorted(self._lent.values(), key=lambda block: block.size)
        homes: list[str | None] = [None] * len(sizes)
        for number in np.lexsort((begins, -sizes)):
            size, end = self._sizes[number], self._ends[number]
            for block in (*(block for block in lent if size <= block.size and end <= block.end), arena):
                there = np.array(block.numbers, np.int64)
                there = there[(begins[there] < ends[number]) & (begins[number] < ends[there])]
                offset = _lowest(offsets[there], sizes[there], size)
                if offset + size <= block.size:
                    offsets[number], homes[number] = offset, block.name
                    block.numbers.append(number)
                    break
        inside = np.array([home is None for home in homes], bool)
        return Placement(homes, offsets.tolist(), int((offsets + sizes)[inside].max(initial=0)))


def _lowest(size: np.ndarray, sizes: np.ndarray, wanted: int) -> int:
    """The lowest offset of `wanted` bytes beside those that are taken."""
    if not size.size:
        return 0
    order = np.argsort(size, kind="stable")
    begins = size[order]
    reach = np.concatenate(([0], np.maximum.accumulate((size + sizes)[order])))
    gaps = np.flatnonzero(begins - reach[:-1] >= wanted)
    return int(reach[gaps[0]] if gaps.size else reach[-1])
