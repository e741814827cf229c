"""The other ends of infeed and outfeed: what users give, as what a Process reads and writes.

Source: StableHLO specification, "Streaming communication", which leaves them to the implementation.

A file of a stream is an .npz whose names tell the order: `0`, `1`, ... (or NumPy's `arr_0`, `arr_1`, ...), one an
infeed or outfeed op; an op of several tensors has `0.0`, `0.1`, ... Element types that NumPy's format does not know are
kept as `0:bfloat16`.
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
    """An infeed that reads a callable (called once an op), an iterable, or an .npz file.

    Each entry is an array, or a tuple of arrays for an op of several tensors.
    """
    if source is None:
        return None
    if callable(source):
        return cast(Infeed, source)
    if not isinstance(source, Iterable | str | PathLike):
        raise UsageError(f"an infeed is a function, an iterable or the path of an .npz file, got {kind_of(source)}")
    iterator = read_stream(source) if isinstance(source, str | PathLike) else iter(source)
    return cast(Infeed, lambda: next(iterator))


class OutfeedFile:
    """An outfeed kept in memory and written to an .npz file by `close`, at the latest when Python ends."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._entries: list[Entry] = []
        atexit.register(self.close)

    def __call__(self, arrays: Entry) -> None:
        self._entries.append(arrays)

    def close(self) -> None:
        """Writes the file."""
        atexit.unregister(self.close)
        write_stream(self._path, self._entries)


def outfeed_to(target: OutfeedTarget | None) -> Outfeed | None:
    """An outfeed that calls a callable, appends to a list, or gathers for a file (see OutfeedFile.close).

    Callables and lists get an array for an op of one tensor, a tuple of arrays for an op of several.
    """
    if target is None:
        return None
    if isinstance(target, str | PathLike):
        return OutfeedFile(target)
    if not callable(target) and not hasattr(target, "append"):
        raise UsageError(f"an outfeed is a function, a list or the path of an .npz file, got {kind_of(target)}")
    give: Callable[[Any], Any] = target if callable(target) else target.append
    return lambda arrays: give(arrays[0] if len(arrays) == 1 else arrays)


def check_entries(name: str, entries: Sequence[object], grid: ProcessGrid) -> None:
    """ExecutionError unless there is an entry for each process of `grid`."""
    if len(entries) != grid.size:
        raise ExecutionError(f"{name} has {len(entries)} entries, a {grid} process grid has {grid.size} processes")


@contextmanager
def open_streams(
    grid: ProcessGrid,
    infeed: Sequence[InfeedSource | None] | None,
    outfeed: Sequence[OutfeedTarget | None] | None,
) -> Iterator[Streams | None]:
    """Infeed and outfeed of each process of `grid` while it runs, None without any; files are written at the end.

    ExecutionError where there are more entries than processes, or fewer.
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
    """The entries of a stream's file in order. ArrayFileError for a file that is none."""
    entries: dict[int, dict[int, Array]] = {}
    for name, array in read_arrays(path).items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ArrayFileError(f"{path}: {name!r} tells no place in the stream; names are 0, 1, ... or 0.0, 0.1, ...")
        entry = entries.setdefault(int(match[1]), {})
        if int(match[2] or 0) in entry:
            raise ArrayFileError(f"{path}: {name!r} has the place of another array in the stream")
        entry[int(match[2] or 0)] = _viewed(array, match[3], f"{path}: {name!r}")
    return iter([tuple(array for _, array in sorted(entry.items())) for _, entry in sorted(entries.items())])


def _viewed(array: Array, name: str | None, where: str) -> Array:
    """`array` as the element type `name` of ml_dtypes, whose bits it holds."""
    if name is None:
        return array
    try:
        dtype = np.dtype(getattr(ml_dtypes, name))
    except (AttributeError, TypeError):
        raise ArrayFileError(f"{where}: {name!r} is no element type") from None
    if dtype.itemsize != array.dtype.itemsize:
        raise ArrayFileError(f"{where}: elements of {array.dtype.itemsize} bytes are none of type {name}")
    return array.view(dtype)


def write_stream(path: str | PathLike[str], entries: Iterable[Entry]) -> None:
    """Writes a stream's file, which `read_stream` reads back."""
    arrays: dict[str, Any] = {}
    for place, entry in enumerate(entries):
        for index, array in enumerate(entry):
            name = f"{place}" if len(entry) == 1 else f"{place}.{index}"
            if numpy_has(array.dtype):
                arrays[name] = array
            else:
                arrays[f"{name}:{array.dtype.name}"] = array.view(bits_dtype(array.dtype))
    with writing(path) as file:  # of a name without .npz NumPy would make one with it
        np.savez(file, **arrays)
