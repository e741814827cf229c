"""Reads FlatBuffers: tables, vectors and strings, with every offset checked against the buffer.

Source: FlatBuffers internals. A table starts with the offset of its vtable, which holds the offset of each field within
the table (0: absent); vectors, strings and nested tables are referred to by forward offsets. Unlike the `flatbuffers`
package, this accepts untrusted files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NoReturn, TypeVar

from spmd.artifacts.stream import Buffer
from spmd.errors import ByteLocation, ParseError

T = TypeVar("T")

#: The largest nesting of tables: trees of arguments, and gradients of gradients.
DEEPEST = 64
_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")
_SIZES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8}


class FlatTable:
    """A table in the buffer. Fields are named by slot, in the order of the schema, from 0."""

    __slots__ = ("_data", "_depth", "_fields", "_file", "_start")

    def __init__(self, data: Buffer, file: str, start: int, depth: int = 0) -> None:
        self._data = data
        self._file = file
        self._start = start
        self._depth = depth
        if depth > DEEPEST:
            self.fail(f"tables must be nested at most {DEEPEST} deep")
        vtable = start - self._read(_I32, start)
        size = self._read(_U16, vtable)
        if size < 4 or size % 2 or vtable < 0 or vtable + size > len(data):
            self.fail(f"a table's vtable must be inside the buffer, got offset {vtable}")
        self._fields = vtable, size

    @classmethod
    def root(cls, data: Buffer, file: str) -> FlatTable:
        """Return the root table of the buffer."""
        if len(data) < 8:
            raise ParseError(f"{len(data)} bytes are too few for a table", ByteLocation(file, 0))
        return cls(data, file, _U32.unpack_from(data, 0)[0])

    def fail(self, message: str) -> NoReturn:
        """Raise ParseError at this table."""
        raise ParseError(message, ByteLocation(self._file, max(0, min(self._start, len(self._data))), "flatbuffer"))

    # --- fields ------------------------------------------------------------------------------------------------------

    def number(self, slot: int, format: str, default: int = 0) -> int:
        """Return a number, of a format of `struct`."""
        at = self._field(slot)
        return default if at is None else int(self._read(struct.Struct("<" + format), at))

    def table(self, slot: int) -> FlatTable | None:
        at = self._field(slot)
        return None if at is None else FlatTable(self._data, self._file, self._target(at), self._depth + 1)

    def text(self, slot: int) -> str | None:
        at = self._field(slot)
        return None if at is None else self._text(self._target(at))

    def numbers(self, slot: int, format: str) -> tuple[int, ...]:
        """Return a vector of numbers; empty if absent."""
        start, count = self._vector(slot, _SIZES[format])
        return struct.unpack_from(f"<{count}{format}", self._data, start) if count else ()

    def bytes(self, slot: int) -> Buffer | None:
        """Return a vector of bytes as a view of the buffer, or None if absent."""
        if self._field(slot) is None:
            return None
        start, count = self._vector(slot, 1)
        return self._data[start : start + count]

    def texts(self, slot: int) -> tuple[str, ...]:
        return tuple(self._each(slot, self._text))

    def tables(self, slot: int) -> list[FlatTable]:
        return self._each(slot, lambda at: FlatTable(self._data, self._file, at, self._depth + 1))

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _read(self, kind: struct.Struct, at: int) -> int:
        if at < 0 or at + kind.size > len(self._data):
            self.fail(f"{kind.size} bytes are needed at {at} of {len(self._data)}")
        return int(kind.unpack_from(self._data, at)[0])

    def _field(self, slot: int) -> int | None:
        """Return the position of a field; None if absent."""
        vtable, size = self._fields
        entry = 4 + 2 * slot
        offset = self._read(_U16, vtable + entry) if entry < size else 0
        return self._start + offset if offset else None

    def _target(self, at: int) -> int:
        return at + self._read(_U32, at)

    def _vector(self, slot: int, size: int) -> tuple[int, int]:
        """Return the position and length of a vector with elements of `size` bytes."""
        at = self._field(slot)
        if at is None:
            return 0, 0
        start = self._target(at)
        count = self._read(_U32, start)
        if count * size > len(self._data) - start - 4:
            self.fail(f"a vector of {count} elements of {size} bytes at {start} of {len(self._data)}")
        return start + 4, count

    def _text(self, start: int) -> str:
        count = self._read(_U32, start)
        if count > len(self._data) - start - 4:
            self.fail(f"a string of {count} bytes at {start} of {len(self._data)}")
        return bytes(self._data[start + 4 : start + 4 + count]).decode("utf-8", "replace")

    def _each(self, slot: int, read: Callable[[int], T]) -> list[T]:
        start, count = self._vector(slot, 4)
        return [read(self._target(start + 4 * index)) for index in range(count)]
