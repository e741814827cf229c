"""What holds a module: HloModuleProto itself, HloProto, HloSnapshot and HloUnoptimizedSnapshot, known by their fields.

All of them begin with field 1: a module's name, a module, or a snapshot's HloProto. Source: openxla/xla, hlo.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spmd.builder.hlo.parser import parse_hlo
from spmd.builder.hlo.proto.literals import literal
from spmd.builder.hlo.proto.modules import module_text
from spmd.errors import ByteLocation, ParseError
from spmd.ir import Module
from spmd.support.arrays import Nested
from spmd.support.protobuf import Buffer, Message

#: How the first byte of each of these messages reads: field 1, of a length that follows.
_FIRST = 0x0A


@dataclass(frozen=True)
class HloFile:
    """A module, and the arguments that a snapshot holds: a row for each device, or one for all; none in other files."""

    module: Message
    arguments: tuple[tuple[Message, ...], ...] = ()

    def values(self, file: str) -> list[tuple[Nested, ...]]:
        """Return the arguments; ParseError where they are none."""
        try:
            return [tuple(literal(each) for each in row) for row in self.arguments]
        except ValueError as error:
            raise ParseError(f"an argument of the snapshot: {error}", ByteLocation(file, 0)) from None


def hlo_file(data: Buffer) -> HloFile | None:
    """Return what a file holds; None where it is no message with a module of HLO."""
    if len(data) < 2 or data[0] != _FIRST:
        return None
    try:
        whole = Message(data)
        if _is_module(whole):
            return HloFile(whole)
        inner = whole.message(1)
        if _is_module(inner):  # HloProto, or HloUnoptimizedSnapshot with the arguments of each partition
            return HloFile(inner, tuple(tuple(inputs.messages(1)) for inputs in whole.messages(2)))
        if _is_module(inner.message(1)):
            return HloFile(inner.message(1), (tuple(whole.messages(2)),))
    except ValueError:
        return None
    return None


def _is_module(message: Message) -> bool:
    """Return whether a message has a name and computations, whose instructions have opcodes."""
    if not {1, 3} <= message.numbers_of_fields or not isinstance(message.values(3)[0], Buffer):
        return False
    return all(computation and instruction for computation, instruction in _parts(message))


def _parts(module: Message) -> Iterator[tuple[bool, bool]]:
    """Yield of the first computation and its first instruction whether they have a name, and an opcode."""
    computation = module.messages(3)[0]
    instructions = computation.messages(2)
    yield bool(computation.text(1)), bool(instructions and instructions[0].text(2))


def read_hlo_proto(file: HloFile, name: str) -> Module:
    """Return the module of a file. Raises what `parse_hlo` does, with places in the module's text."""
    try:
        text, constants = module_text(file.module)
    except ValueError as error:
        raise ParseError(f"HloModuleProto: {error}", ByteLocation(name, 0)) from None
    return parse_hlo(text, f"{name}, as HLO text", constants)
