"""Fields of bytecode entries, and the declaration of a dialect's codes in terms of them.

A declaration serves both directions: `Encoding(code, cls, fields, make, take)` reads its fields in order and passes
them to `make`; `take` returns the fields of a value to write, or None if another code of the class represents it.

    table.encoding(5, DotDimensionNumbers, SVARINTS, SVARINTS, SVARINTS, SVARINTS)
    table.encoding(2, StringAttr, BYTES, make=StringAttr, take=lambda a: (a.data,) if a.type is None else None)
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeAlias

from spmd.artifacts.stream import ByteReader, ByteWriter
from spmd.ir.attributes import Attribute
from spmd.types import Type

Version = tuple[int, int]
#: A decoded field.
FieldValue: TypeAlias = Any

#: The encoding of a dynamic dimension's size.
DYNAMIC = -(2**63)


class EntryReader(ByteReader, ABC):
    """Reads one attribute or type, and resolves its references in the file's tables.

    `is_cacheable` tells whether the value depends only on the entry's bytes and references.
    """

    __slots__ = ("is_cacheable",)
    is_cacheable: bool

    @abstractmethod
    def attribute_at(self, index: int) -> Attribute: ...

    @abstractmethod
    def type_at(self, index: int) -> Type: ...

    @abstractmethod
    def string_at(self, index: int) -> bytes: ...

    @abstractmethod
    def resource_at(self, index: int, type: Type) -> Attribute: ...


class EntryWriter(ByteWriter, ABC):
    """Writes one attribute or type, and numbers its references."""

    __slots__ = ()

    @abstractmethod
    def attribute_number(self, attribute: Attribute) -> int: ...

    @abstractmethod
    def plain_attribute_number(self, attribute: Attribute) -> int:
        """Return the number of an attribute in the builtin dialect's spelling, whatever the entry's dialect."""

    @abstractmethod
    def type_number(self, type: Type) -> int: ...

    @abstractmethod
    def string_number(self, data: bytes) -> int: ...

    @abstractmethod
    def resource_number(self, key: str) -> int: ...


class Field(Protocol):
    """A field of an entry."""

    def read(self, reader: EntryReader) -> FieldValue: ...

    def write(self, writer: EntryWriter, value: FieldValue) -> None: ...


@dataclass(frozen=True)
class Simple:
    """A field with a function for reading and one for writing."""

    read: Callable[[EntryReader], FieldValue]
    write: Callable[[EntryWriter, FieldValue], None]


@dataclass(frozen=True)
class ListOf:
    """A count followed by that many values of one field; the value is a tuple."""

    field: Field

    def read(self, reader: EntryReader) -> tuple[FieldValue, ...]:
        return tuple([self.field.read(reader) for _ in range(reader.count("entries"))])

    def write(self, writer: EntryWriter, value: FieldValue) -> None:
        writer.varint(len(value))
        for entry in value:
            self.field.write(writer, entry)


@dataclass(frozen=True)
class Enum:
    """The number of one of `cases`, counted from `first`; the value is the case's name."""

    cases: tuple[str, ...]
    first: int = 0
    signed: bool = False

    def read(self, reader: EntryReader) -> str:
        position = reader.position
        number = (reader.svarint() if self.signed else reader.varint()) - self.first
        if not 0 <= number < len(self.cases):
            reader.fail(f"expected the number of one of {', '.join(self.cases)}, got {number + self.first}", position)
        return self.cases[number]

    def write(self, writer: EntryWriter, value: FieldValue) -> None:
        number = self.cases.index(value) + self.first
        if self.signed:
            writer.svarint(number)
        else:
            writer.varint(number)


def _read_f64(reader: EntryReader) -> float:
    bits = reader.svarint() & (2**64 - 1)
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def _write_f64(writer: EntryWriter, value: float) -> None:
    writer.svarint(int.from_bytes(struct.pack("<d", value), "little", signed=True))


def _read_bool(reader: EntryReader) -> bool:
    position = reader.position
    value = reader.byte()
    if value > 1:
        reader.fail(f"expected 0 or 1, got {value}", position)
    return bool(value)


def _read_optional_attribute(reader: EntryReader) -> Attribute | None:
    index, there = reader.flagged()
    return reader.attribute_at(index) if there else None


def _write_optional_attribute(writer: EntryWriter, value: Attribute | None) -> None:
    if value is None:
        writer.varint(0)
    else:
        writer.flagged(writer.attribute_number(value), True)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


VARINT = Simple(lambda r: r.varint(), lambda w, value: w.varint(value))
SVARINT = Simple(lambda r: r.svarint(), lambda w, value: w.svarint(value))
SVARINTS = ListOf(SVARINT)
BOOL = Simple(_read_bool, lambda w, value: w.byte(int(value)))
F64 = Simple(_read_f64, _write_f64)
BYTES = Simple(lambda r: r.string_at(r.varint()), lambda w, value: w.varint(w.string_number(value)))
STRING = Simple(lambda r: _text(r.string_at(r.varint())), lambda w, value: w.varint(w.string_number(_bytes(value))))
ATTRIBUTE = Simple(lambda r: r.attribute_at(r.varint()), lambda w, value: w.varint(w.attribute_number(value)))
OPTIONAL_ATTRIBUTE = Simple(_read_optional_attribute, _write_optional_attribute)
ATTRIBUTES = ListOf(ATTRIBUTE)


def unwritten(writer: EntryWriter, value: object) -> None:
    """Raise NotImplementedError: the field is only read."""
    raise NotImplementedError("a value that is read as text must be written as text")


def expect(value: object, *classes: type) -> FieldValue:
    """Return `value` if it is of one of `classes`; raises ValueError otherwise."""
    if not isinstance(value, classes):
        names = " or ".join(cls.__name__ for cls in classes)
        raise ValueError(f"expected {names}, got {type(value).__name__}")
    return value


def attribute_of(*classes: type) -> Simple:
    """Return a field that refers to an attribute of one of `classes`."""
    return Simple(lambda r: expect(r.attribute_at(r.varint()), *classes), ATTRIBUTE.write)


def optional_of(*classes: type) -> Simple:
    """Return a field that refers to an attribute of one of `classes`, or to none."""
    none = type(None)
    return Simple(lambda r: expect(_read_optional_attribute(r), none, *classes), _write_optional_attribute)


def attributes_of(*classes: type) -> ListOf:
    """Return a field that is a list of attributes of `classes`."""
    return ListOf(attribute_of(*classes))


TYPE = Simple(lambda r: r.type_at(r.varint()), lambda w, value: w.varint(w.type_number(value)))
TYPES = ListOf(TYPE)
#: Sizes of dimensions; None if dynamic.
DIMENSION = Simple(
    lambda r: None if (size := r.svarint()) == DYNAMIC else size,
    lambda w, value: w.svarint(DYNAMIC if value is None else value),
)
SHAPE = ListOf(DIMENSION)


@dataclass(frozen=True)
class Encoding:
    """One code, its fields, and the class of its values. `since` is the dialect version that introduced it."""

    code: int
    cls: type
    fields: tuple[Field, ...]
    make: Callable[..., FieldValue]
    take: Callable[[FieldValue], tuple[FieldValue, ...] | None]
    since: Version

    def write(self, writer: EntryWriter, values: tuple[FieldValue, ...]) -> None:
        writer.varint(self.code)
        for entry, value in zip(self.fields, values, strict=True):
            entry.write(writer, value)


@dataclass
class EncodingTable:
    """The codes of a dialect's attributes or of its types."""

    by_code: dict[int, Encoding] = field(default_factory=dict)
    by_class: dict[type, list[Encoding]] = field(default_factory=dict)

    def encoding(
        self,
        code: int,
        cls: type,
        *fields: Field,
        make: Callable[..., FieldValue] | None = None,
        take: Callable[[FieldValue], tuple[FieldValue, ...] | None] | None = None,
        since: Version = (0, 9),
    ) -> None:
        """Declare a code; for a dataclass, `make` and `take` default to its own fields."""
        added = Encoding(code, cls, fields, make or cls, take or _fields_of(cls), since)
        self.by_code[code] = added
        self.by_class.setdefault(cls, []).append(added)

    def reading(self, code: int, *fields: Field, make: Callable[..., FieldValue]) -> None:
        """Declare a code that is read but not written: its value is written in a form that all readers support."""
        self.by_code[code] = Encoding(code, object, fields, make, lambda value: None, (0, 9))

    def whole(self, code: int, cls: type, field: Field) -> None:
        """Declare a code with a single field, which is the value itself."""
        self.encoding(code, cls, field, make=lambda value: value, take=lambda value: (value,))

    def constant(self, code: int, value: FieldValue, since: Version = (0, 9)) -> None:
        """Declare the code of a singleton value."""
        self.encoding(
            code,
            type(value),
            make=lambda: value,
            take=lambda attribute: () if attribute is value else None,
            since=since,
        )

    def read(self, reader: EntryReader, dialect: str) -> FieldValue:
        position = reader.position
        code = reader.varint()
        encoding = self.by_code.get(code)
        if encoding is None:
            reader.fail(f"code {code} of the {dialect} dialect is unknown", position)
        try:
            return encoding.make(*[entry.read(reader) for entry in encoding.fields])
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            reader.fail(f"code {code} of the {dialect} dialect: {error}", position)

    def find(self, value: object) -> tuple[Encoding, tuple[FieldValue, ...]] | None:
        """Return the code for `value` and its fields; None if the dialect has none."""
        for encoding in self.by_class.get(type(value), ()):
            values = encoding.take(value)
            if values is not None:
                return encoding, values
        return None


def _fields_of(cls: type) -> Callable[[FieldValue], tuple[FieldValue, ...]]:
    names = [entry.name for entry in fields(cls)]
    return lambda value: tuple([getattr(value, name) for name in names])


@dataclass
class DialectEncodings:
    """The encodings of one dialect's attributes and types."""

    attributes: EncodingTable = field(default_factory=EncodingTable)
    types: EncodingTable = field(default_factory=EncodingTable)
