"""Memory of values within one block of memory, planned when the program is compiled."""

from __future__ import annotations

import bisect

ALIGNMENT = 64


class Arena:
    """Offsets in one block of memory: what is released is used again. `size` is what the block has to hold."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # (offset, bytes), by offset, no two adjacent

    def allocate(self, nbytes: int) -> int:
        """The offset of `nbytes`, aligned: in the smallest gap that holds them, else at the end."""
        wanted = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        best = min((gap for gap in self._free if gap[1] >= wanted), key=lambda gap: gap[1], default=None)
        if best is not None:
            self._free.remove(best)
            if best[1] > wanted:
                bisect.insort(self._free, (best[0] + wanted, best[1] - wanted))
            return best[0]
        if self._free and sum(self._free[-1]) == self.size:  # the last gap grows
            offset, _ = self._free.pop()
        else:
            offset = self.size
        self.size = offset + wanted
        return offset

    def release(self, offset: int, nbytes: int) -> None:
        """Gives back what `allocate` gave."""
        size = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        place = bisect.bisect(self._free, (offset, size))
        if place < len(self._free) and offset + size == self._free[place][0]:
            size += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == offset:
            offset, before = self._free.pop(place - 1)
            size += before
            place -= 1
        self._free.insert(place, (offset, size))
