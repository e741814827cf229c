"""MLIR bytecode, with or without VHLO in it, to a module and back. Source: MLIR's bytecode format."""

from __future__ import annotations

from spmd.artifacts import sections as s
from spmd.artifacts.ir_reader import IrReader
from spmd.artifacts.stream import Buffer
from spmd.artifacts.tables import Tables
from spmd.collecting import no_collection
from spmd.dialects import core
from spmd.errors import ByteLocation, ParseError, VerificationError
from spmd.ir import Block, Module, Region


def read_bytecode(data: Buffer, name: str = "<bytes>") -> Module:
    """The module that the bytecode is; its constants are views of `data` where they can be.

    Raises ParseError, with the offset and the section, for what is no bytecode, and VerificationError for all
    attributes that are not what their op declares.
    """
    container = s.read_container(data, name)
    with no_collection():
        try:
            reader = IrReader(Tables(container), container.section(s.IR))
            ops = reader.ops()
        except IndexError:
            raise ParseError("an op goes beyond the end", ByteLocation(name, len(data), s.SECTIONS[s.IR])) from None
        except (RecursionError, MemoryError) as error:
            message = f"the file is too large or too deep: {type(error).__name__}"
            raise ParseError(message, ByteLocation(name, 0)) from None
    if reader.diagnostics:
        raise VerificationError(reader.diagnostics)
    if len(ops) == 1 and isinstance(ops[0], Module):
        return ops[0]
    return Module("builtin.module", regions=[Region([Block((), ops)])], definition=core.OPS["builtin.module"])
