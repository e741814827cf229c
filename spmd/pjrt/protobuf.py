"""The few messages of protocol buffers that cross the interface, read and written by hand.

Source: "Encoding" of the documentation of protocol buffers; openxla/xla, compile_options.proto and xla_data.proto, for
the numbers of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spmd.pjrt.errors import Code, PjrtError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise PjrtError(Code.INVALID_ARGUMENT, f"a message of {len(data)} bytes ends within a number")
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message: an unsigned number, or bytes."""
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
        if size is None or at + size > len(data):
            raise PjrtError(Code.INVALID_ARGUMENT, f"field {number} of a message is damaged")
        yield number, data[at : at + size]
        at += size


def _numbers(value: int | bytes) -> list[int]:
    """The numbers of a repeated field: one, or several in one string of bytes."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise PjrtError(Code.INVALID_ARGUMENT, "a message has a number where another message belongs")
    return value


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


@dataclass(frozen=True)
class BuildOptions:
    """What this client reads of CompileOptionsProto: the grid, and its devices in the order of replica and partition.

    `assignment` has a row a replica; it is empty where the frontend leaves the choice to the client.
    """

    replicas: int = 1
    partitions: int = 1
    assignment: tuple[tuple[int, ...], ...] = ()


def build_options(data: bytes) -> BuildOptions:
    """Return what CompileOptionsProto says; PjrtError for a setting that is none of XLA's: theirs are ignored."""
    replicas = partitions = 1
    assignment: tuple[tuple[int, ...], ...] = ()
    for number, value in fields(data):
        if number == 7:
            _check_override(_message(value))
        if number != 3:
            continue
        for inner, setting in fields(_message(value)):
            if inner == 4 and isinstance(setting, int):
                replicas = max(setting, 1)
            elif inner == 5 and isinstance(setting, int):
                partitions = max(setting, 1)
            elif inner == 9:
                assignment = _assignment(_message(setting))
    if assignment and (len(assignment) != replicas or any(len(row) != partitions for row in assignment)):
        raise PjrtError(Code.INVALID_ARGUMENT, f"the device assignment is not one of {replicas} by {partitions}")
    return BuildOptions(replicas, partitions, assignment)


def _check_override(data: bytes) -> None:
    """PjrtError for an entry of the map env_option_overrides whose name, its key, is none of XLA's."""
    name = b"".join(_message(value) for number, value in fields(data) if number == 1).decode(errors="replace")
    if not name.startswith("xla_"):
        raise PjrtError(Code.INVALID_ARGUMENT, f"No such compile option: {name!r}")


def _assignment(data: bytes) -> tuple[tuple[int, ...], ...]:
    """The rows of DeviceAssignmentProto, which has a message a partition."""
    columns = [
        [id for inner, ids in fields(_message(value)) if inner == 1 for id in _numbers(ids)]
        for number, value in fields(data)
        if number == 3
    ]
    if len({len(column) for column in columns}) > 1:
        raise PjrtError(Code.INVALID_ARGUMENT, "the partitions of a device assignment have different replicas")
    return tuple(zip(*columns, strict=True))


def device_assignment(rows: Sequence[Sequence[int]]) -> bytes:
    """Return DeviceAssignmentProto of devices by replica and partition."""
    columns = [bytes_field(3, numbers_field(1, column)) for column in zip(*rows, strict=True)]
    return number_field(1, len(rows)) + number_field(2, len(rows[0])) + b"".join(columns)
