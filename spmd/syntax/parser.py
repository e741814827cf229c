"""Parse a whole text as a module: its ops, aliases, and the locations and constants at its end.

Source: MLIR's language reference, "Top level productions".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import partial

from spmd.dialects import core
from spmd.errors import Diagnostic, Location, ParseError, Source, SpmdError, VerificationError
from spmd.ir import Block, Module, Region
from spmd.ir.attributes import ArrayAttr, Attribute, DictAttr, LocationAttr
from spmd.support.collecting import no_collection
from spmd.syntax.lexer import OutOfTokens, TokenLocation
from spmd.syntax.literals import hex_bytes
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.token_parser import DEEPEST, LOCATION_NAME, TextNames
from spmd.types import MOST_PARTS

_LOCATION_ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)[ \t\r]*$", re.MULTILINE | re.ASCII)
_RESOURCE = re.compile(r'([\w$.\-]+|"[^"\n]*"): "0x', re.ASCII)
_LONGEST_LOCATION = 1000
#: Lookaheads, in tokens, tried in this order; the last is all tokens.
_READY = (1 << 10, 1 << 13, 1 << 16, 1 << 20, sys.maxsize)


class ModuleParser(OperationParser):
    """Parses a whole text. An empty text is a program without functions."""

    def __init__(self, source: Source, ready: int, names: TextNames) -> None:
        super().__init__(source, ready, names)
        self._measures: dict[int, tuple[int, int]] = {}

    def parse_module(self) -> Module:
        """Parse the whole text as a module."""
        block = Block()
        self.ready()
        location = TokenLocation(self.stream, 0)
        while True:
            if not self.tokens[self.position] and not self.stream.at_end:
                raise OutOfTokens  # the last token may be incomplete
            self.ready()
            token = self.tokens[self.position]
            if not token:
                break
            if token[0] == "#" and self.tokens[self.position + 1] == "=":
                self._attribute_alias()
            elif token[0] == "!" and self.tokens[self.position + 1] == "=":
                self._type_alias()
            elif token == "{-#":
                self._skip_metadata()
            else:
                block.ops.append(self.parse_op())
        only = block.ops[0] if len(block.ops) == 1 else None
        if isinstance(only, Module):
            return only
        return Module(
            "builtin.module", regions=[Region([block])], definition=core.OPS["builtin.module"], location=location
        )

    def _attribute_alias(self) -> None:
        position = self.position
        name = self.tokens[position]
        self.position += 2
        value = self.parse_attribute()
        if isinstance(value, LocationAttr):
            return
        if name in self.names.attribute_aliases:
            self.fail(f"redefinition of attribute alias '{name}'", position)
        if "." in name:
            self.fail("attribute names with a '.' are reserved for dialect-defined names", position)
        self.names.attribute_aliases[name] = value
        parts, depth = self._measure(value)
        if parts > MOST_PARTS or depth > DEEPEST:
            self.fail(f"attribute alias '{name}' is an attribute of too many parts, or nested too deep", position)

    def _measure(self, value: Attribute) -> tuple[int, int]:
        """Return how many attributes `value` has written out, and how deep they nest. Aliased attributes are shared."""
        known = self._measures.get(id(value))
        if known is not None:
            return known
        inner: Iterable[Attribute] = ()
        if isinstance(value, ArrayAttr):
            inner = value.elements
        elif isinstance(value, DictAttr):
            inner = value.entries.values()
        measures = [self._measure(each) for each in inner]
        measure = 1 + sum(parts for parts, _ in measures), 1 + max((depth for _, depth in measures), default=0)
        self._measures[id(value)] = measure
        return measure

    def _type_alias(self) -> None:
        position = self.position
        name = self.tokens[position]
        self.position += 2
        if name in self.names.type_aliases:
            self.fail(f"redefinition of type alias '{name}'", position)
        if "." in name:
            self.fail("type names with a '.' are reserved for dialect-defined names", position)
        type = self.parse_type()
        self.names.type_aliases[name] = type
        self.types[name] = type

    def _skip_metadata(self) -> None:
        start = self.number
        while self.tokens[self.position] != "#-}":
            if not self.tokens[self.position]:
                self.fail_number(start, "'{-#' is never closed")
            self.position += 1
            self.ready()
        self.position += 1


def read_locations(source: Source) -> dict[str, str]:
    """Return the location aliases, expanded; of one that is too long, the innermost part that is not."""
    done: dict[str, str] = {}
    for name, body in dict(_LOCATION_ALIAS.findall(source.text)).items():
        text = LOCATION_NAME.sub(lambda match: done.get(match[0], match[0]), body)
        if len(text) > _LONGEST_LOCATION:
            inner = LOCATION_NAME.search(body)
            text = done.get(inner[0], "unknown") if inner else "unknown"
        done["#" + name] = text
    return done


def read_resources(source: Source) -> dict[str, bytes]:
    """Return the resources at the end of the file."""
    text = source.text
    start = text.rfind("{-#")
    resources: dict[str, bytes] = {}
    if start < 0:
        return resources
    for match in _RESOURCE.finditer(text, start):
        begin = match.end()
        end = text.find('"', begin)
        try:
            data = hex_bytes(text[begin : end if end >= 0 else len(text)])
        except ValueError as error:
            raise ParseError(f"resource {match[1]}: {error}", Location(source, begin)) from None
        # The first four bytes are the blob's alignment.
        resources[match[1].strip('"')] = data[4:]
    return resources


def decode(data: str | bytes, name: str) -> Source:
    """Return the source text; raise ParseError, with a location, for bytes that are not UTF-8."""
    if isinstance(data, str):
        return Source(name, data)
    try:
        return Source(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        text = data[: error.start].decode("utf-8", "replace") + "\ufffd"
        message = f"invalid UTF-8: byte 0x{data[error.start]:02x}"
        raise ParseError(message, Location(Source(name, text), len(text) - 1)) from None


def parse(text: str | bytes, name: str = "<text>") -> Module:
    """Return the module parsed from `text`; bare ops are wrapped in a module.

    Only syntax is checked: spmd.verify checks the constraints. Raises ParseError for the first syntax error, or
    VerificationError for all attributes that are not what their op declares.
    """
    source = decode(text, name)
    with no_collection():
        module, diagnostics = _parse(source)
    if diagnostics:
        raise VerificationError(diagnostics)
    return module


def _parse(source: Source) -> tuple[Module, list[Diagnostic]]:
    for ready in _READY:
        names = TextNames(
            load_locations=partial(read_locations, source), load_resources=partial(read_resources, source)
        )
        parser = ModuleParser(source, ready, names)
        try:
            module = parser.parse_module()
            parser.stream.forget()
            module.advice = tuple(names.advice)
            return module, parser.diagnostics
        except OutOfTokens:
            continue  # an op longer than that: retry from the start with a longer lookahead
        except SpmdError as error:
            if parser.diagnostics:
                raise type(error)([*parser.diagnostics, *error.diagnostics]) from None
            raise
        except (RecursionError, MemoryError) as error:
            place = TokenLocation(parser.stream, parser.number)
            raise ParseError(f"the text is too large or too deep: {type(error).__name__}", place) from None
    raise AssertionError("all of a text is never too little")
