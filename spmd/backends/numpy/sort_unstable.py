"""The order in which an unstable sort leaves ties.

The specification leaves it open. The reference interpreter and XLA on CPU use the C++ library's std::sort, whose
results programs are checked against, so its steps are followed: quicksort with the median of three until parts have at
most 16 elements, then one insertion sort (Musser, "Introspective Sorting and Selection Algorithms", 1997). Its heap
sort fallback for degenerate parts is not followed: such rows are sorted stably.

The order depends on the length of a row only, not on the number of rows: slicing or stacking an array changes nothing.
"""

from __future__ import annotations

import numpy as np

from spmd.support.arrays import Array

#: Longest part that is left to the insertion sort.
_SHORT = 16


def order_of_ranks(ranks: Array, stable: Array) -> Array:
    """Return the order of each row of `ranks` (rows, n), equal for ties; `stable` is the stable order."""
    return np.array([_order(row, stable_row) for row, stable_row in zip(ranks.tolist(), stable.tolist(), strict=True)])


def _order(ranks: list[int], stable: list[int]) -> list[int]:
    places = list(range(len(ranks)))
    if not _roughly_sorted(ranks, places):
        return stable
    for last in range(1, len(places)):
        place = places[last]
        # Elements less than all others move to the front at once, others past greater ones.
        gap = 0 if ranks[place] < ranks[places[0]] else last
        while gap and ranks[place] < ranks[places[gap - 1]]:
            gap -= 1
        places.insert(gap, places.pop(last))
    return places


def _roughly_sorted(ranks: list[int], places: list[int]) -> bool:
    """Partition `places` until the parts are short; return whether that stayed within the depth limit."""
    parts = [(0, len(places), 2 * (len(places).bit_length() - 1))]
    while parts:
        first, last, rounds = parts.pop()
        if last - first <= _SHORT:
            continue
        if not rounds:
            return False
        cut = _divide(ranks, places, first, last)
        parts += [(first, cut, rounds - 1), (cut, last, rounds - 1)]
    return True


def _divide(ranks: list[int], places: list[int], first: int, last: int) -> int:
    """Move the median of three to the front and partition by it; return the split. Equal elements are
    exchanged, too.
    """
    median = _median(ranks, places, first + 1, first + (last - first) // 2, last - 1)
    places[first], places[median] = places[median], places[first]
    pivot = ranks[places[first]]
    left, right = first + 1, last
    while True:
        while ranks[places[left]] < pivot:
            left += 1
        right -= 1
        while pivot < ranks[places[right]]:
            right -= 1
        if left >= right:
            return left
        places[left], places[right] = places[right], places[left]
        left += 1


def _median(ranks: list[int], places: list[int], a: int, b: int, c: int) -> int:
    """Return which of three is the median; of ties, the one that std::sort takes."""
    x, y, z = (ranks[places[at]] for at in (a, b, c))
    if x < y:
        return b if y < z else c if x < z else a
    return a if x < z else c if y < z else b
