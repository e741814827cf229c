"""The tables of a bytecode file: strings, dialects, op names, attributes, types, resources.

Attributes and types are decoded on first use. Source: MLIR's bytecode format.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from spmd.artifacts import sections as s
from spmd.artifacts.encodings.fields import FieldValue
from spmd.artifacts.entries import TEXT, Entry, Form, Referrer, encoded
from spmd.artifacts.memo import ATTRIBUTE, STRING, TYPE, Memo
from spmd.artifacts.sections import Container
from spmd.artifacts.stream import Buffer, ByteReader
from spmd.ir.attributes import Attribute, DenseResourceAttr
from spmd.syntax.dense import dense_raw
from spmd.types import TensorType, Type

#: The largest nesting of references between attributes and types.
DEEPEST = 96


class Dialect(NamedTuple):
    name: str
    #: A reader of its version, if it has one.
    section: ByteReader | None = None

    @property
    def version(self) -> tuple[int, ...]:
        """The components of its version; empty if it has none."""
        at = self.section
        return tuple(ByteReader(at.data, at.file, at.section, at.position, at.end).rest()) if at is not None else ()


class OpName(NamedTuple):
    """An op's full name; `registered` tells whether the producer knew it, None if unknown."""

    name: str
    registered: bool | None


#: The form, start and end of an attribute or type.
_Where = tuple[Form, int, int]


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
        #: The types used so far, by number.
        self.types: dict[int, Type] = {}
        #: Identities of attributes that are not shared between files: views of the file, or large.
        self.unshared: set[int] = set()
        #: The number of attributes in the printed form of each attribute that contains others, by identity.
        self.parts: dict[int, int] = {}
        self.properties: list[tuple[int, int]] = []
        self._properties = container.sections.get(s.PROPERTIES) or self._data
        if s.PROPERTIES in container.sections:
            self._read_properties(container.section(s.PROPERTIES))
        self.resources: dict[str, Buffer] = {}
        self._resource_keys: list[str] = []
        if s.RESOURCES in container.sections:
            self._read_resources(container.section(s.RESOURCES), container.section(s.RESOURCE_OFFSETS))
        self._depth = 0

    # --- strings and names -------------------------------------------------------------------------------------------

    def text(self, referrer: Referrer, index: int) -> str:
        return self.string(referrer, index).decode("utf-8", "surrogateescape")

    def string(self, referrer: Referrer, index: int) -> bytes:
        if index >= len(self.strings):
            referrer.fail(f"string {index} of {len(self.strings)}")
        return self.strings[index]

    def _read_dialects(self, reader: ByteReader) -> None:
        for _ in range(reader.count("dialects")):
            if self.version < s.DIALECT_VERSIONS:
                self.dialects.append(Dialect(self.text(reader, reader.varint())))
                continue
            index, versioned = reader.flagged()
            name = self.text(reader, index)
            self.dialects.append(Dialect(name, self._dialect_version(reader) if versioned else None))
        if self.version >= s.NO_UNKNOWN_LOCATIONS:
            reader.varint()  # the number of op names, for allocation
        while reader.left:
            dialect = self._dialect(reader, reader.varint())
            for number in reader.varints(reader.count("op names")):
                index, known = (number >> 1, bool(number & 1)) if self.version >= s.PROPERTIES_APART else (number, None)
                name = self.text(reader, index)
                self.op_names.append(OpName(f"{dialect}.{name}" if name else dialect, known))

    def _dialect_version(self, reader: ByteReader) -> ByteReader:
        position = reader.position
        number, inside = s.read_section(reader)
        if number != s.VERSIONS:
            reader.fail("a dialect's version must be a section of its own", position)
        return inside

    def _dialect(self, reader: ByteReader, index: int) -> str:
        if index >= len(self.dialects):
            reader.fail(f"dialect {index} of {len(self.dialects)}")
        return self.dialects[index].name

    # --- attributes and types ----------------------------------------------------------------------------------------

    def _read_offsets(self, reader: ByteReader) -> tuple[list[_Where], list[_Where]]:
        counts = reader.count("attributes"), reader.count("types")
        numbers, at = reader.rest(), 0
        start = self._data.position
        tables: list[list[_Where]] = []
        for what, count in zip((ATTRIBUTE, TYPE), counts, strict=True):
            table: list[_Where] = []
            text = TEXT[what]
            while len(table) < count:
                group = numbers[at : at + 2]
                if len(group) < 2 or group[1] > len(numbers) - at - 2:
                    reader.fail(f"{count} entries are declared, but at least {len(table)} are present")
                form = encoded(what, self._dialect(reader, group[0]))
                at += 2
                for number in numbers[at : at + group[1]]:
                    end = start + (number >> 1)
                    table.append((form if number & 1 else text, start, end))
                    start = end
                at += group[1]
            if len(table) != count:
                reader.fail(f"{count} entries are declared, but {len(table)} are present")
            tables.append(table)
        if at != len(numbers):
            reader.fail(f"{len(numbers) - at} numbers are left after the offsets")
        if start > self._data.end:
            reader.fail("entries extend beyond the section of attributes and types")
        return tables[0], tables[1]

    def attribute(self, index: int, referrer: Referrer) -> Attribute:
        """Return attribute `index`; errors are reported at `referrer`."""
        if index >= len(self.attributes):
            referrer.fail(f"attribute {index} of {len(self.attributes)}")
        kept = self.attributes[index]
        if kept is None:
            kept, parts = self._entry(self._attributes[index], referrer)
            self.attributes[index] = kept
            if parts > 1:
                self.parts[id(kept)] = parts
        return kept

    def type(self, index: int, referrer: Referrer) -> Type:
        """Return type `index`; errors are reported at `referrer`."""
        if index >= len(self._types):
            referrer.fail(f"type {index} of {len(self._types)}")
        kept = self.types.get(index)
        if kept is None:
            kept, _ = self._entry(self._types[index], referrer)
            self.types[index] = kept
        return kept

    def referred(self, what: int, index: int) -> FieldValue:
        """Return a decoded reference; None if the number is out of range."""
        if what == STRING:
            return self.strings[index] if index < len(self.strings) else None
        if what == TYPE:
            return self.types.get(index) or (self.type(index, self._data) if index < len(self._types) else None)
        if index >= len(self.attributes):
            return None
        return self.attributes[index] or self.attribute(index, self._data)

    def _entry(self, where: _Where, referrer: Referrer) -> tuple[FieldValue, int]:
        """Return the value of an entry, and the number of attributes in its printed form."""
        form, start, end = where
        if self._depth >= DEEPEST:
            referrer.fail(f"attributes and types must be nested at most {DEEPEST} deep")
        self._depth += 1
        try:
            data = self._data.key(start, end)
            decoded: tuple[FieldValue, int] | None = None if data is None else form.memo.recall(data, self)
            if decoded is None:
                entry = Entry(self, self._data, start, end)
                decoded = form.decode(entry), entry.parts
                if not self.remember(form.memo, data, entry, decoded):
                    self.unshared.add(id(decoded[0]))
        finally:
            self._depth -= 1
        return decoded

    def remember(self, memo: Memo, data: Hashable | None, entry: Entry, value: object) -> bool:
        """Cache the value of `entry` for other files, unless it or a reference is large; return whether it was."""
        is_cacheable = data is not None and entry.is_cacheable
        if is_cacheable:
            memo.keep(data, entry.references, entry.resolved, value)
        return is_cacheable

    # --- properties and resources ------------------------------------------------------------------------------------

    def _read_properties(self, reader: ByteReader) -> None:
        for _ in range(reader.count("properties")):
            length = reader.varint()
            self.properties.append((reader.position, reader.position + length))
            reader.skip(length)
        reader.expect_end("the properties")

    def property_key(self, index: int, referrer: Referrer) -> bytes | None:
        """Return properties `index` as a cache key; empty if it is negative."""
        if index < 0:
            return b""
        if index >= len(self.properties):
            referrer.fail(f"properties {index} of {len(self.properties)}")
        return self._properties.key(*self.properties[index])

    def property_entry(self, index: int) -> Entry:
        """Return a reader of properties `index`; an empty one if it is negative."""
        return Entry(self, self._properties, *(self.properties[index] if index >= 0 else (0, 0)))

    def _read_resources(self, reader: ByteReader, offsets: ByteReader) -> None:
        for _ in range(offsets.count("groups")):
            offsets.varint()  # the owner, which is not needed
            for _ in self._group(reader, offsets):
                pass
        while offsets.left:
            self._dialect(offsets, offsets.varint())
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

    def resource(self, index: int, type: Type, referrer: Referrer) -> Attribute:
        """Return the constant in resource `index`, of `type`."""
        if index >= len(self._resource_keys):
            referrer.fail(f"resource {index} of {len(self._resource_keys)}")
        if not isinstance(type, TensorType):
            referrer.fail(f"a constant must be a tensor, got {type}")
        key = self._resource_keys[index]
        data = self.resources.get(key)
        return DenseResourceAttr(key, type) if data is None else dense_raw(data, type)


_BLOB = 0


def _blob(reader: ByteReader) -> Buffer:
    """Return the bytes of a resource, after its padding."""
    alignment, size = reader.varint(), reader.varint()
    if size > reader.left or alignment & (alignment - 1):
        reader.fail(f"a resource of {size} bytes at multiples of {alignment}, of which {reader.left} are there")
    reader.skip(reader.left - size)
    return reader.bytes(size)
