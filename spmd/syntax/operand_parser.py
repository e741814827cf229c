"""Values by name, and the state of an op while it is parsed.

Source: MLIR's language reference for the structure; spmd/syntax/assembly.py for each op's pretty form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from spmd import types as t
from spmd.dialects.core import OpDef
from spmd.errors import Diagnostic, Location, ParseError, Source
from spmd.ir import AttributeValue, Block, Region, Value
from spmd.ir.attributes import Attribute, DenseArrayAttr, DenseAttr
from spmd.syntax.attribute_parser import AttributeParser
from spmd.syntax.directives import SEGMENTS
from spmd.syntax.lexer import OutOfTokens, TokenLocation, TokenPage, Tokens
from spmd.syntax.scope import Scope
from spmd.syntax.sharing import Shared
from spmd.syntax.token_parser import TextNames

_LONGEST_MESSAGE = 400
#: The part of a line before its comment.
_COMMENT = re.compile(r'((?:[^/"\n]++|"[^"\n]*+"|/(?!/)|")*)')


class OperationState:
    """An op while it is parsed: what its form has found so far."""

    __slots__ = (
        "attributes", "definition", "discardable", "doubtful", "first_operand", "name", "operand_types", "operands",
        "page", "regions", "result_types", "sizes", "token", "typed",
    )  # fmt: skip

    def __init__(self, name: str, definition: OpDef | None, page: TokenPage, token: int) -> None:
        self.name = name
        self.definition = definition
        self.page = page
        self.token = token
        self.operands: list[str] = []
        self.first_operand = 0
        self.operand_types: Sequence[t.Type] | None = None
        self.typed: dict[str, list[t.Type]] | None = None
        self.sizes: dict[str, int] | None = None
        self.result_types: Sequence[t.Type] | None = None
        self.attributes: dict[str, AttributeValue] = {}
        self.discardable: dict[str, Attribute] = {}
        self.regions: tuple[Region, ...] = ()
        self.doubtful = False

    @property
    def location(self) -> TokenLocation:
        """The location of the op's name."""
        return self.page.location(self.token)


class OperandParser(AttributeParser):
    """Parses operands, and keeps the table of named values."""

    def __init__(self, source: Source, ready: int, names: TextNames) -> None:
        self.stream = Tokens(source, ready)
        super().__init__(self.stream.list, names)
        self.source = source
        self.values = Scope()
        self.shared = Shared()
        self.diagnostics: list[Diagnostic] = []
        self.default_dialect = "builtin"
        self.blocks: dict[str, tuple[Block, int]] = {}
        self.page = TokenPage(self.stream, 0)

    # --- tokens and errors ---

    def fail_at(self, position: int, offset: int, message: str, *, misplaced: bool = False, also: str = "") -> NoReturn:
        if not (self.tokens[self.position] and self.tokens[position]) and not self.stream.at_end:
            raise OutOfTokens
        place = self.place(position, offset).offset
        diagnostics = [
            Diagnostic(Location(self.source, self._before(place) if misplaced else place), _shortened(message))
        ]
        if also:
            diagnostics.append(Diagnostic(Location(self.source, place), also))
        raise ParseError(diagnostics)

    def place(self, position: int, offset: int = 0) -> Location:
        return Location(self.source, self.stream.offset(self.stream.base + position) + offset)

    def _before(self, place: int) -> int:
        """Return `place`, or if it is first on its line, the end of the last line before it that has code."""
        text = self.source.text
        start = text.rfind("\n", 0, place) + 1
        if start == 0 or text[start:place].strip():
            return place
        while start > 0:
            end = start - 1
            start = text.rfind("\n", 0, end) + 1
            line = _COMMENT.match(text, start, end)
            if line and line[1].strip():
                return line.start(1) + len(line[1].rstrip())
        return place

    def fail_number(self, number: int, message: str) -> NoReturn:
        raise ParseError(_shortened(message), TokenLocation(self.stream, number))

    def _between(self, start: int, end: int) -> str:
        base = self.stream.base
        last = base + end - 1
        text = self.source.text[self.stream.offset(base + start) : self.stream.offset(last)] + self.tokens[end - 1]
        return " ".join(self.tokens[start:end]) if "//" in text else " ".join(text.split())

    def split(self) -> None:
        self.stream.split(self.position)

    @property
    def number(self) -> int:
        """The number of the next token."""
        return self.stream.base + self.position

    def ready(self) -> None:
        """Refill the window of tokens."""
        if len(self.tokens) - self.position < self.stream.ready and not self.stream.at_end:
            self.position = self.stream.fill(self.position)
            self.tokens = self.stream.list

    # --- values ---

    def define(self, name: str, value: Value, location: Location) -> None:
        if not self.values.add(name, value):
            self._redefined(name, location)

    def _redefined(self, name: str, location: Location) -> NoReturn:
        raise ParseError(f"redefinition of SSA value '{name}'", location)

    def note(self, state: OperationState, message: str) -> None:
        """Record an error that does not prevent parsing of the remaining text."""
        state.doubtful = True
        self.diagnostics.append(Diagnostic(state.location, message, state.name))

    # --- operands ---

    def parse_operand(self, state: OperationState) -> None:
        """Parse one value, by name."""
        token = self.tokens[self.position]
        if token[:1] != "%" or ":" in token:
            self.expected("an SSA operand")
        if not state.operands:
            state.first_operand = self.stream.base + self.position
        state.operands.append(token)
        self.position += 1

    def parse_operand_list(self, state: OperationState) -> int:
        """Parse any number of values separated by commas; return how many."""
        if self.tokens[self.position][:1] != "%":
            return 0
        count = 1
        self.parse_operand(state)
        while self.tokens[self.position] == ",":
            self.position += 1
            self.parse_operand(state)
            count += 1
        return count

    def resolve(self, state: OperationState) -> list[Value]:
        """Look up the operands by name; each must have the type that the text gives it."""
        recent, find = self.values.recent, self.values.get
        types = state.operand_types
        if types is None:
            if state.typed:
                types = self._typed(state)
            else:
                names = enumerate(state.operands)
                return [recent.get(name) or find(name) or self._missing(state, at) for at, name in names]
        if len(types) != len(state.operands):
            message = f"{len(state.operands)} operands present, but expected {len(types)}"
            raise ParseError(Diagnostic(state.location, message, state.name))
        values: list[Value] = []
        for name, type in zip(state.operands, types, strict=True):
            value = recent.get(name) or find(name) or self._missing(state, len(values))
            if value.type is not type and type is not None:
                self._mistyped(state, len(values), value, type)
            values.append(value)
        return values

    def _typed(self, state: OperationState) -> list[t.Type]:
        """Return the types of the operands, in order; None where the form gives none."""
        assert state.definition is not None and state.typed is not None
        types: list[Any] = []
        for declared in state.definition.operands:
            count = state.sizes.get(declared.name, 1) if state.sizes else 1
            typed = state.typed.get(declared.name)
            if typed is not None and len(typed) != count:
                message = f"{count} operands {declared.name} present, but expected {len(typed)}"
                raise ParseError(Diagnostic(state.location, message, state.name))
            types += typed if typed is not None else [None] * count
        return types

    def _place(self, state: OperationState, index: int) -> int:
        """Return the number of the token of operand `index`."""
        name = state.operands[index]
        first = state.first_operand
        start = first - self.stream.base
        if start >= 0:
            end = min(len(self.tokens), start + 4 * len(state.operands) + 16)
            near = [at for at in range(start, end) if self.tokens[at] == name]
            repeats = state.operands[:index].count(name)
            if len(near) > repeats:
                return self.stream.base + near[repeats]
        return first + 2 * index

    def _missing(self, state: OperationState, index: int) -> Value:
        name = state.operands[index]
        base, _, number = name.partition("#")
        value = self.values.get(base)
        if number == "0" and value is not None:
            return value
        what = (
            "reference to invalid result number of" if number and value is not None else "use of undeclared SSA value"
        )
        self.fail_number(self._place(state, index), f"{what} '{name}'")

    def _mistyped(self, state: OperationState, index: int, value: Value, type: t.Type) -> NoReturn:
        name = state.operands[index]
        message = f"use of value '{name}' expects a different type than its definition: {type} against {value.type}"
        self.fail_number(self._place(state, index), message)

    # --- attributes of ops ---

    def parse_entries(self, state: OperationState) -> None:
        """Parse `{...}`: each entry is stored by `file`."""
        for name, attribute in self.parse_dictionary().items():
            self.file(state, name, attribute)

    def file(self, state: OperationState, name: str, attribute: Attribute) -> None:
        """Store an attribute: decoded if the op declares it, else as it is."""
        definition = state.definition
        declared = definition.attribute_table.get(name) if definition is not None else None
        if declared is None:
            if name in SEGMENTS and definition is not None:
                self._segments(state, name, attribute)
            elif name in state.discardable:
                self.note(state, f"attribute '{name}' is given twice")
            else:
                state.discardable[name] = attribute
            return
        if name in state.attributes:
            self.note(state, f"attribute '{name}' is given twice")
            return
        try:
            state.attributes[name] = declared.kind.decode(attribute)
        except ValueError as error:
            self.note(state, f"attribute '{name}': {error}")

    def _segments(self, state: OperationState, name: str, attribute: Attribute) -> None:
        sizes: tuple[int, ...] | None = None
        if isinstance(attribute, DenseArrayAttr):
            sizes = attribute.values
        elif isinstance(attribute, DenseAttr) and attribute.array.ndim == 1 and attribute.array.size < 1000:
            sizes = tuple(map(int, attribute.array.tolist()))
        if sizes is None or not all(isinstance(size, int) and size >= 0 for size in sizes):
            self.note(state, f"attribute '{name}': expected array<i32: ...> of non-negative sizes")
        else:
            state.attributes[name] = sizes


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "..."
