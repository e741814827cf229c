"""The order in which a sort that need not be stable leaves elements that compare equal.

The specification leaves it open. The reference interpreter and XLA on CPU sort with the C++ library's std::sort, and
programs are checked against what that gives, so its steps are followed: quicksort around the median of three until no
part is longer than 16, then one insertion sort over all (Musser, "Introspective Sorting and Selection Algorithms",
1997). Its fallback for parts that do not shrink is not followed: such rows stay as a stable sort has them.

Which order is left hangs on the length of a row alone, never on how many rows there are: cutting or stacking an array
changes nothing.
"""

from __future__ import annotations

import numpy as np

from spmd.support.arrays import Array

#: Parts that are left to the insertion sort.
_SHORT = 16


def order_of_ranks(ranks: Array, stable: Array) -> Array:
    """Return the order of each row of `ranks` (rows, n), equal numbers where elements compare equal; `stable` is the
    stable order.
    """
    return np.array([_order(row, stable_row) for row, stable_row in zip(ranks.tolist(), stable.tolist(), strict=True)])


def _order(ranks: list[int], stable: list[int]) -> list[int]:
    places = list(range(len(ranks)))
    if not _roughly_sorted(ranks, places):
        return stable
    for last in range(1, len(places)):
        place = places[last]
        # What belongs in front of all goes there at once, anything else past those that are greater.
        gap = 0 if ranks[place] < ranks[places[0]] else last
        while gap and ranks[place] < ranks[places[gap - 1]]:
            gap -= 1
        places.insert(gap, places.pop(last))
    return places


def _roughly_sorted(ranks: list[int], places: list[int]) -> bool:
    """Divide `places` until the parts are short; whether that took no more rounds than it should."""
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
    """Bring the median of three to the front, what is smaller to the left and what is greater to the right of the place
    that is returned; equal elements are exchanged, too.
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
    """Return which of three is in the middle; of equal ones, the one that std::sort takes."""
    x, y, z = (ranks[places[at]] for at in (a, b, c))
    if x < y:
        return b if y < z else c if x < z else a
    return a if x < z else c if y < z else b
