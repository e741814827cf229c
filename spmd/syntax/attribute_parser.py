"""Attributes as text: numbers, strings, arrays, dictionaries, constants, and what dialects define."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import TypeVar

from spmd import types as t
from spmd.dialects.kinds import ENUMS
from spmd.dialects.structs import STRUCTS, StructAttribute
from spmd.ir import AttributeValue
from spmd.ir.attributes import (
    FALSE,
    TRUE,
    UNIT,
    Attribute,
    EnumAttr,
    LocationAttr,
    OpaqueAttr,
    TypeAttr,
)
from spmd.syntax.literal_parser import LiteralParser
from spmd.syntax.token_parser import TokenParser

#: Parsers of the body of `#dialect.mnemonic<...>`, from the `<` on, by (dialect, mnemonic).
BodyParser = Callable[["AttributeParser"], Attribute]
FieldReader = Callable[["AttributeParser"], AttributeValue]
ATTRIBUTE_PARSERS: dict[tuple[str, str], BodyParser] = {}


_Parser = TypeVar("_Parser", bound=BodyParser)
_Struct = TypeVar("_Struct", bound=Attribute)
_Attribute = TypeVar("_Attribute", bound=Attribute)


def attribute_parser(dialect: str, mnemonic: str) -> Callable[[_Parser], _Parser]:
    """Register the decorated parser of an attribute whose form is not `<field = value, ...>`.

    It is called at the token after the mnemonic, usually `<`, and reads to the end of the body.
    """

    def add(parser: _Parser) -> _Parser:
        ATTRIBUTE_PARSERS[dialect, mnemonic] = parser
        return parser

    return add


class AttributeParser(LiteralParser):
    """Parses types and attributes."""

    def parse_attribute(self, type: t.Type | None = None, *, typed: bool = True) -> Attribute:
        """Parse any attribute. `type` is a number's type if the context gives it; else `: type` follows if `typed`."""
        token = self.tokens[self.position]
        attribute = self.names.attributes.get(token)
        if attribute is not None:
            self.position += 1
            return attribute
        first = token[:1]
        read = _BY_FIRST.get(first)
        if read is not None:
            return read(self, token, type, typed)
        if first.isdigit() or first == "-":
            return self._number(token, type, typed)
        if token == "+" and self.tokens[self.position + 1][:1].isdigit():
            self.position += 1  # the specification allows this sign; MLIR does not
            return self._number(self.tokens[self.position], type, typed)
        read = _BY_WORD.get(token.split("<", 1)[0])
        if read is not None:
            return read(self, token, type, typed)
        if token == "(" and self.tokens[self.position + 1][:1] in _NUMBERS:
            return self._complex_constant()
        if self.at_type():
            return TypeAttr(self.parse_type())
        self.expected("an attribute value")

    def _hash(self, token: str, type: t.Type | None, typed: bool) -> Attribute:
        attribute = self._dialect_attribute(token)
        if not typed or not isinstance(attribute, OpaqueAttr) or self.tokens[self.position] != ":":
            return attribute
        if self.tokens[self.position + 1].startswith(("tensor", "(")):  # the type belongs to the op
            return attribute
        self.position += 1
        return OpaqueAttr(f"{attribute.text} : {self.parse_type()}")

    def _dialect_attribute(self, token: str) -> Attribute:
        if "<" in token:
            attribute: Attribute = self.inside(token).parse_whole_dialect_attribute()
            self.position += 1
            if not isinstance(attribute, OpaqueAttr):  # an OpaqueAttr may be followed by a type
                self.names.attributes[token] = attribute
            return attribute
        alias = self.names.attribute_aliases.get(token)
        if alias is not None and self.tokens[self.position + 1] != "<":
            self.position += 1
            return alias
        if self.tokens[self.position + 1] != "<" and "." not in token:
            if token in self.names.location_aliases:
                self.position += 1
                return LocationAttr(f"loc({self.names.location_aliases[token]})")
            self.fail(f"undefined attribute alias '{token}'")
        return self.parse_dialect_attribute()

    def parse_whole_dialect_attribute(self) -> Attribute:
        attribute = self.parse_dialect_attribute()
        if self.tokens[self.position]:
            self.expected("the end of the attribute")
        return attribute

    def parse_dialect_attribute(self) -> Attribute:
        """Parse `#dialect.mnemonic<...>` or `#dialect<mnemonic ...>`."""
        position = self.position
        dialect, dot, mnemonic = self.tokens[position][1:].partition(".")
        self.position += 1
        if dialect not in _KNOWN_DIALECTS:
            body = self.parse_balanced() if self.tokens[self.position] == "<" else ""
            return OpaqueAttr(
                self.text if self.text and not self.tokens[self.position] else f"#{dialect}{dot}{mnemonic}{body}"
            )
        if dot:
            return self._known(dialect, mnemonic, position)
        self.expect("<")
        mnemonic = self.parse_keyword("an attribute's name")
        attribute = self._known(dialect, mnemonic, position, bare=True)
        self.expect(">")
        return attribute

    def _known(self, dialect: str, mnemonic: str, position: int, *, bare: bool = False) -> Attribute:
        parser, struct = ATTRIBUTE_PARSERS.get((dialect, mnemonic)), STRUCTS.get((dialect, mnemonic))
        if parser is not None:
            return self.sound(parser(self), position)
        if struct is not None:
            return self.sound(self.parse_struct(struct), position)
        cases = ENUMS.get((dialect, mnemonic))
        if cases is None:
            self.fail(f"unknown {dialect} attribute '{mnemonic}'", position)
        bracketed = not bare or self.tokens[self.position] == "<"
        if bracketed:
            self.expect("<")
        case = self.tokens[self.position]
        if case not in cases:
            self.expected(f"{mnemonic} to be one of: {', '.join(cases)}")
        self.position += 1
        if bracketed:
            self.expect(">")
        return EnumAttr(dialect, mnemonic, case)

    def sound(self, attribute: _Attribute, position: int) -> _Attribute:
        """Return `attribute`, which began at `position`; raise ParseError there if it violates its constraints."""
        fault = attribute.fault() if isinstance(attribute, StructAttribute) else None
        if fault is not None:
            label, message = fault
            self.fail(f"({label}) {message}" if label else message, position)
        return attribute

    def parse_struct(self, cls: type[_Struct], readers: Mapping[str, FieldReader] = MappingProxyType({})) -> _Struct:
        """Parse `<field = value, ...>` of a dataclass attribute; every field without a default must be given."""
        values = self.parse_struct_fields(cls, readers)
        missing = [
            field.name
            for field in fields(cls)  # type: ignore[arg-type]
            if field.name not in values and field.default is MISSING and field.default_factory is MISSING
        ]
        if missing:
            self.fail(f"{cls.__name__.removesuffix('Attr')} lacks {', '.join(missing)}", self.position - 1)
        return cls(**values)

    def parse_struct_fields(
        self, cls: type[Attribute], readers: Mapping[str, FieldReader] = MappingProxyType({})
    ) -> dict[str, AttributeValue]:
        """Return the fields of `<field = value, ...>`; `readers` parse those whose form does not follow
        from the type.
        """
        self.expect("<")
        declared = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        values: dict[str, AttributeValue] = {}
        while not self.consume_if(">"):
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
            if not self.consume_if(","):
                if not self.consume_if(">"):
                    self.expected("'>'", also=f"failed parsing {cls.__name__.removesuffix('Attr')}")
                break
        return values

    def _field(self, annotation: str) -> AttributeValue:
        reader = _FIELDS.get(annotation)
        return reader(self) if reader else self.parse_attribute()


AttributeParser.inner = AttributeParser

_FIELDS: dict[str, Callable[[AttributeParser], AttributeValue]] = {
    "int": TokenParser.parse_int64,
    "bool": AttributeParser._boolean,
    "str": AttributeParser.parse_string,
    "float": AttributeParser._float,
    "tuple[int, ...]": TokenParser.parse_integer_list,
    "Type": AttributeParser.parse_type,
    "ArrayAttr": AttributeParser.parse_array,
}
_Reader = Callable[[AttributeParser, str, t.Type | None, bool], Attribute]


def _word(attribute: Attribute) -> _Reader:
    """Consume the word that spells `attribute`."""

    def read(parser: AttributeParser, token: str, type: t.Type | None, typed: bool) -> Attribute:
        parser.position += 1
        return attribute

    return read


_BY_FIRST: dict[str, _Reader] = {
    '"': AttributeParser._string,
    "@": AttributeParser._symbol,
    "[": AttributeParser._array,
    "{": AttributeParser._dictionary,
    "#": AttributeParser._hash,
}
_BY_WORD: dict[str, _Reader] = {
    "unit": _word(UNIT),
    "true": _word(TRUE),
    "false": _word(FALSE),
    "array": AttributeParser._dense_array,
    "dense": AttributeParser._dense,
    "dense_resource": AttributeParser._dense_resource,
    "affine_map": AttributeParser._affine,
    "affine_set": AttributeParser._affine,
    "loc": AttributeParser._location,
    "sparse": AttributeParser._opaque,
    "distinct": AttributeParser._opaque,
    "strided": AttributeParser._opaque,
}
_NUMBERS = frozenset("-+0123456789")  # first characters of numbers
_KNOWN_DIALECTS = frozenset({"stablehlo", "chlo", "sdy"})
