"""An op's pretty form: one declaration from which both its parser and its printer are compiled.

The notation is that of MLIR's declarative assembly formats:

    `literal`                     a keyword or punctuation; backquotes may be left out where nothing is ambiguous
    $name                         an operand, attribute, region or result by its declared name
    operands, results             all operands (values), or with type(...) all operands' or results' types
    type($name), type(results)    types
    functional-type(operands, results)   `(types) -> types`; the arguments may be left out
    attr-dict                     the attributes that the form does not name
    attr-dict-with-keyword        the same after the word `attributes`
    custom<Name>(...)             a directive that spmd/syntax/forms defines by that name
    ref($name)                    a custom directive's argument that it reads but does not parse or print
    (...^...)?                    printed when the element marked ^ is there; (...):(...)? with an alternative
    `` ` ` ``, ``` `` ```         a space, or none

Each element is a Directive (spmd/syntax/directives.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spmd.dialects.core import OpDef
from spmd.ir import Op
from spmd.syntax import elements
from spmd.syntax.directives import (
    CUSTOM,
    Argument,
    Directive,
    LiteralElement,
    OptionalElement,
    Spacing,
    WhitespaceElement,
    spaced,
)

if TYPE_CHECKING:
    from spmd.syntax.printer import Printer

_NOTATION = re.compile(r"\s*(?:(`[^`]*`)|(\$\w+)|(custom<\w+>)|([A-Za-z_][\w\-]*)|(->|\S))")


# --- the notation ----------------------------------------------------------------------------------------------------

_Token = tuple[str, str]


class FormatCompiler:
    """Compiles the notation of one op's form."""

    def __init__(self, definition: OpDef, assembly: str) -> None:
        self.definition = definition
        self.assembly = assembly
        self.tokens = self._split(assembly)
        self.position = 0
        self.named = set(re.findall(r"(?<!ref\()\$(\w+)", assembly))

    @staticmethod
    def _split(assembly: str) -> list[_Token]:
        kinds = ("literal", "variable", "custom", "word", "punctuation")
        tokens = []
        for match in _NOTATION.finditer(assembly.rstrip()):
            index = next(index for index, group in enumerate(match.groups()) if group is not None)
            tokens.append((kinds[index], match.groups()[index]))
        return tokens

    def elements(self) -> list[Directive]:
        elements_and_marks = self._sequence(len(self.tokens))
        return [element for element, _ in elements_and_marks]

    def _sequence(self, end: int) -> list[tuple[Directive, bool]]:
        """Return the elements up to token `end`, each with whether it is marked ^."""
        sequence: list[tuple[Directive, bool]] = []
        while self.position < end:
            element = self._element()
            marked = self._next() == "^"
            self.position += marked
            sequence.append((element, marked))
        return sequence

    def _next(self) -> str:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def _element(self) -> Directive:
        kind, text = self.tokens[self.position]
        if text == "(" and kind == "punctuation":
            group = self._group()
            if group is not None:
                return group
        self.position += 1
        if kind == "literal":
            inner = text[1:-1]
            return LiteralElement(inner) if inner.strip() else WhitespaceElement(inner)
        if kind == "variable":
            return elements.variable(self.definition, text[1:])
        if kind == "custom":
            name = text[7:-1]
            if name not in CUSTOM:
                raise ValueError(f"{self.definition.name}: no directive custom<{name}>")
            return CUSTOM[name](self.definition, self._arguments() if self._next() == "(" else [])
        element = elements.word(self.definition, text, self._arguments, self.named)
        return element if element is not None else LiteralElement(text)

    def _arguments(self) -> list[Argument]:
        """Parse `($a, type($b), ref($c), operands)`; return none when no parenthesis follows."""
        if self._next() != "(" or self.tokens[self.position][0] == "literal":
            return []
        arguments: list[Argument] = []
        kind = ""
        depth = 0
        while True:
            token_kind, text = self.tokens[self.position]
            self.position += 1
            depth += (text == "(") - (text == ")")
            if depth == 0:
                return arguments
            if text in ("type", "ref", "qualified"):
                kind = text
            elif token_kind in ("variable", "word"):
                arguments.append(Argument(kind or "variable", text.lstrip("$")))
                kind = ""

    def _closing(self, start: int) -> int:
        depth = 0
        for index in range(start, len(self.tokens)):
            kind, text = self.tokens[index]
            if kind == "punctuation":
                depth += (text == "(") - (text == ")")
                if depth == 0:
                    return index
        raise ValueError(f"{self.definition.name}: unbalanced assembly {self.assembly!r}")

    def _group(self) -> OptionalElement | None:
        """Parse `(...)?` or `(...):(...)?` at the next token; return None when the parenthesis is a literal."""
        closing = self._closing(self.position)
        following = [text for _, text in self.tokens[closing + 1 : closing + 3]]
        if following[:1] == ["?"]:
            inside = self._inside(closing)
            self.position = closing + 2
            return self._optional(inside, [])
        if following == [":", "("]:
            last = self._closing(closing + 2)
            if [text for _, text in self.tokens[last + 1 : last + 2]] != ["?"]:
                return None
            inside = self._inside(closing)
            self.position = closing + 2
            otherwise = self._inside(last)
            self.position = last + 2
            return self._optional(inside, otherwise)
        return None

    def _inside(self, closing: int) -> list[tuple[Directive, bool]]:
        self.position += 1
        return self._sequence(closing)

    def _optional(
        self, inside: list[tuple[Directive, bool]], otherwise: list[tuple[Directive, bool]]
    ) -> OptionalElement:
        anchors = [element for element, marked in inside if marked]
        if len(anchors) != 1:
            raise ValueError(f"{self.definition.name}: a group needs one element marked ^: {self.assembly!r}")
        return OptionalElement([element for element, _ in inside], anchors[0], [element for element, _ in otherwise])


# --- compiled forms --------------------------------------------------------------------------------------------------


class AssemblyFormat:
    """A compiled form."""

    __slots__ = ("assembly", "definition", "name", "parsers", "pieces")

    def __init__(self, definition: OpDef, assembly: str) -> None:
        self.definition = definition
        self.name = definition.name
        self.assembly = assembly
        elements = FormatCompiler(definition, assembly).elements()
        self.parsers = tuple(element.parse for element in elements)
        #: A form that is a single directive prints its own spaces.
        self.pieces = (elements[0].print,) if len(elements) == 1 else spaced(elements, Spacing())

    def print(self, printer: Printer, op: Op) -> str:
        """Return the text after the op's name."""
        return "".join(piece(printer, op) for piece in self.pieces)


_COMPILED: dict[int, AssemblyFormat | None] = {}


def assembly_format(definition: OpDef) -> AssemblyFormat | None:
    """Return the compiled form of an op; None when it has only the generic one."""
    key = id(definition)
    if key not in _COMPILED:
        _COMPILED[key] = AssemblyFormat(definition, definition.assembly) if definition.assembly is not None else None
    return _COMPILED[key]
