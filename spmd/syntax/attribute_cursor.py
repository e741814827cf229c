"""Attributes as text: numbers, strings, arrays, dictionaries, constants, and what dialects define."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from spmd import types as t
from spmd.attributes import (
    FALSE,
    TRUE,
    UNIT,
    AffineMapAttr,
    ArrayAttr,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    DenseResourceAttr,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    LocationAttr,
    OpaqueAttr,
    StringAttr,
    SymbolRefAttr,
    TypeAttr,
)
from spmd.dialects.structs import STRUCTS, StructAttribute
from spmd.syntax.cursor import Cursor
from spmd.syntax.dense import dense, dense_hex, dense_raw
from spmd.syntax.lexer import LongHex
from spmd.syntax.literals import float_bits, hex_bits, parse_elements, unquote

_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*(?:[eE][-+]?\d+)?)?)|0x[\da-fA-F]+", re.ASCII)
_SYMBOL_PART = re.compile(r'@("(?:[^"\\]|\\.)*"|[\w$.\-]+)', re.ASCII)

#: Reads the body of `#dialect.mnemonic<...>`, from the `<` on, by (dialect, mnemonic).
BodyParser = Callable[["AttributeCursor"], Attribute]
FieldReader = Callable[["AttributeCursor"], Any]
ATTRIBUTE_PARSERS: dict[tuple[str, str], BodyParser] = {}


_Parser = TypeVar("_Parser", bound=BodyParser)


def attribute_parser(dialect: str, mnemonic: str) -> Callable[[_Parser], _Parser]:
    """Decorator: files the parser of an attribute whose form is not `<field = value, ...>`.

    The cursor stands at whatever follows the mnemonic, usually `<`; the parser reads to the end of the body.
    """

    def add(parser: _Parser) -> _Parser:
        ATTRIBUTE_PARSERS[dialect, mnemonic] = parser
        return parser

    return add


class AttributeCursor(Cursor):
    """Reads types and attributes."""

    def attribute(self, type: t.Type | None = None, *, typed: bool = True) -> Attribute:
        """Any attribute. `type` is a number's type where the place tells it; else `: type` follows if `typed`."""
        token = self.tokens[self.position]
        found = self.names.attributes.get(token)
        if found is not None:
            self.position += 1
            return found
        first = token[:1]
        read = _BY_FIRST.get(first)
        if read is not None:
            return read(self, token, type, typed)
        if first.isdigit() or first == "-":
            return self._number(token, type, typed)
        read = _BY_WORD.get(token.split("<", 1)[0])
        if read is not None:
            return read(self, token, type, typed)
        if self.at_type():
            return TypeAttr(self.type())
        self.expected("an attribute value")

    # --- numbers and strings ---

    def _number(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        if not _NUMBER.fullmatch(token):
            self.expected("a number")
        self.position += 1
        if typed and self.tokens[self.position] == ":":
            self.position += 1
            type = self.type()
        try:
            return self._number_of(token, type)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), position)

    def _number_of(self, token: str, type: t.Type | None) -> Attribute:
        fractional = "." in token
        if type is None:
            type = t.F64 if fractional else t.I64
        if not isinstance(type, t.ElementType):
            if not fractional and isinstance(type, t.OpaqueType):
                return IntegerAttr(int(token, 0) if len(token) < 400 else _too_long(token), type)
            raise ValueError(f"a number has no type {type}")
        if type.is_float:
            if "x" in token:
                return FloatAttr(hex_bits(token, type), type)
            if not fractional:
                raise ValueError(f"expected a floating-point literal such as {token}.0 for type {type}")
            return FloatAttr(float_bits(token, type), type)
        if fractional or type.is_complex:
            raise ValueError(f"{token} is no literal of type {type}")
        if type.is_boolean:
            return TRUE if parse_elements([token], type)[0] else FALSE
        return IntegerAttr(int(parse_elements([token], type)[0]), type)

    def _string(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        data = self.string_bytes()
        if typed and self.tokens[self.position] == ":":
            self.position += 1
            return StringAttr(data, self.type())
        if typed and len(token) < 64:
            self.names.attributes.setdefault(token, StringAttr(data)) if self.tokens[position + 1] == "," else None
        return StringAttr(data)

    def string_bytes(self) -> bytes:
        """A string literal's bytes."""
        token = self.tokens[self.position]
        if token[:1] != '"' or len(token) < 2:
            self.expected("a string")
        if isinstance(token, LongHex):
            token = f'"0x{token.digits}"'
        try:
            data = unquote(token)
        except ValueError as error:
            self.fail(str(error))
        self.position += 1
        return data

    def string(self) -> str:
        return self.string_bytes().decode("utf-8", "surrogateescape")

    def _symbol(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        return SymbolRefAttr(self.symbol_path())

    def symbol_path(self) -> tuple[str, ...]:
        """`@root::@nested`."""
        token = self.tokens[self.position]
        parts = _SYMBOL_PART.findall(token)
        if token[:1] != "@" or not parts:
            self.expected("a valid '@'-identifier for a symbol name")
        self.position += 1
        try:
            return tuple(unquote(p).decode("utf-8", "surrogateescape") if p[0] == '"' else p for p in parts)
        except ValueError as error:
            self.fail(str(error), self.position - 1)

    def symbol(self) -> str:
        """`@name`, a symbol of one part."""
        position = self.position
        path = self.symbol_path()
        if len(path) != 1:
            self.fail("expected a symbol of one part", position)
        return path[0]

    # --- arrays and dictionaries ---

    def _array(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        if len(token) > 1 and ":" not in token:
            values = self.integer_list()
            made = ArrayAttr(tuple(IntegerAttr(value, t.I64) for value in values))
            self.names.attributes[token] = made
            return made
        self.deeper()
        self.expect("[")
        elements: list[Attribute] = []
        if not self.take("]"):
            while True:
                elements.append(self.attribute())
                if not self.take(","):
                    break
            self.expect("]")
        self.depth -= 1
        return ArrayAttr(tuple(elements))

    def _dictionary(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        return DictAttr(self.dictionary())

    def dictionary(self) -> dict[str, Attribute]:
        """`{name = value, unit}`."""
        self.deeper()
        self.expect("{")
        entries: dict[str, Attribute] = {}
        if not self.take("}"):
            while True:
                self.entry(entries)
                if not self.take(","):
                    break
            self.expect("}")
        self.depth -= 1
        return entries

    def entry(self, entries: dict[str, Attribute]) -> None:
        """`name = value` or `name`, filed in `entries`."""
        position = self.position
        token = self.tokens[position]
        name = self.string() if token[:1] == '"' else self._entry_name(token)
        if not name:
            self.fail("expected valid attribute name", position)
        if name in entries:
            self.fail(f"duplicate key '{name}' in dictionary attribute", position)
        entries[name] = self.attribute() if self.take("=") else UNIT

    def _entry_name(self, token: str) -> str:
        if not (token[:1].isalpha() or token[:1] == "_") or "<" in token:
            self.expected("an attribute name")
        self.position += 1
        return token

    # --- words ---

    def _unit(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        self.position += 1
        return UNIT

    def _true(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        self.position += 1
        return TRUE

    def _false(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        self.position += 1
        return FALSE

    def _dense_array(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        whole = token if len(token) > 5 else None
        self.position += 1
        body = (whole[6:-1] if whole else self.balanced()[1:-1]).strip()
        name, _, listed = body.partition(":")
        element = t.ELEMENT_TYPES.get(name.strip())
        if element is None or not (element.is_boolean or element.is_float or element.is_integer):
            self.fail("expected an integer or floating-point type of 8 bits or more in array<...>", position)
        texts = [entry.strip() for entry in listed.split(",")] if listed.strip() else []
        try:
            values = parse_elements(texts, element) if texts else np.empty(0)
        except ValueError as error:
            self.fail(str(error), position)
        made = DenseArrayAttr(element, tuple(values.tolist()))
        if whole:
            self.names.attributes[whole] = made
        return made

    def _dense(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        self.position += 1
        if token[-1] == ">" and "> : " not in token:
            body = token[6:-1]
        elif len(token) > 5:
            body, _, type_text = token[6:].rpartition("> : ")
            made = self._dense_of(body, self._type_of_text(type_text, position), position)
            if len(token) < 256:
                self.names.attributes[token] = made
            return made
        else:
            body = self._dense_body()
        if type is None:
            self.expect(":")
            type = self.type()
        return self._dense_of(body, type, position)

    def _dense_body(self) -> str:
        """The text between `<` and `>` when it is not all of one token."""
        if self.tokens[self.position + 1][:1] == '"' and self.tokens[self.position + 2] == ">":
            self.position += 3
            return self.tokens[self.position - 2]
        text = self.balanced()
        return text[1:-1]

    def _type_of_text(self, text: str, position: int) -> t.Type:
        found = self.types.get(text)
        if found is None:
            self.position = position
            found = self.types[text] = self.inside(text).whole_type()
            self.position = position + 1
        return found

    def _dense_of(self, body: str, type: t.Type, position: int) -> Attribute:
        try:
            if isinstance(body, LongHex):
                return dense_hex(body.digits, type)  # type: ignore[arg-type]
            if body[:1] == '"':
                if body[:3] != '"0x':
                    raise ValueError('expected a hex string such as "0x00FF"')
                return dense_hex(body[3:-1], type)  # type: ignore[arg-type]
            return dense(body, type)  # type: ignore[arg-type]
        except (ValueError, OverflowError) as error:
            self.fail(str(error), position)

    def _dense_resource(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        self.position += 1
        self.expect("<")
        key = self.string() if self.tokens[self.position][:1] == '"' else self.keyword("a resource key")
        self.expect(">")
        if type is None:
            self.expect(":")
            type = self.type()
        data = self.names.resources.get(key)
        if data is None:
            return DenseResourceAttr(key, type)  # type: ignore[arg-type]
        try:
            return dense_raw(data, type)  # type: ignore[arg-type]
        except ValueError as error:
            self.fail(f"resource {key}: {error}", position)

    def _affine(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        self.position += 1
        if self.tokens[self.position] != "<":
            self.expected("'<'")
        depth = 0
        start = self.position
        while True:
            part = self.tokens[self.position]
            if not part:
                self.fail("'<' is never closed", start)
            depth += (part == "<") - (part == ">")
            self.position += 1
            if depth == 0:
                return AffineMapAttr(token + self._between(start, self.position))

    def _location(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        return LocationAttr(f"loc({self.location()})")

    def location(self) -> str:
        """`loc(...)`; the text between the parentheses, aliases resolved."""
        token = self.tokens[self.position]
        self.position += 1
        if len(token) > 3:
            inner = token[4:-1]
        else:
            if self.tokens[self.position] != "(":
                self.expected("'('")
            inner = self.balanced()[1:-1]
        return self.names.location_aliases.get(inner, inner)

    # --- dialects ---

    def _hash(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        if "<" in token:
            inner = self.inside(token)
            made: Attribute = inner.whole_dialect_attribute()
            self.position += 1
            self.names.attributes[token] = made
            return made
        alias = self.names.attribute_aliases.get(token)
        if alias is not None and self.tokens[self.position + 1] != "<":
            self.position += 1
            return alias
        if self.tokens[self.position + 1] != "<" and "." not in token:
            if token in self.names.location_aliases:
                self.position += 1
                return LocationAttr(f"loc({self.names.location_aliases[token]})")
            self.fail(f"undefined attribute alias '{token}'")
        return self.dialect_attribute()

    def whole_dialect_attribute(self) -> Attribute:
        made = self.dialect_attribute()
        if self.tokens[self.position]:
            self.expected("the end of the attribute")
        return made

    def dialect_attribute(self) -> Attribute:
        """`#dialect.mnemonic<...>` or `#dialect<mnemonic ...>`."""
        position = self.position
        dialect, dot, mnemonic = self.tokens[position][1:].partition(".")
        self.position += 1
        if dialect not in _KNOWN_DIALECTS:
            body = self.balanced() if self.tokens[self.position] == "<" else ""
            return OpaqueAttr(
                self.text if self.text and not self.tokens[self.position] else f"#{dialect}{dot}{mnemonic}{body}"
            )
        if dot:
            return self._known(dialect, mnemonic, position)
        self.expect("<")
        mnemonic = self.keyword("an attribute's name")
        made = self._known(dialect, mnemonic, position, bare=True)
        self.expect(">")
        return made

    def _known(self, dialect: str, mnemonic: str, position: int, *, bare: bool = False) -> Attribute:
        parser, struct = ATTRIBUTE_PARSERS.get((dialect, mnemonic)), STRUCTS.get((dialect, mnemonic))
        if parser is not None or struct is not None:
            made = parser(self) if parser is not None else self.struct(struct)
            fault = made.fault() if isinstance(made, StructAttribute) else None
            if fault is not None:
                label, message = fault
                self.fail(f"({label}) {message}" if label else message, position)
            return made
        if bare and self.tokens[self.position] != "<":
            return EnumAttr(dialect, mnemonic, self.keyword("an enum's case"))
        if self.tokens[self.position] != "<":
            self.fail(f"unknown {dialect} attribute '{mnemonic}'", position)
        self.expect("<")
        if not (self.tokens[self.position].isidentifier() and self.tokens[self.position + 1] == ">"):
            self.fail(f"unknown {dialect} attribute '{mnemonic}'", position)
        made = EnumAttr(dialect, mnemonic, self.keyword("an enum's case"))
        self.expect(">")
        return made

    def struct(self, cls: type[Attribute]) -> Any:
        """`<field = value, ...>` of a dataclass attribute; every field without a default must be there."""
        values = self.struct_fields(cls)
        missing = [
            field.name
            for field in fields(cls)  # type: ignore[arg-type]
            if field.name not in values and field.default is MISSING and field.default_factory is MISSING
        ]
        if missing:
            self.fail(f"{cls.__name__} lacks {', '.join(missing)}", self.position - 1)
        return cls(**values)

    def struct_fields(
        self, cls: type[Attribute], readers: Mapping[str, FieldReader] = MappingProxyType({})
    ) -> dict[str, Any]:
        """The fields that `<field = value, ...>` gives; `readers` read those whose form their type does not tell."""
        self.expect("<")
        declared = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        while not self.take(">"):
            position = self.position
            token = self.tokens[position]
            if token not in declared:
                self.fail(f"expected one of: {', '.join(declared)}; got {self.shown()}", position)
            if token in values:
                self.fail(f"duplicated {token} entry", position)
            self.position += 1
            self.expect("=")
            reader = readers.get(token)
            values[token] = reader(self) if reader else self._field(str(declared[token].type))
            if not self.take(","):
                if not self.take(">"):
                    self.expected("'>'", also=f"failed parsing {cls.__name__}")
                break
        return values

    def _field(self, annotation: str) -> Any:
        reader = _FIELDS.get(annotation)
        return reader(self) if reader else self.attribute()

    def _boolean(self) -> bool:
        if self.take("true"):
            return True
        self.expect("false")
        return False

    def _float(self) -> float:
        position = self.position
        made = self._number(self.tokens[position], t.F64, False)
        assert isinstance(made, FloatAttr)
        return made.value

    def dense_integers(self) -> DenseAttr:
        """A `dense<...>` constant."""
        position = self.position
        made = self.attribute()
        if not isinstance(made, DenseAttr):
            self.fail("expected dense<...>", position)
        return made


AttributeCursor.inner = AttributeCursor

_FIELDS: dict[str, Callable[[AttributeCursor], Any]] = {
    "int": Cursor.int64,
    "bool": AttributeCursor._boolean,
    "str": AttributeCursor.string,
    "float": AttributeCursor._float,
    "tuple[int, ...]": Cursor.integer_list,
    "Type": Cursor.type,
}
_BY_FIRST: dict[str, Any] = {
    '"': AttributeCursor._string,
    "@": AttributeCursor._symbol,
    "[": AttributeCursor._array,
    "{": AttributeCursor._dictionary,
    "#": AttributeCursor._hash,
}
_BY_WORD: dict[str, Any] = {
    "unit": AttributeCursor._unit,
    "true": AttributeCursor._true,
    "false": AttributeCursor._false,
    "array": AttributeCursor._dense_array,
    "dense": AttributeCursor._dense,
    "dense_resource": AttributeCursor._dense_resource,
    "affine_map": AttributeCursor._affine,
    "affine_set": AttributeCursor._affine,
    "loc": AttributeCursor._location,
}
_KNOWN_DIALECTS = frozenset({"stablehlo", "chlo", "sdy"})


def _too_long(token: str) -> int:
    raise ValueError(f"the integer of {len(token)} digits is too large")
