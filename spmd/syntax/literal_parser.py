"""Literals: numbers, strings, symbols, arrays, dictionaries and constants."""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np

from spmd import types as t
from spmd.ir.attributes import (
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
    FloatAttr,
    IntegerAttr,
    LocationAttr,
    OpaqueAttr,
    StringAttr,
    SymbolRefAttr,
)
from spmd.syntax.dense import dense, dense_hex, dense_raw
from spmd.syntax.lexer import LongHex
from spmd.syntax.literals import Notes, parse_elements, parse_integer, scalar_bits, unquote
from spmd.syntax.token_parser import LOCATION_NAME
from spmd.syntax.type_parser import TypeParser

A = TypeVar("A", bound=Attribute)

_MOST_NUMBERS = 10_000
#: Most digits of an integer wider than any array element: Python converts no decimal of more than 4300.
_MOST_DIGITS = 4000
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|-?0x[\da-fA-F]+", re.ASCII)
_SYMBOL_PART = re.compile(r'@("(?:[^"\\]|\\.)*"|[A-Za-z_][\w$.]*)', re.ASCII)


class LiteralParser(TypeParser):
    """Parses types and the attributes that no dialect defines."""

    def parse_attribute(self, type: t.Type | None = None, *, typed: bool = True) -> Attribute:
        """Parse any attribute. `type` is a number's type if the context gives it; else `: type` follows if `typed`."""
        raise NotImplementedError

    # --- numbers and strings ---

    def _number(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        if not _NUMBER.fullmatch(token):
            self.expected("a number")
        self.position += 1
        # A tensor type after a colon is not the number's: it belongs to the op's form.
        following = self.tokens[self.position + 1]
        if typed and self.tokens[self.position] == ":" and not following.startswith(("tensor", "(")):
            self.position += 1
            type = self.parse_type()
        numbers = self.names.numbers
        attribute = numbers.get((token, type))
        if attribute is None:
            try:
                attribute = self._number_of(token, type, position)
            except (ValueError, OverflowError) as error:
                self.fail(str(error), position)
            if len(numbers) < _MOST_NUMBERS:
                numbers[token, type] = attribute
        return attribute

    def _number_of(self, token: str, type: t.Type | None, position: int) -> Attribute:
        fractional = "x" not in token and not token.removeprefix("-").isdecimal()
        if type is None:
            type = t.F64 if fractional else t.I64
        if type is t.TF32 or str(type) in ("f80", "f128"):  # of which there are no arrays
            return OpaqueAttr(f"{token} : {type}")
        if not isinstance(type, t.ElementType):
            wide = t.wide_integer(type)
            if wide is None or fractional:
                raise ValueError(f"a number has no type {type}")
            return IntegerAttr(_wide_integer(token, type, *wide), type)
        if not type.is_float and (fractional or type.is_complex):
            raise ValueError(f"{token} is not a literal of type {type}")
        notes: Notes = []
        attribute: Attribute
        if type.is_float:
            attribute = FloatAttr(scalar_bits(token, type, notes), type)
        elif type.is_boolean:
            attribute = TRUE if parse_elements([token], type, notes)[0] else FALSE
        else:
            attribute = IntegerAttr(parse_integer(token, type, notes), type)
        self.advise(notes, position)
        return attribute

    def _string(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        data = self.parse_string_bytes()
        if typed and self.tokens[self.position] == ":":
            self.position += 1
            return StringAttr(data, self.parse_type())
        if typed and len(token) < 64:
            self.names.attributes.setdefault(token, StringAttr(data)) if self.tokens[position + 1] == "," else None
        return StringAttr(data)

    def parse_string_bytes(self) -> bytes:
        """Parse a string literal; return its bytes."""
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

    def parse_string(self) -> str:
        return self.parse_string_bytes().decode("utf-8", "surrogateescape")

    def _symbol(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        return SymbolRefAttr(self.parse_symbol_path())

    def parse_symbol_path(self) -> tuple[str, ...]:
        """Parse `@root::@nested`."""
        token = self.tokens[self.position]
        parts = _SYMBOL_PART.findall(token)
        if token[:1] != "@" or not parts:
            self.unexpected("a valid '@'-identifier for a symbol name")
        self.position += 1
        try:
            return tuple(unquote(p).decode("utf-8", "surrogateescape") if p[0] == '"' else p for p in parts)
        except ValueError as error:
            self.fail(str(error), self.position - 1)

    def parse_symbol(self) -> str:
        """Parse `@name`, a symbol of one part."""
        position = self.position
        path = self.parse_symbol_path()
        if len(path) != 1:
            self.fail("expected a symbol of one part", position)
        return path[0]

    def _complex_constant(self) -> Attribute:
        """Parse `(1.0, 2.0) : complex<f32>`, the specification's ComplexConstant: in MLIR, a tensor of rank 0."""
        position = self.position
        body = self.parse_balanced()
        self.expect(":")
        element = self.parse_type()
        if not isinstance(element, t.ElementType) or not element.is_complex:
            self.fail(f"a pair of numbers is of a complex type, got {element}", position)
        return self._dense_of(body, t.TensorType((), element), position)

    # --- arrays and dictionaries ---

    def _array(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        if len(token) > 1 and ":" not in token:
            values = self.parse_integer_list()
            attribute = ArrayAttr(tuple(IntegerAttr(value, t.I64) for value in values))
            self.names.attributes[token] = attribute
            return attribute
        self.deeper()
        self.expect("[")
        elements = tuple([self.parse_attribute() for _ in self.items("]")])
        self.depth -= 1
        return ArrayAttr(elements)

    def _dictionary(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        return DictAttr(self.parse_dictionary())

    def parse_dictionary(self) -> dict[str, Attribute]:
        """Parse `{name = value, unit}`."""
        self.deeper()
        self.expect("{")
        entries: dict[str, Attribute] = {}
        if not self.consume_if("}"):
            while True:
                self.parse_entry(entries)
                if not self.consume_if(",") or self.at("}"):  # the specification's custom_call has a trailing comma
                    break
            self.expect("}")
        self.depth -= 1
        return entries

    def parse_entry(self, entries: dict[str, Attribute]) -> None:
        """Parse `name = value` or `name` into `entries`."""
        position = self.position
        token = self.tokens[position]
        name = self.parse_string() if token[:1] == '"' else self._entry_name(token)
        if not name:
            self.fail("expected valid attribute name", position)
        if name in entries:
            self.fail(f"duplicate key '{name}' in dictionary attribute", position)
        entries[name] = self.parse_attribute() if self.consume_if("=") else UNIT

    def _entry_name(self, token: str) -> str:
        if not (token[:1].isalpha() or token[:1] == "_") or "<" in token:
            self.expected("an attribute name")
        self.position += 1
        return token

    # --- arrays of numbers and tensors ---

    def _dense_array(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        whole = token if len(token) > 5 else None
        self.position += 1
        body = (whole[6:-1] if whole else self.parse_balanced()[1:-1]).strip()
        name, colon, listed = body.partition(":")
        element = t.ELEMENT_TYPES.get(name.strip())
        if element is None or not (element.is_boolean or element.is_float or element.is_integer):
            self.fail("expected an integer or floating-point type of 8 bits or more in array<...>", position)
        texts = [entry.strip() for entry in listed.split(",")] if colon else []
        try:
            notes: Notes = []
            values = parse_elements(texts, element, notes) if texts else np.empty(0)
            self.advise(notes, position)
        except ValueError as error:
            self.fail(str(error), position)
        attribute = DenseArrayAttr(element, tuple(values.tolist()))
        if whole:
            self.names.attributes[whole] = attribute
        return attribute

    def _dense(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        self.position += 1
        if token[-1] == ">" and "> : " not in token:
            body = token[6:-1]
        elif len(token) > 5:
            body, _, type_text = token[6:].rpartition("> : ")
            attribute = self._dense_of(body, self._type_of_text(type_text, position), position)
            if len(token) < 256:
                self.names.attributes[token] = attribute
            return attribute
        else:
            body = self._dense_body()
        if type is None:
            self.expect(":")
            type = self.parse_type()
        return self._dense_of(body, type, position)

    def _dense_body(self) -> str:
        """Parse the text between `<` and `>` when it is not one token."""
        opening, string, closing = self.tokens[self.position : self.position + 3]
        if opening != "<":
            self.expected("'<'")
        if string[:1] == '"' and closing == ">":
            self.position += 3
            return string
        return self.parse_balanced()[1:-1]

    def _type_of_text(self, text: str, position: int) -> t.Type:
        type = self.types.get(text)
        if type is None:
            self.position = position
            type = self.types[text] = self.inside(text).parse_whole_type()
            self.position = position + 1
        return type

    def _dense_of(self, body: str, type: t.Type, position: int) -> Attribute:
        element = type.element_type if isinstance(type, t.TensorType) else type
        if isinstance(element, t.OpaqueType | t.BufferType):
            # Elements that no op computes with, such as strings: only the text is kept.
            text = f'"0x{body.digits}"' if isinstance(body, LongHex) else body
            return OpaqueAttr(f"dense<{text}> : {type}")
        try:
            if isinstance(body, LongHex):
                return dense_hex(body.digits, type)  # type: ignore[arg-type]
            if body[:1] == '"':
                if body[:3] != '"0x':
                    raise ValueError('expected a hex string such as "0x00FF"')
                return dense_hex(body[3:-1], type)  # type: ignore[arg-type]
            notes: Notes = []
            attribute = dense(body, type, notes)  # type: ignore[arg-type]
            self.advise(notes, position)
            return attribute
        except (ValueError, OverflowError) as error:
            self.fail(str(error), position)

    def _dense_resource(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        position = self.position
        self.position += 1
        self.expect("<")
        key = self.parse_string() if self.tokens[self.position][:1] == '"' else self.parse_keyword("a resource key")
        self.expect(">")
        if type is None:
            self.expect(":")
            type = self.parse_type()
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
            self.position += 1
            depth += (part == "<") - (part == ">" and self.tokens[self.position] != "=")
            if depth == 0:
                return AffineMapAttr(token + self._between(start, self.position))

    def _opaque(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        """Parse `sparse<...> : type`, `distinct[0]<...>`, `strided<...>`: attributes kept as text."""
        self.position += 1
        text = token
        while self.tokens[self.position][:1] in ("<", "["):
            text += self.parse_balanced()
        if token == "sparse":
            if type is None:
                self.expect(":")
                type = self.parse_type()
            text += f" : {type}"
        return OpaqueAttr(text)

    def _location(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        return LocationAttr(f"loc({self.parse_location()})")

    def parse_location(self) -> str:
        """Parse `loc(...)`; return the text between the parentheses, aliases resolved."""
        token = self.tokens[self.position]
        self.position += 1
        if len(token) > 3:
            inner = token[4:-1]
        else:
            if self.tokens[self.position] != "(":
                self.expected("'('")
            inner = self.parse_balanced()[1:-1]
        if "#loc" not in inner:
            return inner
        aliases = self.names.location_aliases
        return LOCATION_NAME.sub(lambda match: aliases.get(match[0], match[0]), inner)

    def _boolean(self) -> bool:
        if self.consume_if("true"):
            return True
        self.expect("false")
        return False

    def _float(self) -> float:
        position = self.position
        number = self._number(self.tokens[position], t.F64, False)
        assert isinstance(number, FloatAttr)
        return number.value

    def parse_array(self) -> ArrayAttr:
        """Parse `[...]`."""
        return self._parse_kind(ArrayAttr, "an array")

    def parse_dense(self) -> DenseAttr:
        """Parse a `dense<...>` constant."""
        return self._parse_kind(DenseAttr, "dense<...>")

    def _parse_kind(self, kind: type[A], expected: str) -> A:
        position = self.position
        attribute = self.parse_attribute()
        if not isinstance(attribute, kind):
            self.fail(f"expected {expected}", position)
        return attribute


def _wide_integer(token: str, type: t.Type, bits: int, unsigned: bool) -> int:
    """Return an integer of a type wider than any array element; raise ValueError if it is out of the type's range."""
    if len(token) > _MOST_DIGITS:
        raise ValueError(f"the integer of {len(token)} digits is too large")
    value = int(token, 16 if "x" in token else 10)
    if not (0 if unsigned else -(1 << (bits - 1))) <= value < 1 << bits:
        raise ValueError(f"integer constant {token} is out of range for {type}")
    return value - (1 << bits) if not unsigned and value >> (bits - 1) > 0 else value
