"""The few messages of protocol buffers that cross the interface.

Source: openxla/xla, compile_options.proto and xla_data.proto, for the numbers of fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.pjrt.errors import Code, PjrtError
from spmd.support.protobuf import Buffer, bytes_field, fields, message, number_field, numbers_field, packed


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
    try:
        return _build_options(data)
    except ValueError as error:
        raise PjrtError(Code.INVALID_ARGUMENT, str(error)) from None


def _build_options(data: bytes) -> BuildOptions:
    replicas = partitions = 1
    assignment: tuple[tuple[int, ...], ...] = ()
    for number, value in fields(data):
        if number == 7:
            _check_override(message(value))
        if number != 3:
            continue
        for inner, setting in fields(message(value)):
            if inner == 4 and isinstance(setting, int):
                replicas = max(setting, 1)
            elif inner == 5 and isinstance(setting, int):
                partitions = max(setting, 1)
            elif inner == 9:
                assignment = _assignment(message(setting))
    if assignment and (len(assignment) != replicas or any(len(row) != partitions for row in assignment)):
        raise PjrtError(Code.INVALID_ARGUMENT, f"the device assignment is not one of {replicas} by {partitions}")
    return BuildOptions(replicas, partitions, assignment)


def _check_override(data: Buffer) -> None:
    """PjrtError for an entry of the map env_option_overrides whose name, its key, is none of XLA's."""
    name = b"".join(bytes(message(value)) for number, value in fields(data) if number == 1).decode(errors="replace")
    if not name.startswith("xla_"):
        raise PjrtError(Code.INVALID_ARGUMENT, f"No such compile option: {name!r}")


def _assignment(data: Buffer) -> tuple[tuple[int, ...], ...]:
    """The rows of DeviceAssignmentProto, which has a message a partition."""
    columns = [
        [id for inner, ids in fields(message(value)) if inner == 1 for id in packed(ids).tolist()]
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
