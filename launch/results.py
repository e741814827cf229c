"""Output of a program's results, as text or to NumPy files."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from spmd.support.arrays import Array, numpy_has
from spmd.support.files import writing

#: Maximum number of runs of ranks in a line.
_MOST_RUNS = 8


def write(path: str, owners: Sequence[Sequence[Array]], owner: str = "rank", *, first: int = 0) -> None:
    """Write the results of each owner (a rank or a replica) to one file; with `{rank}` in `path`, to one file each.

    Arrays of a single owner are named `result0`, `result1`, ..., of several `rank0.result0`, ...; `first` is the number
    of the first owner.
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
    with writing(path) as file:  # given a name without .npz, NumPy would append it
        np.savez(file, **named)


def show(owners: Sequence[Sequence[Array]], owner: str = "rank") -> None:
    """Print each result; equal results of several owners (ranks or replicas) once, with the owners' numbers."""
    for numbers, index, array in _distinct(owners):
        named = "" if len(owners) == 1 else f"{owner}{'s' * (len(numbers) > 1)} {listed(numbers)}, "
        shape = "x".join(map(str, (*array.shape, array.dtype.name)))
        print(f"{named}result {index}: {shape}\n{np.array2string(array, separator=', ')}")


def _distinct(owners: Sequence[Sequence[Array]]) -> list[tuple[list[int], str, Array]]:
    """Return the distinct arrays of each result with their owners, in the order of their first owner."""
    found: dict[tuple[object, ...], tuple[list[int], str, Array]] = {}
    for number, results in enumerate(owners):
        for index, array in arrays_of(results):
            key = (index, array.shape, array.dtype, hashlib.sha256(array.tobytes()).digest())
            found.setdefault(key, ([], index, array))[0].append(number)
    return list(found.values())


def listed(ranks: Sequence[int]) -> str:
    """Return sorted numbers as text with runs as `0-3`; after some runs only the number of the rest."""
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
    """Return types that NumPy lacks as raw bytes: it writes f8E5M2 as `<f1`, which it cannot read."""
    return array if numpy_has(array.dtype) else array.view(f"V{array.dtype.itemsize}")


def arrays_of(results: Sequence[Array], owner: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays among results with their index; elements of a tuple as `0.0`, `0.1`, ...; no tokens."""
    for index, result in enumerate(results):
        if isinstance(result, tuple):
            yield from arrays_of(result, f"{owner}{index}.")
        elif result is not None:
            yield f"{owner}{index}", result
