"""Reads and writes primitives of bytecode, with every length checked.

Source: MLIR's bytecode format, "Primitives". The low zero bits of a variable-width integer's first byte are the number
of bytes that follow; signed integers are zigzag-encoded.
"""

from __future__ import annotations

from typing import NoReturn

from spmd.errors import ByteLocation, ParseError

Buffer = bytes | memoryview

#: Longer entries are not cached.
_LONGEST_KEY = 256
_UINT64 = 2**64 - 1
#: Single-byte integers by their byte.
_SHORT = bytes(range(1, 256, 2))
_HALVES = bytes(byte >> 1 for byte in range(256))


class ByteReader:
    """A part of a file, read from `position` to `end`; offsets are relative to the file."""

    __slots__ = ("data", "end", "file", "position", "section")

    def __init__(self, data: Buffer, file: str, section: str, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.file = file
        self.section = section
        self.position = position
        self.end = len(data) if end is None else end

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        place = self.position if position is None else position
        raise ParseError(message, ByteLocation(self.file, place, self.section))

    @property
    def left(self) -> int:
        return self.end - self.position

    def within(self, length: int, section: str) -> ByteReader:
        """Return a reader of the next `length` bytes, and skip them."""
        start = self.position
        self.skip(length)
        return ByteReader(self.data, self.file, section, start, start + length)

    def key(self, start: int, end: int) -> bytes | None:
        """Return the bytes from `start` to `end` as a cache key; None if they are too many."""
        if end - start > _LONGEST_KEY:
            return None
        data = self.data[start:end]
        return data if type(data) is bytes else bytes(data)

    def skip(self, length: int) -> None:
        if length > self.end - self.position:
            self.fail(f"{length} bytes are needed, but only {self.left} are left")
        self.position += length

    def byte(self) -> int:
        position = self.position
        self.skip(1)
        return self.data[position]

    def bytes(self, length: int) -> Buffer:
        """Return the next `length` bytes, as a view if the file's data is one."""
        position = self.position
        self.skip(length)
        return self.data[position : position + length]

    def varint(self) -> int:
        position = self.position
        if position >= self.end:
            self.fail("an integer is needed at the end")
        first = self.data[position]
        if first & 1:
            self.position = position + 1
            return first >> 1
        more = (first & -first).bit_length() - 1 if first else 8
        self.skip(more + 1)
        if not first:
            return int.from_bytes(self.data[position + 1 : position + 9], "little")
        return int.from_bytes(self.data[position : position + more + 1], "little") >> (more + 1)

    def varints(self, count: int) -> list[int]:
        """Return the next `count` numbers."""
        chunk = bytes(self.data[self.position : min(self.position + count, self.end)])
        if len(chunk) == count and not chunk.translate(None, _SHORT):
            self.position += count
            return list(chunk.translate(_HALVES))
        return [self.varint() for _ in range(count)]

    def rest(self) -> list[int]:
        """Return the numbers up to the end."""
        data, position, end = self.data, self.position, self.end
        numbers = []
        while position < end:
            first = data[position]
            if first & 1:
                numbers.append(first >> 1)
                position += 1
            elif first & 2 and position + 1 < end:
                numbers.append((first | data[position + 1] << 8) >> 2)
                position += 2
            else:
                self.position = position
                numbers.append(self.varint())
                position = self.position
        self.position = end
        return numbers

    def flagged(self) -> tuple[int, bool]:
        """Return a number and the flag in its lowest bit."""
        value = self.varint()
        return value >> 1, bool(value & 1)

    def svarint(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def count(self, what: str) -> int:
        """Return the number of the `what` that follow, checked against the remaining bytes."""
        position = self.position
        number = self.varint()
        if number > self.end - self.position:
            self.fail(f"{number} {what} do not fit into {self.left} bytes", position)
        return number

    def c_string(self) -> Buffer:
        """Return the bytes before the next zero, and skip it."""
        chunk = bytes(self.data[self.position : self.end])
        length = chunk.find(0)
        if length < 0:
            self.fail("a string must be terminated")
        self.position += length + 1
        return chunk[:length]

    def expect_end(self, what: str) -> None:
        if self.position != self.end:
            self.fail(f"{self.left} bytes are left after {what}")


class ByteWriter:
    """A growing buffer of bytes."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def byte(self, value: int) -> None:
        self.data.append(value)

    def bytes(self, data: Buffer | bytearray) -> None:
        self.data += data

    def varint(self, value: int) -> None:
        """Write a number in [0, 2**64) in as few bytes as possible."""
        if value < 0x80:
            self.data.append(value << 1 | 1)
            return
        size = (value.bit_length() + 6) // 7
        if size > 8:
            self.data.append(0)
            self.data += (value & _UINT64).to_bytes(8, "little")
        else:
            self.data += ((value << 1 | 1) << (size - 1)).to_bytes(size, "little")

    def flagged(self, value: int, flag: bool) -> None:
        self.varint(value << 1 | flag)

    def svarint(self, value: int) -> None:
        """Write a number in [-2**63, 2**63)."""
        self.varint(value << 1 if value >= 0 else ~(value << 1))
