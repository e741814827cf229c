"""What a program returned, on the screen or in files of NumPy."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from spmd.support.arrays import Array, numpy_has
from spmd.support.files import writing

#: How many runs of ranks a line lists.
_MOST_RUNS = 8


def write(path: str, owners: Sequence[Sequence[Array]], owner: str = "rank", *, first: int = 0) -> None:
    """Writes the results of each owner, a rank or a replica, into one file; where `{rank}` stands in `path`, into a
    file each.

    Those of one owner are `result0`, `result1`, ... there, of several `rank0.result0`, ...; `first` is the first's
    number.
    """
    if "{rank}" in path:
        for number, results in enumerate(owners, first):
            _write(path.replace("{rank}", str(number)), [results], owner)
    else:
        _write(path, owners, owner)


def _write(path: str, owners: Sequence[Sequence[Array]], owner: str) -> None:
    named: dict[str, Any] = {
        f"result{index}" if len(owners) == 1 else f"{owner}{number}.result{index}": _as_numpy_keeps(array)
        for number, results in enumerate(owners)
        for index, array in arrays_of(results)
    }
    with writing(path) as file:  # of a name without .npz NumPy would make one with it
        np.savez(file, **named)


def show(owners: Sequence[Sequence[Array]], owner: str = "rank") -> None:
    """Prints each result, those of several owners (ranks or replicas) with their numbers: what is equal on some of
    them once."""
    for numbers, index, array in _distinct(owners):
        named = "" if len(owners) == 1 else f"{owner}{'s' * (len(numbers) > 1)} {listed(numbers)}, "
        shape = "x".join(map(str, (*array.shape, array.dtype.name)))
        print(f"{named}result {index}: {shape}\n{np.array2string(array, separator=', ')}")


def _distinct(owners: Sequence[Sequence[Array]]) -> list[tuple[list[int], str, Array]]:
    """The distinct arrays of each result with the owners that have them, in the order of the first of these."""
    found: dict[tuple[object, ...], tuple[list[int], str, Array]] = {}
    for number, results in enumerate(owners):
        for index, array in arrays_of(results):
            key = (index, array.shape, array.dtype, hashlib.sha256(array.tobytes()).digest())
            found.setdefault(key, ([], index, array))[0].append(number)
    return list(found.values())


def listed(ranks: Sequence[int]) -> str:
    """Rising numbers, runs of them as `0-3`; of many runs the first ones and how many numbers there are beside."""
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:_MOST_RUNS])
    more = sum(last - first + 1 for first, last in runs[_MOST_RUNS:])
    return f"{shown} and {more:,} more" if more else shown


def _as_numpy_keeps(array: Array) -> Array:
    """Types that NumPy does not have as their bits: `<f1`, which it writes for f8E5M2, it does not read."""
    return array if numpy_has(array.dtype) else array.view(f"V{array.dtype.itemsize}")


def arrays_of(results: Sequence[Array], owner: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays among results, by number, those of a tuple as `0.0`, `0.1`, ...; a token is nothing to show."""
    for index, result in enumerate(results):
        if isinstance(result, tuple):
            yield from arrays_of(result, f"{owner}{index}.")
        elif result is not None:
            yield f"{owner}{index}", result
