"""Memory of values within one block of memory, planned when the program is compiled.

What is needed when is written down first; places are given when all is known, the largest values first, each the
lowest place that is free for as long as it is needed. That comes close to the most that is needed at one time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64
#: The place of the arena among blocks of memory.
_ARENA = 0
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Placement:
    """Where each buffer lies, by its number: the block that was lent, or None for the arena, and the offset.

    `size`: bytes of the arena.
    """

    blocks: Sequence[int | None]
    offsets: Sequence[int]
    size: int


@dataclass
class _MemoryBlock:
    """A block of memory that buffers may lie in until `end`."""

    name: int | None
    size: int
    end: int


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
        self._lent: dict[int, _MemoryBlock] = {}

    def lend(self, name: int, nbytes: int) -> None:
        """Says that other memory, which nobody needed before, is needed by its owner from now on."""
        self._now += 1
        self._lent.setdefault(name, _MemoryBlock(name, nbytes, self._now))

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

    def lifetimes(self) -> list[tuple[int, int, int]]:
        """Bytes of each buffer, and when it is first and no longer needed, by what happens to the arena in order."""
        return list(zip(self._sizes, self._begins, self._ends, strict=True))

    def place(self) -> Placement:
        """Where the buffers lie: those that are needed at one time apart from each other."""
        sizes, begins, ends = (np.array(each, np.int64) for each in (self._sizes, self._begins, self._ends))
        offsets = np.zeros(len(sizes), np.int64)
        blocks = [_MemoryBlock(None, 0, _NEVER), *sorted(self._lent.values(), key=lambda block: block.size)]
        homes = np.full(len(sizes), -1)
        for number in np.lexsort((begins, -sizes)):
            size, end = sizes[number], ends[number]
            together = (begins < end) & (begins[number] < ends)
            roomy = [home for home, block in enumerate(blocks) if size <= block.size and end <= block.end]
            for home in (*roomy, _ARENA):
                beside = together & (homes == home)
                offset = _lowest(offsets[beside], sizes[beside], size)
                if offset + size <= blocks[home].size:
                    break
            blocks[home].size = max(blocks[home].size, offset + size)  # the arena grows where nothing else has room
            offsets[number], homes[number] = offset, home
        return Placement([blocks[home].name for home in homes], offsets.tolist(), int(blocks[_ARENA].size))


def _lowest(offsets: np.ndarray, sizes: np.ndarray, size: int) -> int:
    """The lowest offset of `size` bytes beside those that are taken."""
    if not offsets.size:
        return 0
    order = np.argsort(offsets, kind="stable")
    reach = np.concatenate(([0], np.maximum.accumulate((offsets + sizes)[order])))
    gaps = np.flatnonzero(offsets[order] - reach[:-1] >= size)
    return int(reach[gaps[0]] if gaps.size else reach[-1])
