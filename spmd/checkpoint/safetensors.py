"""Files in the safetensors format, streamed and read in chunks, with a checksum of every byte.

A file is the length of its header (u64, little-endian), the header (JSON: names, types, shapes, offsets), and the bytes
of the arrays, row-major and little-endian, without gaps. Types that the format lacks are stored as bytes, with an
additional dimension. Source: the safetensors repository, "Format".
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

import ml_dtypes
import numpy as np

from spmd.checkpoint.blocks import Box
from spmd.checkpoint.checksum import checksum
from spmd.errors import DamagedCheckpointError
from spmd.support.arrays import Array, DType, Tree

#: Bytes of an array per checksum, which are read and verified together.
CHUNK = 1 << 22
#: Bytes after which write-back to the disk is started while more are written.
_STRETCH = 1 << 24
#: Bytes in memory at a time of a block that is not read as a whole.
_WINDOW = 1 << 25
_NAMES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
}  # fmt: skip


@lru_cache(maxsize=256)
def dtype_name(dtype: DType) -> str:
    """Return the name that `dtype_of` maps to this dtype, in little-endian order; TypeError if there is none."""
    if dtype.hasobject or dtype.names is not None:
        raise TypeError("holds Python objects" if dtype.hasobject else "has fields")
    name = dtype.newbyteorder("<").str if dtype.kind in "SUMm" else dtype.name
    try:
        found = dtype_of(name)
    except TypeError:
        found = None
    if found is None or found.newbyteorder("<") != dtype.newbyteorder("<") or not dtype.itemsize:
        raise TypeError(f"has the dtype {dtype}, which has no name")
    return name


def dtype_of(name: str) -> DType:
    return np.dtype(getattr(ml_dtypes, name, name))


def to_bytes(array: Array) -> Array:
    """Return the elements as u8[n], row-major and little-endian, without a copy where possible."""
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class Stored:
    """A block in a file: leaf, block of the array, offset and size in bytes, and a checksum per chunk."""

    leaf: int
    box: Box
    offset: int
    size: int
    checksums: tuple[int, ...]


@dataclass(frozen=True)
class FilePart:
    """A file of a checkpoint: its name, size in bytes, checksum of everything before the first array, and blocks."""

    file: str
    size: int
    header: int
    blocks: tuple[Stored, ...]


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file name to OSErrors without one, such as those of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write(path: Path, blocks: Sequence[tuple[int, str, Box, Array]], *, aside: bool) -> FilePart:
    """Write blocks (leaf, name in the file, block, elements) to a new file, and flush it to disk.

    With `aside` a thread computes the checksums during the write; none can be started at interpreter exit.
    """
    header = _header(blocks)
    data = [to_bytes(array) for *_, array in blocks]
    checksums: list[tuple[int, ...]] = []
    summing = threading.Thread(target=lambda: checksums.extend(map(_checksums, data)))
    if aside:
        summing.start()
    stored, offset = [], len(header)
    with naming(path), path.open("xb", buffering=0) as stream:
        try:
            _write(stream, [memoryview(header), *[part.data for part in data]])
            if not aside:
                summing.run()  # the disk is writing already
            os.fsync(stream.fileno())
        finally:
            if aside:
                summing.join()
    for (leaf, _, box, _), part, sums in zip(blocks, data, checksums, strict=True):
        stored.append(Stored(leaf, box, offset, len(part), sums))
        offset += len(part)
    return FilePart(path.name, offset, zlib.crc32(header), tuple(stored))


def _header(blocks: Sequence[tuple[int, str, Box, Array]]) -> bytes:
    """Return the length and the text of the header of a file with `blocks`."""
    entries: dict[str, Tree] = {}
    offset = 0
    for _, name, box, array in blocks:
        known = _NAMES.get(array.dtype.name)
        shape = [*box.shape] if known else [*box.shape, array.dtype.itemsize]
        entries[name] = {"dtype": known or "U8", "shape": shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write(stream: BinaryIO, parts: Sequence[memoryview]) -> None:
    """Write `parts` in order, and start write-back of each `_STRETCH` bytes as soon as they are written.

    By itself the kernel would start at fsync, or when much memory is dirty.
    """
    begun = end = 0
    for part in parts:
        for start in range(0, len(part), _STRETCH):
            piece = part[start : start + _STRETCH]
            while piece:
                count = stream.write(piece)
                piece, end = piece[count:], end + count
            if end - begun >= _STRETCH:
                # Starts write-back without waiting for it (Linux: mm/fadvise.c).
                os.posix_fadvise(stream.fileno(), begun, end - begun, os.POSIX_FADV_DONTNEED)
                begun = end


def _checksums(data: Array) -> tuple[int, ...]:
    return tuple([checksum(data[start : start + CHUNK]) for start in range(0, len(data), CHUNK)])


class PartFile:
    """A file of a checkpoint, open for reading; data is returned only after its checksum is verified.

    Size and header are verified on opening. DamagedCheckpointError names the file, and the array, that is damaged.
    """

    def __init__(self, folder: Path, part: FilePart, names: Sequence[str]) -> None:
        self._path = folder / part.file
        self._part = part
        self._names = names
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise DamagedCheckpointError(f"{self._path}: cannot be read: {error.strerror}") from error
        try:
            size = os.fstat(self._descriptor).st_size
            if size != part.size:
                raise DamagedCheckpointError(f"{self._path}: damaged: {size} bytes long, not {part.size}")
            length = min((block.offset for block in part.blocks), default=part.size)
            header = self._read(np.empty(length, np.uint8), 0)
            if zlib.crc32(header.data) != part.header:
                raise DamagedCheckpointError(
                    f"{self._path}: damaged: the header's checksum does not match the manifest's"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def verify(self) -> None:
        """Read the whole file; DamagedCheckpointError if a checksum does not match."""
        room = np.empty(CHUNK, np.uint8)
        for block in self._part.blocks:
            for chunk in range(len(block.checksums)):
                self._chunk(block, chunk, room)

    def read(self, block: Stored, dtype: DType, into: Array, box: Box) -> None:
        """Copy the intersection of `block` with `box`, the block that `into` holds; it must not be empty.

        Only the chunks that intersect it are read.
        """
        ranges = [
            (max(a, b), min(a + m, b + n))
            for a, m, b, n in zip(block.box.start, block.box.shape, box.start, box.shape, strict=True)
        ]
        source = tuple(slice(first - a, last - a) for (first, last), a in zip(ranges, block.box.start, strict=True))
        target = tuple(slice(first - a, last - a) for (first, last), a in zip(ranges, box.start, strict=True))
        if block.box == box and into.flags.c_contiguous:
            room = into.reshape(-1).view(np.uint8)
            for chunk in range(len(block.checksums)):
                self._chunk(block, chunk, room[chunk * CHUNK : (chunk + 1) * CHUNK])
            return
        needed = _chunks(block.box.shape, source, dtype.itemsize)
        _Windows(partial(self._chunk, block), block.size, needed, dtype).copy(0, block.box.shape, source, into[target])

    def _chunk(self, block: Stored, chunk: int, into: Array) -> None:
        start = block.offset + chunk * CHUNK
        length = min(CHUNK, block.offset + block.size - start)
        data = self._read(into[:length], start)
        if checksum(data) != block.checksums[chunk]:
            name = self._names[block.leaf] or "the array"
            raise DamagedCheckpointError(
                f"{self._path}: damaged: bytes {start} to {start + length} of {name} do not match their checksum"
            )

    def _read(self, into: Array, offset: int) -> Array:
        """Fill `into` from `offset`; DamagedCheckpointError if the file ends before."""
        data = into.data
        while data:
            try:
                count = os.preadv(self._descriptor, [data[: 1 << 30]], offset)
            except OSError as error:
                raise DamagedCheckpointError(f"{self._path}: cannot be read: {error.strerror}") from error
            if count == 0:
                raise DamagedCheckpointError(f"{self._path}: damaged: it ends at byte {offset}")
            data, offset = data[count:], offset + count
        return into


class _Windows:
    """Copies parts of a block of `size` bytes with bounded memory.

    `read` reads a chunk by number; `needed` are the chunks that contain copied elements, in order.
    """

    def __init__(self, read: Callable[[int, Array], None], size: int, needed: Sequence[int], dtype: DType) -> None:
        self._read, self._size, self._needed, self._dtype = read, size, needed, dtype
        self._room = np.empty(min(size, max(_WINDOW, dtype.itemsize)), np.uint8)
        self._chunk, self._number = np.empty(CHUNK, np.uint8), -1

    def copy(self, start: int, shape: tuple[int, ...], source: tuple[slice, ...], into: Array) -> None:
        """Copy `source` of the array of `shape` that starts at byte `start` of the block."""
        row = math.prod(shape[1:]) * self._dtype.itemsize
        if row * math.prod(shape[:1]) <= len(self._room):
            into[...] = self._bytes(start, row * math.prod(shape[:1])).view(self._dtype).reshape(shape)[source]
            return
        first, last = source[0].start, source[0].stop
        step = len(self._room) // row
        if not step:
            for index in range(first, last):
                self.copy(start + index * row, shape[1:], source[1:], into[index - first])
            return
        for index in range(first, last, step):
            count = min(step, last - index)
            part = into[index - first : index - first + count]
            self.copy(start + index * row, (count, *shape[1:]), (slice(0, count), *source[1:]), part)

    def _bytes(self, start: int, size: int) -> Array:
        """Return bytes of the block; those outside of the needed chunks are undefined."""
        first, last = bisect_left(self._needed, start // CHUNK), bisect_right(self._needed, (start + size - 1) // CHUNK)
        for chunk in self._needed[first:last]:
            begin, end = chunk * CHUNK, min((chunk + 1) * CHUNK, self._size)
            if start <= begin and end <= start + size:
                self._read(chunk, self._room[begin - start : end - start])
                continue
            if chunk != self._number:
                self._number = -1
                self._read(chunk, self._chunk)
                self._number = chunk
            low, high = max(begin, start), min(end, start + size)
            self._room[low - start : high - start] = self._chunk[low - begin : high - begin]
        return self._room[:size]


def _chunks(shape: tuple[int, ...], box: tuple[slice, ...], itemsize: int) -> list[int]:
    """Return the chunks of an array of `shape` that contain elements of `box`, in order."""
    inner = len(shape)
    while inner and box[inner - 1] == slice(0, shape[inner - 1]):
        inner -= 1
    # The dimensions from `inner` on are taken whole: a run is contiguous along the one before.
    strides = [itemsize * math.prod(shape[index + 1 :]) for index in range(len(shape))]
    first = np.zeros(1, np.int64)
    for index in range(inner - 1):
        first = np.add.outer(first, np.arange(box[index].start, box[index].stop) * strides[index]).reshape(-1)
    length = itemsize * math.prod(shape)
    if inner:
        first = first + box[inner - 1].start * strides[inner - 1]
        length = (box[inner - 1].stop - box[inner - 1].start) * strides[inner - 1]
    marks = np.zeros(itemsize * math.prod(shape) // CHUNK + 2, np.int64)
    np.add.at(marks, first // CHUNK, 1)
    np.add.at(marks, (first + length - 1) // CHUNK + 1, -1)
    return [int(chunk) for chunk in np.flatnonzero(np.cumsum(marks[:-1]))]
