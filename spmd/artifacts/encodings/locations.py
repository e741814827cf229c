"""Locations: conversion between the text that ops store and MLIR's location attributes.

Source: MLIR's builtin location attributes. A location is read as the text inside `loc(...)`; to write it, the text is
parsed, and anything else counts as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from spmd.artifacts.encodings.fields import (
    ATTRIBUTE,
    ATTRIBUTES,
    VARINT,
    EncodingTable,
    EntryReader,
    EntryWriter,
    FieldValue,
    Simple,
)
from spmd.ir.attributes import Attribute, LocationAttr, StringAttr
from spmd.syntax.attribute_printer import format_attribute, quoted
from spmd.syntax.literals import unquote

#: Longer texts count as unknown: locations share subtrees, so that texts may be arbitrarily long.
LONGEST = 1000
_DEEPEST = 100
_PART = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>\d{1,18})|(?P<word>unknown|callsite|fused|at|to)\b|(?P<mark>[()\[\]<>,:]))',
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class UnknownLocation(Attribute):
    pass


@dataclass(frozen=True, slots=True)
class FileLocation(Attribute):
    file: StringAttr
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class FileRange(Attribute):
    """`numbers`: none, the line, line and column, line and both columns, or both lines and columns."""

    file: StringAttr
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NamedLocation(Attribute):
    name: StringAttr
    child: Attribute


@dataclass(frozen=True, slots=True)
class CallLocation(Attribute):
    callee: Attribute
    caller: Attribute


@dataclass(frozen=True, slots=True)
class FusedLocation(Attribute):
    locations: tuple[Attribute, ...]
    metadata: Attribute | None = None


UNKNOWN = UnknownLocation()


# --- to text ---------------------------------------------------------------------------------------------------------


def _inner(location: Attribute) -> str:
    if not isinstance(location, LocationAttr):
        raise ValueError(f"expected a location, got {type(location).__name__}")
    return location.text[4:-1]


def _located(text: str) -> LocationAttr:
    return LocationAttr(f"loc({text if len(text) <= LONGEST else 'unknown'})")


def _string(value: Attribute) -> str:
    if not isinstance(value, StringAttr):
        raise ValueError(f"expected a string, got {type(value).__name__}")
    return quoted(value.data)


def _named(name: Attribute, child: Attribute) -> LocationAttr:
    inside = _inner(child)
    return _located(_string(name) if inside == "unknown" else f"{_string(name)}({inside})")


def _range(file: Attribute, numbers: tuple[int, ...]) -> LocationAttr:
    text = _string(file) + "".join(
        f":{number}" for number in (numbers[:2] if len(numbers) > 1 else (*numbers, 0, 0)[:2])
    )
    if len(numbers) == 3:
        text += f" to :{numbers[2]}"
    elif len(numbers) == 4:
        text += f" to {numbers[2]}:{numbers[3]}"
    return _located(text)


def _fused(locations: tuple[Attribute, ...], metadata: Attribute | None = None) -> LocationAttr:
    tag = "" if metadata is None else f"<{format_attribute(metadata)}>"
    return _located(f"fused{tag}[{', '.join(map(_inner, locations))}]")


# --- from text -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def location_of(text: str | None) -> Attribute:
    """Return the location for `text`, the inside of `loc(...)`; an unknown one if it cannot be parsed."""
    if text is None:
        return UNKNOWN
    body = text[4:-1] if text.startswith("loc(") and text.endswith(")") else text
    try:
        parts = _Parts(body)
        location = parts.location(0)
        return location if parts.at_end else UNKNOWN
    except (ValueError, IndexError):
        return UNKNOWN


class _Parts:
    """A parser of a location's text."""

    def __init__(self, text: str) -> None:
        self._parts: list[tuple[str, str]] = []
        position = 0
        text = text.strip()
        while position < len(text):
            match = _PART.match(text, position)
            if match is None or match.lastgroup is None:
                raise ValueError(text)
            self._parts.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Return whether all of the text has been read."""
        return self._at == len(self._parts)

    def _take(self, part: str) -> bool:
        if not self.at_end and self._parts[self._at][1] == part:
            self._at += 1
            return True
        return False

    def _next(self, kind: str) -> str:
        kind_here, part = self._parts[self._at]
        if kind_here != kind:
            raise ValueError(part)
        self._at += 1
        return part

    def _expect(self, part: str) -> None:
        if not self._take(part):
            raise ValueError(part)

    def location(self, depth: int) -> Attribute:
        """Parse one location."""
        if depth > _DEEPEST:
            raise ValueError("too deep")
        if self._take("unknown"):
            return UNKNOWN
        if self._take("callsite"):
            self._expect("(")
            callee = self.location(depth + 1)
            self._expect("at")
            caller = self.location(depth + 1)
            self._expect(")")
            return CallLocation(callee, caller)
        if self._take("fused"):
            return self._fused(depth)
        name = StringAttr(unquote(self._next("string")))
        if self._take("("):
            child = self.location(depth + 1)
            self._expect(")")
            return NamedLocation(name, child)
        if self._take(":"):
            return self._file(name)
        return NamedLocation(name, UNKNOWN)

    def _fused(self, depth: int) -> Attribute:
        metadata: Attribute | None = None
        if self._take("<"):
            metadata = StringAttr(unquote(self._next("string")))
            self._expect(">")
        self._expect("[")
        locations = [self.location(depth + 1)]
        while self._take(","):
            locations.append(self.location(depth + 1))
        self._expect("]")
        return FusedLocation(tuple(locations), metadata)

    def _file(self, file: StringAttr) -> Attribute:
        line = int(self._next("number"))
        self._expect(":")
        column = int(self._next("number"))
        if not self._take("to"):
            return FileLocation(file, line, column)
        if self._take(":"):
            return FileRange(file, (line, column, int(self._next("number"))))
        last = int(self._next("number"))
        self._expect(":")
        return FileRange(file, (line, column, last, int(self._next("number"))))


# --- codes -----------------------------------------------------------------------------------------------------------


def _read_numbers(reader: EntryReader) -> tuple[int, ...]:
    count = reader.varint()
    if count > 4:
        reader.fail(f"a range of a file has at most 4 numbers, got {count}")
    return tuple([reader.varint() for _ in range(count)])


def _write_numbers(writer: EntryWriter, value: FieldValue) -> None:
    writer.varint(len(value))
    for number in value:
        writer.varint(number)


def declare(table: EncodingTable) -> None:
    """Add the codes of locations to the builtin dialect's."""
    table.encoding(10, CallLocation, ATTRIBUTE, ATTRIBUTE, make=lambda callee, caller: _located(
        f"callsite({_inner(callee)} at {_inner(caller)})"
    ))  # fmt: skip
    table.encoding(11, FileLocation, ATTRIBUTE, VARINT, VARINT, make=lambda file, line, column: _located(
        f"{_string(file)}:{line}:{column}"
    ))  # fmt: skip
    table.encoding(12, FusedLocation, ATTRIBUTES, make=_fused, take=lambda value: (
        None if value.metadata is not None else (value.locations,)
    ))  # fmt: skip
    table.encoding(13, FusedLocation, ATTRIBUTES, ATTRIBUTE, make=_fused, take=lambda value: (
        value.locations, value.metadata
    ))  # fmt: skip
    table.encoding(14, NamedLocation, ATTRIBUTE, ATTRIBUTE, make=_named)
    table.encoding(15, UnknownLocation, make=lambda: _located("unknown"))
    table.encoding(22, FileRange, ATTRIBUTE, Simple(_read_numbers, _write_numbers), make=_range)
