"""Attributes and types in a file, in the encoding of their dialect or as text. Source: MLIR's bytecode format."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from spmd.artifacts.encodings import DIALECTS
from spmd.artifacts.encodings.fields import EncodingTable, EntryReader, FieldValue
from spmd.artifacts.memo import ATTRIBUTE, STRING, TYPE, Memo, Reference
from spmd.artifacts.stream import ByteReader
from spmd.artifacts.text import parse_attribute, parse_type
from spmd.dialects.type_rules import type_fault
from spmd.ir.attributes import Attribute
from spmd.types import MOST_PARTS, Type


class Referrer(Protocol):
    """A reader that refers to entries by number, and reports errors at its position."""

    def fail(self, message: str) -> NoReturn: ...


class Entries(Protocol):
    """The tables that entries refer to."""

    @property
    def unshared(self) -> Container[int]:
        """Identities of attributes that are views of the file, or are large."""

    @property
    def parts(self) -> Mapping[int, int]:
        """The number of attributes in the printed form of each attribute that contains others, by identity."""

    def attribute(self, index: int, referrer: Referrer) -> Attribute: ...

    def type(self, index: int, referrer: Referrer) -> Type: ...

    def string(self, referrer: Referrer, index: int) -> bytes: ...

    def resource(self, index: int, type: Type, referrer: Referrer) -> Attribute: ...


class Entry(EntryReader):
    """Reads the bytes of `section` from `start` to `end`, and records their references.

    `references` are the numbers and `resolved` the values; `parts` counts the attributes that printing would write.
    """

    __slots__ = ("_entries", "parts", "references", "resolved")

    def __init__(self, entries: Entries, section: ByteReader, start: int, end: int) -> None:
        self.data = section.data
        self.file = section.file
        self.section = section.section
        self.position = start
        self.end = end
        self.is_cacheable = True
        self.parts = 1
        self.references: list[Reference] = []
        self.resolved: list[FieldValue] = []
        self._entries = entries

    def attribute_at(self, index: int) -> Attribute:
        attribute = self._entries.attribute(index, self)
        self.references.append((ATTRIBUTE, index))
        self.resolved.append(attribute)
        if id(attribute) in self._entries.unshared:
            self.is_cacheable = False
        self.parts += self._entries.parts.get(id(attribute), 1)
        if self.parts > MOST_PARTS:
            self.fail(f"an attribute must have at most {MOST_PARTS} nested attributes")
        return attribute

    def type_at(self, index: int) -> Type:
        type = self._entries.type(index, self)
        self.references.append((TYPE, index))
        self.resolved.append(type)
        return type

    def string_at(self, index: int) -> bytes:
        string = self._entries.string(self, index)
        self.references.append((STRING, index))
        self.resolved.append(string)
        return string

    def resource_at(self, index: int, type: Type) -> Attribute:
        self.is_cacheable = False
        return self._entries.resource(index, type, self)


@dataclass(frozen=True)
class Form:
    """The representation of attributes or types (`what`): the encoding of their dialect, or text."""

    what: int
    dialect: str
    encoding: EncodingTable | None
    memo: Memo = field(default_factory=Memo)

    def decode(self, entry: Entry) -> FieldValue:
        """Return the value of `entry`; raises ParseError if it is malformed."""
        value = self._parsed(entry) if self.encoding is None else self.encoding.read(entry, self.dialect)
        entry.expect_end(f"an entry of the {self.dialect} dialect")
        if self.what == TYPE:
            fault = type_fault(value)
            if fault is not None:
                entry.fail(f"({fault[0]}) {fault[1]}" if fault[0] else fault[1])  # such a type may have no text
        elif not isinstance(value, Attribute):
            entry.fail("an attribute must not be none")
        return value

    def _parsed(self, entry: Entry) -> FieldValue:
        text = bytes(entry.c_string()).decode("utf-8", "surrogateescape")
        try:
            return parse_attribute(text) if self.what == ATTRIBUTE else parse_type(text)
        except ValueError as error:
            entry.fail(f"{'attribute' if self.what == ATTRIBUTE else 'type'} '{text[:80]}': {error}")


#: Entries that are text, whatever their dialect.
TEXT = {what: Form(what, "", None) for what in (ATTRIBUTE, TYPE)}
_ENCODED = {
    (what, dialect): Form(what, dialect, encodings.attributes if what == ATTRIBUTE else encodings.types)
    for dialect, encodings in DIALECTS.items()
    for what in (ATTRIBUTE, TYPE)
}


def encoded(what: int, dialect: str) -> Form:
    """Return the form for a dialect's attributes or types; text if the dialect has no encodings."""
    return _ENCODED.get((what, dialect)) or Form(what, dialect, EncodingTable())
