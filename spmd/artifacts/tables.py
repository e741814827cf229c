"""What the ops of a bytecode file refer to by number: strings, dialects, op names, attributes, types, resources.

Attributes and types are decoded when they are first asked for. Source: MLIR's bytecode format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from spmd.artifacts import sections as s
from spmd.artifacts.encodings import DIALECTS
from spmd.artifacts.encodings.fields import EntryReader
from spmd.artifacts.sections import Container
from spmd.artifacts.stream import Buffer, ByteReader
from spmd.artifacts.text import parse_attribute, parse_type
from spmd.attributes import Attribute, DenseResourceAttr
from spmd.dialects.type_rules import type_fault
from spmd.syntax.dense import dense_raw
from spmd.types import TensorType, Type

#: How deep attributes and types refer to each other.
DEEPEST = 96


@dataclass(frozen=True)
class Dialect:
    name: str
    version: tuple[int, ...] = ()


class OpName(NamedTuple):
    """An op's full name; `registered` tells whether its producer knew it, None where the file does not say."""

    name: str
    registered: bool | None


#: Where an attribute or a type stands: its dialect, start and end, and whether in the dialect's encoding or as text.
_Where = tuple[str, int, int, int]


class Tables:
    """The tables of one file."""

    def __init__(self, container: Container) -> None:
        self.version = container.version
        self.strings = s.read_strings(container.section(s.STRINGS))
        self.dialects: list[Dialect] = []
        self.op_names: list[OpName] = []
        self._read_dialects(container.section(s.DIALECTS))
        self._data = container.section(s.ATTRIBUTES)
        self._attributes, self._types = self._read_offsets(container.section(s.ATTRIBUTE_OFFSETS))
        self.attributes: list[Attribute | None] = [None] * len(self._attributes)
        #: The types that were asked for so far, by number.
        self.types: dict[int, Type] = {}
        self.properties: list[tuple[int, int]] = []
        if s.PROPERTIES in container.sections:
            self._read_properties(container.section(s.PROPERTIES))
        self.resources: dict[str, Buffer] = {}
        self._resource_keys: list[str] = []
        if s.RESOURCES in container.sections:
            self._read_resources(container.section(s.RESOURCES), container.section(s.RESOURCE_OFFSETS))
        self._depth = 0

    # --- strings and names -------------------------------------------------------------------------------------------

    def text(self, reader: ByteReader, index: int) -> str:
        return self.string(reader, index).decode("utf-8", "surrogateescape")

    def string(self, reader: ByteReader, index: int) -> bytes:
        if index >= len(self.strings):
            reader.fail(f"string {index} of {len(self.strings)}")
        return self.strings[index]

    def _read_dialects(self, reader: ByteReader) -> None:
        for _ in range(reader.count("dialects")):
            if self.version < s.DIALECT_VERSIONS:
                self.dialects.append(Dialect(self.text(reader, reader.varint())))
                continue
            index, versioned = reader.flagged()
            name = self.text(reader, index)
            self.dialects.append(Dialect(name, self._dialect_version(reader) if versioned else ()))
        if self.version >= s.NO_UNKNOWN_LOCATIONS:
            reader.varint()  # the number of op names, for who allocates ahead
        while reader.left:
            dialect = self._dialect(reader)
            for _ in range(reader.count("op names")):
                known = None
                if self.version >= s.PROPERTIES_APART:
                    index, known = reader.flagged()
                else:
                    index = reader.varint()
                name = self.text(reader, index)
                self.op_names.append(OpName(f"{dialect}.{name}" if name else dialect, known))

    def _dialect_version(self, reader: ByteReader) -> tuple[int, ...]:
        position = reader.position
        number, inside = s.read_section(reader)
        if number != s.VERSIONS:
            reader.fail("a dialect's version is a section of its own", position)
        numbers = []
        while inside.left:
            numbers.append(inside.varint())
        return tuple(numbers)

    def _dialect(self, reader: ByteReader) -> str:
        index = reader.varint()
        if index >= len(self.dialects):
            reader.fail(f"dialect {index} of {len(self.dialects)}")
        return self.dialects[index].name

    # --- attributes and types ----------------------------------------------------------------------------------------

    def _read_offsets(self, reader: ByteReader) -> tuple[list[_Where], list[_Where]]:
        counts = reader.count("attributes"), reader.count("types")
        start = self._data.position
        tables: list[list[_Where]] = []
        for count in counts:
            table: list[_Where] = []
            while len(table) < count:
                dialect = self._dialect(reader)
                for number in reader.varints(reader.count("entries")):
                    end = start + (number >> 1)
                    table.append((dialect, start, end, number & 1))
                    start = end
            if len(table) != count:
                reader.fail(f"{len(table)} entries where {count} are told of")
            tables.append(table)
        reader.expect_end("the offsets")
        if start > self._data.end:
            reader.fail("entries lie beyond the section of attributes and types")
        return tables[0], tables[1]

    def attribute(self, index: int, reader: ByteReader) -> Attribute:
        """Attribute `index`, which `reader` refers to."""
        if index >= len(self.attributes):
            reader.fail(f"attribute {index} of {len(self.attributes)}")
        kept = self.attributes[index]
        if kept is None:
            new_attribute = self._entry(self._attributes[index], reader, "attribute")
            if not isinstance(new_attribute, Attribute):
                reader.fail(f"attribute {index} is none")
            kept = self.attributes[index] = new_attribute
        return kept

    def type(self, index: int, reader: ByteReader) -> Type:
        """Type `index`, which `reader` refers to."""
        if index >= len(self._types):
            reader.fail(f"type {index} of {len(self._types)}")
        kept = self.types.get(index)
        if kept is None:
            new_type = self._entry(self._types[index], reader, "type")
            fault = type_fault(new_type)
            if fault is not None:
                reader.fail(f"type {index}: ({fault[0]}) {fault[1]}" if fault[0] else f"type {index}: {fault[1]}")
            kept = self.types[index] = new_type
        return kept

    def _entry(self, where: _Where, asking: ByteReader, what: str) -> Any:
        dialect, start, end, encoded = where
        reader = _Entry(self, start, end)
        if self._depth >= DEEPEST:
            asking.fail(f"attributes and types refer to each other more than {DEEPEST} deep")
        self._depth += 1
        try:
            if not encoded:
                entry = _from_text(reader, what)
            else:
                known = DIALECTS.get(dialect)
                if known is None:
                    reader.fail(f"the encoding of the {dialect} dialect's own {what}s is not known")
                entry = (known.attributes if what == "attribute" else known.types).read(reader, dialect)
        finally:
            self._depth -= 1
        if reader.position != end:
            reader.expect_end(f"an entry of the {dialect} dialect")
        return entry

    # --- properties and resources ------------------------------------------------------------------------------------

    def _read_properties(self, reader: ByteReader) -> None:
        for _ in range(reader.count("properties")):
            length = reader.varint()
            self.properties.append((reader.position, reader.position + length))
            reader.skip(length)
        reader.expect_end("the properties")

    def property_entry(self, index: int, asking: ByteReader) -> EntryReader:
        """A reader of properties `index`."""
        if index >= len(self.properties):
            asking.fail(f"properties {index} of {len(self.properties)}")
        return _Entry(self, *self.properties[index], s.SECTIONS[s.PROPERTIES])

    def _read_resources(self, reader: ByteReader, offsets: ByteReader) -> None:
        for _ in range(offsets.count("groups")):
            offsets.varint()  # who they are for: nobody here
            for _ in self._group(reader, offsets):
                pass
        while offsets.left:
            self._dialect(offsets)
            for key, kind, inside in self._group(reader, offsets):
                self._resource_keys.append(key)
                if kind == _BLOB and inside.left:
                    self.resources[key] = _blob(inside)
        reader.expect_end("the resources")

    def _group(self, reader: ByteReader, offsets: ByteReader) -> Iterator[tuple[str, int, ByteReader]]:
        for _ in range(offsets.count("resources")):
            key = self.text(offsets, offsets.varint())
            size = offsets.varint()
            kind = offsets.byte()
            yield key, kind, reader.within(size, reader.section)

    def resource(self, index: int, type: Type, reader: ByteReader) -> Attribute:
        """The constant that resource `index` is, of `type`."""
        if index >= len(self._resource_keys):
            reader.fail(f"resource {index} of {len(self._resource_keys)}")
        if not isinstance(type, TensorType):
            reader.fail(f"a constant is a tensor, got {type}")
        key = self._resource_keys[index]
        data = self.resources.get(key)
        return DenseResourceAttr(key, type) if data is None else dense_raw(data, type)


_BLOB = 0


def _blob(reader: ByteReader) -> Buffer:
    """The bytes of a resource, behind their padding."""
    alignment, size = reader.varint(), reader.varint()
    if size > reader.left or alignment & (alignment - 1):
        reader.fail(f"a resource of {size} bytes at multiples of {alignment}, of which {reader.left} are there")
    reader.skip(reader.left - size)
    return reader.bytes(size)


def _from_text(reader: EntryReader, what: str) -> Any:
    text = bytes(reader.c_string()).decode("utf-8", "surrogateescape")
    try:
        return parse_attribute(text) if what == "attribute" else parse_type(text)
    except ValueError as error:
        reader.fail(f"{what} '{text[:80]}': {error}")


class _Entry(EntryReader):
    """Reads one entry of the tables."""

    __slots__ = ("tables",)

    def __init__(self, tables: Tables, start: int, end: int, section: str = "") -> None:
        shared = tables._data
        self.data = shared.data
        self.file = shared.file
        self.section = section or shared.section
        self.position = start
        self.end = end
        self.tables = tables

    def attribute_at(self, index: int) -> Attribute:
        return self.tables.attribute(index, self)

    def type_at(self, index: int) -> Type:
        return self.tables.type(index, self)

    def string_at(self, index: int) -> bytes:
        return self.tables.string(self, index)

    def resource_at(self, index: int, type: Type) -> Attribute:
        return self.tables.resource(index, type, self)
