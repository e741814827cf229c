"""An op's pretty form: one notation, from which both its parser and its printer are made.

The notation is that of MLIR's declarative assembly formats:

    `literal`                     a keyword or punctuation; backquotes may be left out where nothing is ambiguous
    $name                         an operand, attribute, region or result by its declared name
    operands, results             all operands (values), or with type(...) all operands' or results' types
    type($name), type(results)    types
    functional-type(operands, results)   `(types) -> types`; the arguments may be left out
    attr-dict                     the attributes that the form does not name
    attr-dict-with-keyword        the same behind the word `attributes`
    custom<Name>(...)             a directive that spmd/syntax/forms defines by that name
    ref($name)                    an argument of a custom directive that it looks at only
    (...^...)?                    printed when the element marked ^ is there; (...):(...)? with an alternative
    `` ` ` ``, ``` `` ```         a space, or none

Each element is a Directive: `parse` reads it into an OperationState, `print` gives its text. Spaces follow from
punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spmd.dialects.core import OpDef
from spmd.ir import Op

if TYPE_CHECKING:
    from spmd.syntax.op_cursor import OpCursor
    from spmd.syntax.operand_cursor import OperationState
    from spmd.syntax.printer import Printer

#: Attributes that say how many values each variadic operand or result has; a pretty form shows it.
SEGMENTS = ("operandSegmentSizes", "resultSegmentSizes")
_NOTATION = re.compile(r"\s*(?:(`[^`]*`)|(\$\w+)|(custom<\w+>)|([A-Za-z_][\w\-]*)|(->|\S))")


@dataclass(frozen=True)
class Argument:
    """An argument of a directive: `$name`, `type($name)`, `ref($name)`, or a word such as operands."""

    kind: str
    name: str


class Directive:
    """One element of a form."""

    def parse(self, parser: OpCursor, pending: OperationState) -> None:
        """Reads the element; an error is raised through `parser`."""
        raise NotImplementedError

    def print(self, printer: Printer, op: Op) -> str:
        """The element's text."""
        raise NotImplementedError

    def present(self, op: Op) -> bool:
        """Whether the element, marked ^, has anything to print."""
        return True

    def begins(self, parser: OpCursor) -> bool:
        """Whether the element may start at the next token."""
        return False


#: Custom directives by name: made from the op's declaration and the directive's arguments.
CUSTOM: dict[str, Callable[[OpDef, list[Argument]], Directive]] = {}


def custom(name: str) -> Callable[[type[Directive]], type[Directive]]:
    """Class decorator: files a directive as `custom<name>`. It is made as `cls(definition, arguments)`."""

    def add(cls: type[Directive]) -> type[Directive]:
        if name in CUSTOM:
            raise ValueError(f"custom<{name}> is defined twice")
        CUSTOM[name] = cls
        return cls

    return add


class AssemblyFormat:
    """A compiled form."""

    __slots__ = ("assembly", "definition", "name", "parsers", "pieces")

    def __init__(self, definition: OpDef, assembly: str) -> None:
        self.definition = definition
        self.name = definition.name
        self.assembly = assembly
        elements = Compiler(definition, assembly).elements()
        self.parsers = tuple(element.parse for element in elements)
        #: A form that is one directive sees to its own spaces.
        self.pieces = (elements[0].print,) if len(elements) == 1 else spaced(elements, Spacing())

    def print(self, printer: Printer, op: Op) -> str:
        """The text behind the op's name."""
        return "".join(piece(printer, op) for piece in self.pieces)


_COMPILED: dict[int, AssemblyFormat | None] = {}


def form_of(definition: OpDef) -> AssemblyFormat | None:
    """The compiled form of an op; None when it has only the generic one."""
    key = id(definition)
    if key not in _COMPILED:
        _COMPILED[key] = AssemblyFormat(definition, definition.assembly) if definition.assembly is not None else None
    return _COMPILED[key]


# --- spacing ---------------------------------------------------------------------------------------------------------

Piece = Callable[["Printer", Op], str]


@dataclass
class Spacing:
    """Whether the next element takes a space before it, and whether punctuation came last."""

    space: bool = True
    punctuation: bool = False

    def before_literal(self, text: str) -> str:
        if not self.space:
            lead = False
        elif len(text) > 1 and text != "->":
            lead = True
        else:
            lead = text[0] not in (">)}]," if self.punctuation else "<>(){}[],")
        self.space = len(text) > 1 or text not in "<({["
        self.punctuation = not (text[0].isalpha() or text[0] == "_")
        return " " if lead else ""

    def before_value(self) -> str:
        lead = " " if self.space or not self.punctuation else ""
        self.space, self.punctuation = True, False
        return lead


def spaced(elements: list[Directive], spacing: Spacing) -> tuple[Piece, ...]:
    """What prints each element with the space before it."""
    return tuple(_piece(element, spacing) for element in elements)


def _piece(element: Directive, spacing: Spacing) -> Piece:
    if isinstance(element, LiteralElement):
        if not element.text.strip():
            spacing.space, spacing.punctuation = False, True
            text = element.text
        else:
            text = spacing.before_literal(element.text) + element.text
        return lambda printer, op: text
    if isinstance(element, OptionalElement):
        return element.pieces(spacing)
    lead = spacing.before_value()

    def piece(printer: Printer, op: Op) -> str:
        text = element.print(printer, op)
        return lead + text if text and not text.startswith(("\n", ",")) else text

    return piece


# --- elements that need no declaration -------------------------------------------------------------------------------


class LiteralElement(Directive):
    def __init__(self, text: str) -> None:
        self.text = text

    def parse(self, parser: OpCursor, pending: OperationState) -> None:
        if parser.tokens[parser.position] == self.text:
            parser.position += 1
        else:
            parser.expect(self.text)

    def print(self, printer: Printer, op: Op) -> str:
        return self.text

    def begins(self, parser: OpCursor) -> bool:
        return parser.at(self.text)


class WhitespaceElement(LiteralElement):
    """`` ` ` `` or nothing: printed, not read."""

    def parse(self, parser: OpCursor, pending: OperationState) -> None:
        pass


class OptionalElement(Directive):
    """`(...)?`, with or without an alternative."""

    def __init__(self, elements: list[Directive], anchor: Directive, otherwise: list[Directive]) -> None:
        self.elements = elements
        self.anchor = anchor
        self.otherwise = otherwise
        visible = [element for element in elements if not isinstance(element, WhitespaceElement)]
        self.first = visible[0]
        self.literals: list[str] = []
        for element in visible:
            if not isinstance(element, LiteralElement):
                break
            self.literals.append(element.text)

    def begins(self, parser: OpCursor) -> bool:
        if not self.first.begins(parser):
            return False
        tokens, position = parser.tokens, parser.position
        # A second keyword tells apart groups that begin with the same comma.
        if len(self.literals) > 1 and self.literals[1].isidentifier():
            return tokens[position + 1 : position + 2] == [self.literals[1]]
        return True

    def parse(self, parser: OpCursor, pending: OperationState) -> None:
        for element in self.elements if self.begins(parser) else self.otherwise:
            element.parse(parser, pending)

    def pieces(self, spacing: Spacing) -> Piece:
        start = Spacing(spacing.space, spacing.punctuation)
        inner = spaced(self.elements, spacing)
        other = spaced(self.otherwise, start)

        def piece(printer: Printer, op: Op) -> str:
            return "".join(part(printer, op) for part in (inner if self.anchor.present(op) else other))

        return piece


# --- the notation ----------------------------------------------------------------------------------------------------

_Token = tuple[str, str]


class Compiler:
    """Reads the notation of one op's form."""

    def __init__(self, definition: OpDef, assembly: str) -> None:
        self.definition = definition
        self.assembly = assembly
        self.tokens = self._split(assembly)
        self.position = 0
        self.named = set(re.findall(r"(?<!ref\()\$(\w+)", assembly))

    @staticmethod
    def _split(assembly: str) -> list[_Token]:
        kinds = ("literal", "variable", "custom", "word", "punctuation")
        found = []
        for match in _NOTATION.finditer(assembly.rstrip()):
            index = next(index for index, group in enumerate(match.groups()) if group is not None)
            found.append((kinds[index], match.groups()[index]))
        return found

    def elements(self) -> list[Directive]:
        found = self._sequence(len(self.tokens))
        return [element for element, _ in found]

    def _sequence(self, end: int) -> list[tuple[Directive, bool]]:
        """The elements up to token `end`, each with whether it is marked ^."""
        found: list[tuple[Directive, bool]] = []
        while self.position < end:
            element = self._element()
            marked = self._next() == "^"
            self.position += marked
            found.append((element, marked))
        return found

    def _next(self) -> str:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def _element(self) -> Directive:
        from spmd.syntax import elements

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
        made = elements.word(self.definition, text, self._arguments, self.named)
        return made if made is not None else LiteralElement(text)

    def _arguments(self) -> list[Argument]:
        """`($a, type($b), ref($c), operands)`; none when no parenthesis follows."""
        if self._next() != "(" or self.tokens[self.position][0] == "literal":
            return []
        found: list[Argument] = []
        kind = ""
        depth = 0
        while True:
            token_kind, text = self.tokens[self.position]
            self.position += 1
            depth += (text == "(") - (text == ")")
            if depth == 0:
                return found
            if text in ("type", "ref", "qualified"):
                kind = text
            elif token_kind in ("variable", "word"):
                found.append(Argument(kind or "variable", text.lstrip("$")))
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
        """`(...)?` or `(...):(...)?` at the next token; None when the parenthesis is a literal."""
        closing = self._closing(self.position)
        following = [text for _, text in self.tokens[closing + 1 : closing + 3]]
        if following[:1] == ["?"]:
            inside = self._inside(closing)
            self.position = closing + 2
            return self._made(inside, [])
        if following == [":", "("]:
            last = self._closing(closing + 2)
            if [text for _, text in self.tokens[last + 1 : last + 2]] != ["?"]:
                return None
            inside = self._inside(closing)
            self.position = closing + 2
            otherwise = self._inside(last)
            self.position = last + 2
            return self._made(inside, otherwise)
        return None

    def _inside(self, closing: int) -> list[tuple[Directive, bool]]:
        self.position += 1
        return self._sequence(closing)

    def _made(self, inside: list[tuple[Directive, bool]], otherwise: list[tuple[Directive, bool]]) -> OptionalElement:
        anchors = [element for element, marked in inside if marked]
        if len(anchors) != 1:
            raise ValueError(f"{self.definition.name}: a group needs one element marked ^: {self.assembly!r}")
        return OptionalElement([element for element, _ in inside], anchors[0], [element for element, _ in otherwise])
