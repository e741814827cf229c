"""Attributes and types of a file, each in the encoding of its dialect or as text. Source: MLIR's bytecode format."""

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


class Asking(Protocol):
    """Who refers to something by its number, and tells the place where that is wrong."""

    def fail(self, message: str) -> NoReturn: ...


class Entries(Protocol):
    """The tables that entries refer to."""

    @property
    def passing(self) -> Container[int]:
        """Identities of attributes that hold on to the file, or are large."""

    @property
    def parts(self) -> Mapping[int, int]:
        """Of how many attributes each is written out that is of more than itself, by its identity."""

    def attribute(self, index: int, asking: Asking) -> Attribute: ...

    def type(self, index: int, asking: Asking) -> Type: ...

    def string(self, asking: Asking, index: int) -> bytes: ...

    def resource(self, index: int, type: Type, asking: Asking) -> Attribute: ...


class Entry(EntryReader):
    """Reads the bytes of `section` from `start` to `end`, and notes what they refer to.

    `references` are to `things`; `parts` counts the attributes among them, each wherever it is written out.
    """

    __slots__ = ("_entries", "parts", "references", "things")

    def __init__(self, entries: Entries, section: ByteReader, start: int, end: int) -> None:
        self.data = section.data
        self.file = section.file
        self.section = section.section
        self.position = start
        self.end = end
        self.lasting = True
        self.parts = 1
        self.references: list[Reference] = []
        self.things: list[FieldValue] = []
        self._entries = entries

    def attribute_at(self, index: int) -> Attribute:
        attribute = self._entries.attribute(index, self)
        self.references.append((ATTRIBUTE, index))
        self.things.append(attribute)
        if id(attribute) in self._entries.passing:
            self.lasting = False
        self.parts += self._entries.parts.get(id(attribute), 1)
        if self.parts > MOST_PARTS:
            self.fail(f"an attribute is of more than {MOST_PARTS} others")
        return attribute

    def type_at(self, index: int) -> Type:
        type = self._entries.type(index, self)
        self.references.append((TYPE, index))
        self.things.append(type)
        return type

    def string_at(self, index: int) -> bytes:
        string = self._entries.string(self, index)
        self.references.append((STRING, index))
        self.things.append(string)
        return string

    def resource_at(self, index: int, type: Type) -> Attribute:
        self.lasting = False
        return self._entries.resource(index, type, self)


@dataclass(frozen=True)
class Form:
    """How attributes or types (`what`) stand in a file: in their dialect's encoding or, without one, as text."""

    what: int
    dialect: str
    encoding: EncodingTable | None
    memo: Memo = field(default_factory=Memo)

    def decode(self, entry: Entry) -> FieldValue:
        """What `entry` is; ParseError where that is nothing sound."""
        value = self._parsed(entry) if self.encoding is None else self.encoding.read(entry, self.dialect)
        entry.expect_end(f"an entry of the {self.dialect} dialect")
        if self.what == TYPE:
            fault = type_fault(value)
            if fault is not None:
                entry.fail(f"({fault[0]}) {fault[1]}" if fault[0] else fault[1])  # such a type may have no text
        elif not isinstance(value, Attribute):
            entry.fail("an attribute is none")
        return value

    def _parsed(self, entry: Entry) -> FieldValue:
        text = bytes(entry.c_string()).decode("utf-8", "surrogateescape")
        try:
            return parse_attribute(text) if self.what == ATTRIBUTE else parse_type(text)
        except ValueError as error:
            entry.fail(f"{'attribute' if self.what == ATTRIBUTE else 'type'} '{text[:80]}': {error}")


#: As text, whatever dialect says it has it.
TEXT = {what: Form(what, "", None) for what in (ATTRIBUTE, TYPE)}
_ENCODED = {
    (what, dialect): Form(what, dialect, encodings.attributes if what == ATTRIBUTE else encodings.types)
    for dialect, encodings in DIALECTS.items()
    for what in (ATTRIBUTE, TYPE)
}


def encoded(what: int, dialect: str) -> Form:
    """Return the encoding of a dialect's attributes or types; one without codes where it is not known."""
    return _ENCODED.get((what, dialect)) or Form(what, dialect, EncodingTable())
