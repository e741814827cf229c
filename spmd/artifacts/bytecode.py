"""Reads and writes MLIR bytecode, with or without VHLO. Source: MLIR's bytecode format."""

from __future__ import annotations

from spmd.artifacts import sections as s
from spmd.artifacts.encodings.fields import Version
from spmd.artifacts.ir_reader import IrReader
from spmd.artifacts.ir_writer import IrWriter
from spmd.artifacts.numbering import Numbering
from spmd.artifacts.stream import Buffer, ByteWriter
from spmd.artifacts.tables import Tables
from spmd.dialects import core
from spmd.errors import ByteLocation, ParseError, VerificationError
from spmd.ir import Block, Module, Region
from spmd.support.collecting import no_collection


def read_bytecode(data: Buffer, name: str = "<bytes>") -> Module:
    """Return the module in bytecode `data`; its constants are views of `data` where possible.

    Raises ParseError, with offset and section, for malformed bytecode, and VerificationError for all attributes that
    break the declaration of their op.
    """
    container = s.read_container(data, name)
    with no_collection():
        try:
            reader = IrReader(Tables(container), container.section(s.IR))
            ops = reader.ops()
        except IndexError:
            raise ParseError("an op extends beyond the end", ByteLocation(name, len(data), s.SECTIONS[s.IR])) from None
        except (RecursionError, MemoryError) as error:
            message = f"the file is too large or too deep: {type(error).__name__}"
            raise ParseError(message, ByteLocation(name, 0)) from None
    if reader.diagnostics:
        raise VerificationError(reader.diagnostics)
    if len(ops) == 1 and isinstance(ops[0], Module):
        return ops[0]
    return Module("builtin.module", regions=[Region([Block((), ops)])], definition=core.OPS["builtin.module"])


#: The format version for each version of VHLO, from the version named on.
_FORMATS: tuple[tuple[Version, int], ...] = (((0, 15), 6), ((0, 14), 4), ((0, 12), 3), ((0, 10), 1), ((0, 9), 0))


def write_bytecode(module: Module, *, version: int = s.DURABLE, producer: str = "spmd") -> bytes:
    """Return the module as MLIR bytecode with its own ops; `version` is the format's, 0 to 6.

    Versions 5 and 6 can only be read by releases of StableHLO whose ops have the attributes declared here, those of
    VHLO 1.20 and later.
    """
    return _written(module, Numbering(version), producer)


def write_portable(module: Module, version: Version, producer: str = "spmd") -> bytes:
    """Return the module as a portable artifact of a VHLO version; raises ConversionError at an op that it lacks."""
    number = next(format for since, format in _FORMATS if since <= version)
    name = f"StableHLO_v{version[0]}.{version[1]}.0+{producer}"
    return _written(module, Numbering(number, version), name)


def _written(module: Module, numbering: Numbering, producer: str) -> bytes:
    with no_collection():
        ir = IrWriter(numbering).section(module)
    writer = ByteWriter()
    writer.bytes(s.MAGIC)
    writer.varint(numbering.version)
    writer.bytes(producer.encode() + b"\0")
    rest = ByteWriter()
    numbering.write_attributes(rest)
    numbering.write_resources(rest)
    numbering.write_dialects(writer)
    writer.bytes(rest.data)
    s.write_section(writer, s.IR, ir)
    numbering.write_strings(writer)
    if numbering.version >= s.PROPERTIES_APART:
        numbering.write_properties(writer)
    return bytes(writer.data)
