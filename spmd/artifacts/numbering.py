"""The tables of a bytecode file being written: entries are encoded when first referred to.

Attributes and types have one of two spellings: that of MLIR and each dialect, or VHLO's. Since version 1.11 of VHLO,
entries without a VHLO code keep their own spelling.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import NoReturn

from spmd.artifacts import sections as s
from spmd.artifacts.encodings import DIALECTS
from spmd.artifacts.encodings.builtin import BUILTIN
from spmd.artifacts.encodings.fields import Encoding, EntryWriter, FieldValue, Version
from spmd.artifacts.encodings.locations import FileLocation, FileRange, location_of
from spmd.artifacts.encodings.vhlo import VHLO
from spmd.artifacts.stream import ByteWriter
from spmd.artifacts.vhlo.convert import fault
from spmd.dialects import OPS
from spmd.ir import Op
from spmd.ir.attributes import Attribute, DenseAttr, DictAttr, LocationAttr, StringAttr
from spmd.syntax.attribute_printer import format_attribute
from spmd.types import Type

#: The spellings.
PLAIN, PORTABLE = "", "vhlo"
#: The first VHLO version that allows attributes, types and ops of other dialects.
MIXED: Version = (1, 11)
#: The first VHLO version whose readers support file ranges.
_RANGES: Version = (1, 9)
#: The dialects that readers of VHLO know.
READ_BESIDE = frozenset({definition.dialect for definition in OPS.values()} | {"quant"})
#: Larger constants are identified by their array: comparing elements would be slower than writing them twice.
_COMPARED_BELOW = 1 << 12

_Entry = tuple[str, bytes | bytearray, bool]


class Numbering:
    """Strings, dialects, op names, attributes, types, properties and resources by number."""

    def __init__(self, version: int, portable: Version | None = None) -> None:
        self.version = version
        self.portable = portable
        #: The op being written, for errors.
        self.op: Op | None = None
        self._strings: dict[bytes, int] = {}
        self._dialects: dict[str, int] = {}
        self._op_names: dict[tuple[str, bool], int] = {}
        self._attributes: dict[Hashable, int] = {}
        self._attribute_entries: list[_Entry] = []
        self._types: dict[tuple[str, Type], int] = {}
        self._type_entries: list[_Entry] = []
        self._properties: dict[bytes, int] = {}
        self._resources: dict[str, int] = {}

    def string(self, data: bytes) -> int:
        return self._strings.setdefault(data, len(self._strings))

    def dialect(self, name: str) -> int:
        return self._dialects.setdefault(name, len(self._dialects))

    def op_name(self, name: str, registered: bool) -> int:
        return self._op_names.setdefault((name, registered), len(self._op_names))

    def properties(self, data: bytes) -> int:
        return self._properties.setdefault(data, len(self._properties))

    def resource(self, key: str) -> int:
        return self._resources.setdefault(key, len(self._resources))

    # --- attributes and types ----------------------------------------------------------------------------------------

    def attribute(self, attribute: Attribute, spelling: str = PLAIN) -> int:
        """Return the number of `attribute`, encoding a new one."""
        key = (spelling, _identity(attribute))
        number = self._attributes.get(key)
        if number is None:
            if isinstance(attribute, LocationAttr):
                return self.location(attribute.text)
            known = VHLO.attributes.find(attribute) if spelling == PORTABLE else None
            if spelling == PORTABLE and known is None:
                typed = isinstance(attribute, StringAttr)  # a string with a type: only plain ones have a code
                self._expect_mixed("attributes", format_attribute(attribute), held=not typed)
                number = self.attribute(attribute)
            else:
                number = len(self._attribute_entries)
                self._attribute_entries.append(("", b"", False))
            self._attributes[key] = number
            if spelling == PLAIN or known is not None:
                self._attribute_entries[number] = self._encoded(attribute, known, spelling, "attributes")
        return number

    def dictionary(self, entries: Mapping[str, Attribute], spelling: str) -> int:
        """Return the number of a dictionary attribute in `spelling`."""
        whole = DictAttr(entries)
        key = (spelling, "dictionary", whole)
        number = self._attributes.get(key)
        if number is None:
            number = self._attributes[key] = len(self._attribute_entries)
            self._attribute_entries.append(("", b"", False))
            writer = _TableWriter(self, spelling)
            encoding, values = BUILTIN.attributes.find(whole)  # type: ignore[misc]
            encoding.write(writer, values)
            self._attribute_entries[number] = ("builtin", writer.data, True)
        return number

    def location(self, text: str | None) -> int:
        location = location_of(text)
        if self.portable is not None and self.portable < _RANGES:
            location = _without_ranges(location)
        return self.attribute(location)

    def type(self, type: Type, spelling: str = PLAIN) -> int:
        number = self._types.get((spelling, type))
        if number is None:
            known = VHLO.types.find(type) if spelling == PORTABLE else None
            if spelling == PORTABLE and known is None:
                self._expect_mixed("types", str(type), held=_dialect_of(str(type)) != "builtin")
                number = self.type(type)
            else:
                number = len(self._type_entries)
                self._type_entries.append(("", b"", False))
            self._types[spelling, type] = number
            if spelling == PLAIN or known is not None:
                self._type_entries[number] = self._encoded(type, known, spelling, "types")
        return number

    def _encoded(
        self, value: FieldValue, known: tuple[Encoding, tuple[FieldValue, ...]] | None, spelling: str, table: str
    ) -> _Entry:
        dialect = PORTABLE
        if known is None:
            for dialect, encodings in DIALECTS.items():
                known = getattr(encodings, table).find(value) if dialect != PORTABLE else None
                if known is not None:
                    break
        elif self.portable is not None and self.portable < known[0].since:
            since = known[0].since
            text = str(value) if isinstance(value, Type) else format_attribute(value)
            self._fail(f"{text[:60]} is supported from version {since[0]}.{since[1]}")
        if known is None:
            text = str(value) if isinstance(value, Type) else format_attribute(value)
            if self.portable is not None and not _dialects_in(text) <= READ_BESIDE:
                self._fail(f"no version has {table} such as {text[:60]}")
            return _dialect_of(text), _bytes(text) + b"\0", False
        writer = _TableWriter(self, spelling)
        known[0].write(writer, known[1])
        return dialect, writer.data, True

    def _expect_mixed(self, table: str, text: str, *, held: bool) -> None:
        """Raise ConversionError for an entry without a VHLO code that the target version does not allow as it is."""
        if not held or _dialect_of(text) == "stablehlo" or not _dialects_in(text) <= READ_BESIDE:
            self._fail(f"no version has {table} such as {text[:60]}")
        if self.portable is not None and self.portable < MIXED:
            self._fail(f"{table} such as {text[:60]}, without a VHLO code, are supported from version 1.11")

    def _fail(self, why: str) -> NoReturn:
        assert self.op is not None and self.portable is not None
        raise fault(self.op, why, self.portable)

    # --- sections ----------------------------------------------------------------------------------------------------

    def write_attributes(self, writer: ByteWriter) -> None:
        """Write the sections of attributes and types, and of their offsets."""
        offsets = ByteWriter()
        offsets.varint(len(self._attribute_entries))
        offsets.varint(len(self._type_entries))
        for entries in (self._attribute_entries, self._type_entries):
            for dialect, group in _grouped([(entry[0], entry) for entry in entries]):
                offsets.varint(self.dialect(dialect))
                offsets.varint(len(group))
                for _, data, encoded in group:
                    offsets.flagged(len(data), encoded)
        s.write_section(writer, s.ATTRIBUTE_OFFSETS, offsets.data)
        data = bytearray()
        for _, entry, _ in (*self._attribute_entries, *self._type_entries):
            data += entry
        s.write_section(writer, s.ATTRIBUTES, data)

    def write_dialects(self, writer: ByteWriter) -> None:
        """Write the section of dialects and op names; the other sections must be complete."""
        names = ByteWriter()
        for dialect, group in _grouped([(_parts(name)[0], (name, known)) for name, known in self._op_names]):
            names.varint(self.dialect(dialect))
            names.varint(len(group))
            for name, known in group:
                number = self.string(_bytes(_parts(name)[1]))
                if self.version >= s.PROPERTIES_APART:
                    names.flagged(number, known)
                else:
                    names.varint(number)
        section = ByteWriter()
        section.varint(len(self._dialects))
        for dialect in self._dialects:
            number = self.string(_bytes(dialect))
            if self.version >= s.DIALECT_VERSIONS:
                section.flagged(number, False)
            else:
                section.varint(number)
        if self.version >= s.NO_UNKNOWN_LOCATIONS:
            section.varint(len(self._op_names))
        section.bytes(names.data)
        s.write_section(writer, s.DIALECTS, section.data)

    def write_properties(self, writer: ByteWriter) -> None:
        section = ByteWriter()
        section.varint(len(self._properties))
        for data in self._properties:
            section.varint(len(data))
            section.bytes(data)
        s.write_section(writer, s.PROPERTIES, section.data)

    def write_resources(self, writer: ByteWriter) -> None:
        """Write the names of constants without stored elements, if there are any."""
        if not self._resources:
            return
        offsets = ByteWriter()
        offsets.varint(0)
        offsets.varint(self.dialect("builtin"))
        offsets.varint(len(self._resources))
        for key in self._resources:
            offsets.varint(self.string(_bytes(key)))
            offsets.varint(0)
            offsets.byte(0)
        s.write_section(writer, s.RESOURCE_OFFSETS, offsets.data)
        s.write_section(writer, s.RESOURCES, b"")

    def write_strings(self, writer: ByteWriter) -> None:
        s.write_section(writer, s.STRINGS, s.write_strings(list(self._strings)))

    def entry(self, spelling: str) -> EntryWriter:
        """Return a writer that knows the tables."""
        return _TableWriter(self, spelling)


def _identity(attribute: Attribute) -> Hashable:
    if isinstance(attribute, DenseAttr) and attribute.array.nbytes >= _COMPARED_BELOW:
        return DenseAttr, id(attribute.array), attribute.type
    return attribute


def _without_ranges(location: Attribute) -> Attribute:
    """Return the location with file ranges replaced by positions."""
    if isinstance(location, FileRange):
        return FileLocation(location.file, *(*location.numbers, 0, 0)[:2])
    if not hasattr(location, "__dataclass_fields__"):
        return location
    changed = {}
    for name in location.__dataclass_fields__:
        part = getattr(location, name)
        if isinstance(part, tuple):
            part = tuple(_without_ranges(entry) if isinstance(entry, Attribute) else entry for entry in part)
        elif isinstance(part, Attribute):
            part = _without_ranges(part)
        changed[name] = part
    return type(location)(**changed)


def _dialect_of(text: str) -> str:
    """Return the dialect of an attribute or type, by its text."""
    if text[:1] not in "#!":
        return "builtin"
    name = text[1:]
    for mark in ".<":
        name = name.partition(mark)[0]
    return name


def _dialects_in(text: str) -> set[str]:
    """Return the dialects of the attributes and types in `text`."""
    return {_dialect_of(text), *_DIALECT.findall(_STRING.sub("", text))}


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DIALECT = re.compile(r"[#!]([A-Za-z_][\w$]*)[.<]", re.ASCII)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _parts(name: str) -> tuple[str, str]:
    dialect, dot, rest = name.partition(".")
    return (dialect, rest) if dot else ("builtin", name)


def _grouped(entries: list[tuple[str, FieldValue]]) -> list[tuple[str, list[FieldValue]]]:
    """Return runs of entries with the same dialect."""
    groups: list[tuple[str, list[FieldValue]]] = []
    for dialect, entry in entries:
        if not groups or groups[-1][0] != dialect:
            groups.append((dialect, []))
        groups[-1][1].append(entry)
    return groups


class _TableWriter(EntryWriter):
    """Writes one entry of the tables, in one spelling."""

    __slots__ = ("_numbering", "_spelling")

    def __init__(self, numbering: Numbering, spelling: str) -> None:
        super().__init__()
        self._numbering = numbering
        self._spelling = spelling

    def attribute_number(self, attribute: Attribute) -> int:
        return self._numbering.attribute(attribute, self._spelling)

    def plain_attribute_number(self, attribute: Attribute) -> int:
        return self._numbering.attribute(attribute)

    def type_number(self, type: Type) -> int:
        return self._numbering.type(type, self._spelling)

    def string_number(self, data: bytes) -> int:
        return self._numbering.string(data)

    def resource_number(self, key: str) -> int:
        return self._numbering.resource(key)
