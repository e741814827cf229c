"""Messages of protocol buffers, read and written without the package: a message is its fields by number.

Source: "Encoding" of the documentation of protocol buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np

from spmd.support.arrays import Array

Buffer = bytes | memoryview
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST = 10  # bytes of a number of 64 bits


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return the number at `at` and where it ends; ValueError where the data ends before."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"a message of {len(data)} bytes ends within a number")
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def fields(data: Buffer) -> Iterator[tuple[int, int | Buffer]]:
    """Yield the number and the value of each field of a message: an unsigned number, or bytes.

    Raises ValueError for data that is no message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            size, at = _varint(data, at)
        if size is None or at + size > len(data) or not number:
            raise ValueError(f"field {number} of a message is damaged")
        yield number, data[at : at + size]
        at += size


def message(value: int | Buffer) -> Buffer:
    """Return the bytes of a field that is a message; ValueError for a number."""
    if isinstance(value, int):
        raise ValueError("a message has a number where another message belongs")
    return value


def packed(value: int | Buffer) -> Array:
    """Return the numbers of a repeated field as int64: one, or several in one string of bytes."""
    if isinstance(value, int):
        return np.array([value], np.uint64).view(np.int64)
    codes = np.frombuffer(value, np.uint8)
    ends = np.flatnonzero(codes < 0x80)
    if codes.size and (not ends.size or ends[-1] != codes.size - 1):
        raise ValueError(f"{codes.size} bytes of numbers end within one")
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)[: ends.size]
    lengths = ends + 1 - starts
    if ends.size and lengths.max() > _LONGEST:
        raise ValueError(f"a number has at most {_LONGEST} bytes")
    numbers = np.zeros(ends.size, np.uint64)
    for place in range(int(lengths.max(initial=0))):
        at = np.flatnonzero(lengths > place)
        numbers[at] |= (codes[starts[at] + place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
    return numbers.view(np.int64)


class Message:
    """The fields of one message, by number. What is absent is 0, "" or empty. Raises ValueError like `fields`."""

    __slots__ = ("_fields",)

    def __init__(self, data: Buffer) -> None:
        self._fields: dict[int, list[int | Buffer]] = {}
        for number, value in fields(data):
            self._fields.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    @property
    def numbers_of_fields(self) -> frozenset[int]:
        """The numbers of the fields that are there."""
        return frozenset(self._fields)

    def values(self, number: int) -> list[int | Buffer]:
        """Return what the field holds, as often as it is there."""
        return self._fields.get(number, [])

    def number(self, number: int) -> int:
        """Return a signed number of 64 bits."""
        value = self.values(number)[-1:] or [0]
        if not isinstance(value[0], int):
            raise ValueError(f"field {number} of a message is no number")
        return value[0] - (value[0] >> 63 << 64)

    def numbers(self, number: int) -> list[int]:
        """Return the numbers of a repeated field."""
        return [each for value in self.values(number) for each in packed(value).tolist()]

    def single(self, number: int) -> float:
        """Return a number in floating point, of 32 bits."""
        value = self.values(number)[-1:] or [bytes(4)]
        (single,) = struct.unpack("<f", bytes(message(value[0])[:4]).ljust(4, b"\0"))
        return float(single)

    def bytes(self, number: int) -> Buffer:
        value = self.values(number)
        return message(value[-1]) if value else b""

    def text(self, number: int) -> str:
        return bytes(self.bytes(number)).decode("utf-8", "replace")

    def texts(self, number: int) -> list[str]:
        return [bytes(message(value)).decode("utf-8", "replace") for value in self.values(number)]

    def message(self, number: int) -> Message:
        """Return the message of a field, an empty one where it is absent."""
        return Message(self.bytes(number))

    def messages(self, number: int) -> list[Message]:
        return [Message(message(value)) for value in self.values(number)]


# --- written ---------------------------------------------------------------------------------------------------------


def number_field(number: int, value: int) -> bytes:
    """Return a field that is an unsigned number."""
    return _encoded(number << 3 | _VARINT) + _encoded(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field that is a message, a string or packed numbers."""
    return _encoded(number << 3 | _BYTES) + _encoded(len(value)) + value


def numbers_field(number: int, values: Sequence[int]) -> bytes:
    """Return a repeated field of unsigned numbers, packed."""
    return bytes_field(number, b"".join(map(_encoded, values))) if values else b""


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
