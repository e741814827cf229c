"""Sources of infeed and targets of outfeed.

Source: StableHLO specification, "Streaming communication", which leaves them to the implementation.

The file of a stream is an .npz whose names give the order: `0`, `1`, ... (or NumPy's `arr_0`, `arr_1`, ...), one per
infeed or outfeed op; an op of several tensors has `0.0`, `0.1`, ... Element types that NumPy's format lacks are stored
as `0:bfloat16`.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, cast

import ml_dtypes
import numpy as np

from collectives.grid import ProcessGrid
from spmd.errors import ArrayFileError, ExecutionError, UsageError
from spmd.runtime.process import Infeed, Outfeed, Streams
from spmd.support.array_files import read_arrays
from spmd.support.arrays import Array, bits_dtype, numpy_has
from spmd.support.files import writing
from spmd.support.usage import kind_of

Entry = tuple[Array, ...]
InfeedSource = Callable[[], object] | Iterable[object] | str | PathLike[str]
OutfeedTarget = Callable[[Entry], None] | MutableSequence[Any] | str | PathLike[str]

_NAME = re.compile(r"(?:arr_)?(\d{1,18})(?:\.(\d{1,18}))?(?::(\w+))?", re.ASCII)


def infeed_from(source: InfeedSource | None) -> Infeed | None:
    """Return an infeed that reads a callable (called once per op), an iterable, or an .npz file.

    Each entry is an array, or a tuple of arrays for an op of several tensors. Raises UsageError for another source.
    """
    if source is None:
        return None
    if callable(source):
        return cast(Infeed, source)
    if not isinstance(source, Iterable | str | PathLike):
        raise UsageError(
            f"an infeed must be a function, an iterable or the path of an .npz file, got {kind_of(source)}"
        )
    iterator = read_stream(source) if isinstance(source, str | PathLike) else iter(source)
    return cast(Infeed, lambda: next(iterator))


class OutfeedFile:
    """An outfeed that is kept in memory and written to an .npz file by `close`, at the latest at exit."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._entries: list[Entry] = []
        atexit.register(self.close)

    def __call__(self, arrays: Entry) -> None:
        self._entries.append(arrays)

    def close(self) -> None:
        """Write the file."""
        atexit.unregister(self.close)
        write_stream(self._path, self._entries)


def outfeed_to(target: OutfeedTarget | None) -> Outfeed | None:
    """Return an outfeed that calls a callable, appends to a list, or collects for a file (see OutfeedFile.close).

    Callables and lists get an array for an op of one tensor, a tuple of arrays for an op of several. Raises UsageError
    for another target.
    """
    if target is None:
        return None
    if isinstance(target, str | PathLike):
        return OutfeedFile(target)
    if not callable(target) and not hasattr(target, "append"):
        raise UsageError(f"an outfeed must be a function, a list or the path of an .npz file, got {kind_of(target)}")
    give: Callable[[Any], Any] = target if callable(target) else target.append
    return lambda arrays: give(arrays[0] if len(arrays) == 1 else arrays)


def check_entries(name: str, entries: Sequence[object], grid: ProcessGrid) -> None:
    """Raise ExecutionError unless there is one entry per process of `grid`."""
    if len(entries) != grid.size:
        raise ExecutionError(f"{name} has {len(entries)} entries, a {grid} process grid has {grid.size} processes")


@contextmanager
def open_streams(
    grid: ProcessGrid,
    infeed: Sequence[InfeedSource | None] | None,
    outfeed: Sequence[OutfeedTarget | None] | None,
) -> Iterator[Streams | None]:
    """Open the infeed and outfeed of each process of `grid` for the context, None without any; files are written at its
    end.

    Raises ExecutionError unless there is one entry per process.
    """
    for name, entries in (("infeed", infeed), ("outfeed", outfeed)):
        if entries is not None:
            check_entries(name, entries, grid)
    if infeed is None and outfeed is None:
        yield None
        return
    infeeds = [infeed_from(source) for source in infeed or [None] * grid.size]
    outfeeds = [outfeed_to(target) for target in outfeed or [None] * grid.size]
    try:
        yield list(zip(infeeds, outfeeds, strict=True))
    finally:
        for stream in outfeeds:
            if isinstance(stream, OutfeedFile):
                stream.close()


def read_stream(path: str | PathLike[str]) -> Iterator[Entry]:
    """Return the entries of a stream's file in order; ArrayFileError if it is none."""
    entries: dict[int, dict[int, Array]] = {}
    for name, array in read_arrays(path).items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ArrayFileError(
                f"{path}: {name!r} is not a position in the stream; names must be 0, 1, ... or 0.0, 0.1, ..."
            )
        entry = entries.setdefault(int(match[1]), {})
        if int(match[2] or 0) in entry:
            raise ArrayFileError(f"{path}: {name!r} has the position of another array in the stream")
        entry[int(match[2] or 0)] = _viewed(array, match[3], f"{path}: {name!r}")
    return iter([tuple(array for _, array in sorted(entry.items())) for _, entry in sorted(entries.items())])


def _viewed(array: Array, name: str | None, where: str) -> Array:
    """Return `array` as the ml_dtypes type `name`, whose bits it holds."""
    if name is None:
        return array
    try:
        dtype = np.dtype(getattr(ml_dtypes, name))
    except (AttributeError, TypeError):
        raise ArrayFileError(f"{where}: {name!r} is not an element type") from None
    if dtype.itemsize != array.dtype.itemsize:
        raise ArrayFileError(f"{where}: elements of {array.dtype.itemsize} bytes cannot be of type {name}")
    return array.view(dtype)


def write_stream(path: str | PathLike[str], entries: Iterable[Entry]) -> None:
    """Write a stream's file, which `read_stream` reads back."""
    arrays: dict[str, Any] = {}
    for place, entry in enumerate(entries):
        for index, array in enumerate(entry):
            name = f"{place}" if len(entry) == 1 else f"{place}.{index}"
            if numpy_has(array.dtype):
                arrays[name] = array
            else:
                arrays[f"{name}:{array.dtype.name}"] = array.view(bits_dtype(array.dtype))
    with writing(path) as file:  # given a name without .npz, NumPy would append it
        np.savez(file, **arrays)
