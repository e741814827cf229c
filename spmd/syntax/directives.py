"""Directives: the elements of an op's pretty form, and the table of custom directives.

A directive parses its element into an OperationState and prints it again. Spaces follow from punctuation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spmd.dialects.core import OpDef
from spmd.ir import Op

if TYPE_CHECKING:
    from spmd.syntax.op_parser import OperationParser
    from spmd.syntax.operand_parser import OperationState
    from spmd.syntax.printer import Printer

#: Attributes with the number of values of each variadic operand or result, which a pretty form implies.
SEGMENTS = ("operandSegmentSizes", "resultSegmentSizes")


@dataclass(frozen=True)
class Argument:
    """An argument of a directive: `$name`, `type($name)`, `ref($name)`, or a word such as operands."""

    kind: str
    name: str


class Directive:
    """One element of a form."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        """Parse the element; errors are raised through `parser`."""
        raise NotImplementedError

    def print(self, printer: Printer, op: Op) -> str:
        """Return the element's text."""
        raise NotImplementedError

    def present(self, op: Op) -> bool:
        """Return whether the element, marked ^, has anything to print."""
        return True

    def begins(self, parser: OperationParser) -> bool:
        """Return whether the element may start at the next token."""
        return False


class PlainForm(Directive):
    """A custom directive that needs neither the op's declaration nor arguments."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        pass


class WholeForm(Directive):
    """The form of all that follows an op's name."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.definition = definition


#: Custom directives by name: made from the op's declaration and the directive's arguments.
CUSTOM: dict[str, Callable[[OpDef, list[Argument]], Directive]] = {}


def custom(name: str) -> Callable[[type[Directive]], type[Directive]]:
    """Register the decorated class as directive `custom<name>`. It is constructed as `cls(definition, arguments)`."""

    def add(cls: type[Directive]) -> type[Directive]:
        if name in CUSTOM:
            raise ValueError(f"custom<{name}> is defined twice")
        CUSTOM[name] = cls
        return cls

    return add


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
    """Return the printer of each element with the space before it."""
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

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if parser.tokens[parser.position] == self.text:
            parser.position += 1
        else:
            parser.expect(self.text)

    def print(self, printer: Printer, op: Op) -> str:
        return self.text

    def begins(self, parser: OperationParser) -> bool:
        return parser.at(self.text)


class WhitespaceElement(LiteralElement):
    """`` ` ` `` or nothing: printed, not parsed."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
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

    def begins(self, parser: OperationParser) -> bool:
        if not self.first.begins(parser):
            return False
        tokens, position = parser.tokens, parser.position
        # The second keyword distinguishes groups that begin with the same comma.
        if len(self.literals) > 1 and self.literals[1].isidentifier():
            return tokens[position + 1 : position + 2] == [self.literals[1]]
        return True

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        for element in self.elements if self.begins(parser) else self.otherwise:
            element.parse(parser, state)

    def pieces(self, spacing: Spacing) -> Piece:
        start = Spacing(spacing.space, spacing.punctuation)
        inner = spaced(self.elements, spacing)
        other = spaced(self.otherwise, start)

        def piece(printer: Printer, op: Op) -> str:
            return "".join(part(printer, op) for part in (inner if self.anchor.present(op) else other))

        return piece
