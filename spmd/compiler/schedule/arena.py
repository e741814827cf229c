"""Static allocation of buffers within one block of memory.

Live ranges are recorded first; then offsets are assigned best-fit, largest first, each the lowest that is free for its
whole live range. That comes close to the peak of live bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64
#: Index of the arena among blocks of memory.
_ARENA = 0
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Placement:
    """The location of each buffer, by number: its block (None: the arena) and its offset.

    `size`: bytes of the arena.
    """

    blocks: Sequence[int | None]
    offsets: Sequence[int]
    size: int


@dataclass
class _MemoryBlock:
    """A block of memory that buffers may occupy until time `end`."""

    name: int | None
    size: int
    end: int


class Arena:
    """Buffers and their live ranges.

    `needed`: bytes live now, a lower bound of the size.
    """

    def __init__(self) -> None:
        self.needed = 0
        self._sizes: list[int] = []
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._now = 0
        self._offered: dict[int, _MemoryBlock] = {}

    def offer(self, name: int, nbytes: int) -> None:
        """Offer the block `name`, unused until now, to buffers that are dead by now."""
        self._now += 1
        self._offered.setdefault(name, _MemoryBlock(name, nbytes, self._now))

    def allocate(self, nbytes: int) -> int:
        """Return the number of a new buffer of `nbytes`, live from now on."""
        self._now += 1
        self._sizes.append(max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT))
        self.needed += self._sizes[-1]
        self._begins.append(self._now)
        self._ends.append(_NEVER)
        return len(self._sizes) - 1

    def release(self, number: int) -> None:
        """End the live range of buffer `number`."""
        self._now += 1
        self.needed -= self._sizes[number]
        self._ends[number] = self._now

    def lifetimes(self) -> list[tuple[int, int, int]]:
        """Return (bytes, begin, end) of each buffer; time is counted in events of the arena."""
        return list(zip(self._sizes, self._begins, self._ends, strict=True))

    def place(self) -> Placement:
        """Return the placement: buffers with overlapping live ranges do not overlap."""
        sizes, begins, ends = (np.array(each, np.int64) for each in (self._sizes, self._begins, self._ends))
        offsets = np.zeros(len(sizes), np.int64)
        blocks = [_MemoryBlock(None, 0, _NEVER), *sorted(self._offered.values(), key=lambda block: block.size)]
        homes = np.full(len(sizes), -1)
        for number in np.lexsort((begins, -sizes)):
            size, end = sizes[number], ends[number]
            together = (begins < end) & (begins[number] < ends)
            roomy = [home for home, block in enumerate(blocks) if size <= block.size and end <= block.end]
            for home in (*roomy, _ARENA):
                beside = together & (homes == home)
                offset = _lowest_gap(offsets[beside], sizes[beside], size)
                if offset + size <= blocks[home].size:
                    break
            blocks[home].size = max(blocks[home].size, offset + size)  # only the arena grows
            offsets[number], homes[number] = offset, home
        return Placement([blocks[home].name for home in homes], offsets.tolist(), int(blocks[_ARENA].size))


def _lowest_gap(offsets: np.ndarray, sizes: np.ndarray, size: int) -> int:
    """Return the lowest offset of `size` free bytes, given the occupied ones."""
    if not offsets.size:
        return 0
    order = np.argsort(offsets, kind="stable")
    reach = np.concatenate(([0], np.maximum.accumulate((offsets + sizes)[order])))
    gaps = np.flatnonzero(offsets[order] - reach[:-1] >= size)
    return int(reach[gaps[0]] if gaps.size else reach[-1])
