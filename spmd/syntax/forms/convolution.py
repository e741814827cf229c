"""Dimension numbers and windows of convolutions."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from spmd.attributes import Attribute
from spmd.dialects.core import OpDef
from spmd.dialects.structs import (
    ConvDimensionNumbersAttr,
)
from spmd.ir import Op
from spmd.syntax.assembly import Argument, Directive, custom
from spmd.syntax.attribute_cursor import AttributeCursor, attribute_parser

if TYPE_CHECKING:
    from spmd.syntax.op_cursor import OpCursor
    from spmd.syntax.operand_cursor import OperationState
    from spmd.syntax.printer import Printer

_Places = dict[str, int]


class _Dimensions:
    """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""

    def __init__(self, cursor: AttributeCursor) -> None:
        self.cursor = cursor

    def read(self) -> ConvDimensionNumbersAttr:
        cursor = self.cursor
        input_spatial, input_other = self._side("bf")
        cursor.expect("x")
        kernel_spatial, kernel_other = self._side("io")
        cursor.expect("->")
        output_spatial, output_other = self._side("bf")
        return ConvDimensionNumbersAttr(
            input_other["b"], input_other["f"], input_spatial,
            kernel_other["i"], kernel_other["o"], kernel_spatial,
            output_other["b"], output_other["f"], output_spatial,
        )  # fmt: skip

    def _side(self, letters: str) -> tuple[tuple[int, ...], _Places]:
        cursor = self.cursor
        cursor.expect("[")
        spatial: dict[int, int] = {}
        other: _Places = {}
        index = 0
        while True:
            token = cursor.tokens[cursor.position]
            if token[:1].isdigit() or token[:1] == "-":
                self._spatial(spatial, index)
            elif token in letters and len(token) == 1 and token not in other:
                other[token] = index
                cursor.position += 1
            else:
                cursor.expected(f"a dimension, one of {', '.join(letters)} or a number")
            index += 1
            if not cursor.take(","):
                break
        missing = [letter for letter in letters if letter not in other]
        if missing:
            cursor.fail(f"Expected dimensions {', '.join(missing)} not specified")
        lacking = [number for number in range(len(spatial)) if number not in spatial]
        if lacking:
            cursor.fail(f"Expected spatial dimensions {', '.join(map(str, lacking[:10]))} not specified")
        cursor.expect("]")
        return tuple(spatial[number] for number in range(len(spatial))), other

    def _spatial(self, spatial: dict[int, int], index: int) -> None:
        position = self.cursor.position
        number = self.cursor.int64()
        if number < 0:
            self.cursor.fail(f"Unexpected dimension {number}", position)
        if number in spatial:
            self.cursor.fail(f"Duplicate entries for spatial dimension {number}", position)
        spatial[number] = index


@attribute_parser("stablehlo", "conv")
def _conv(cursor: AttributeCursor) -> Attribute:
    cursor.expect("<")
    if cursor.tokens[cursor.position] == "raw":
        # Behind `raw` stands a struct whose opening bracket has been read already.
        cursor.tokens[cursor.position] = "<"
        given = cursor.struct_fields(ConvDimensionNumbersAttr)
        absent: dict[str, Any] = {
            field.name: 0 if field.type == "int" else () for field in fields(ConvDimensionNumbersAttr)
        }
        return ConvDimensionNumbersAttr(**(absent | given))
    made = _Dimensions(cursor).read()
    cursor.expect(">")
    return made


def format_dimensions(numbers: ConvDimensionNumbersAttr) -> str | None:
    """The lettered form; None for dimension numbers that are no permutation, which only the raw form can tell."""
    sides = [
        (
            (numbers.input_batch_dimension, "b"),
            (numbers.input_feature_dimension, "f"),
            numbers.input_spatial_dimensions,
        ),
        (
            (numbers.kernel_input_feature_dimension, "i"),
            (numbers.kernel_output_feature_dimension, "o"),
            numbers.kernel_spatial_dimensions,
        ),
        (
            (numbers.output_batch_dimension, "b"),
            (numbers.output_feature_dimension, "f"),
            numbers.output_spatial_dimensions,
        ),
    ]
    texts = []
    for first, second, spatial in sides:
        places = dict([first, second]) | {place: str(number) for number, place in enumerate(spatial)}
        if sorted(places) != list(range(len(spatial) + 2)):
            return None
        texts.append("[" + ", ".join(places[index] for index in range(len(places))) + "]")
    return f"{texts[0]}x{texts[1]}->{texts[2]}"


@custom("ConvolutionDimensions")
class ConvolutionDimensions(Directive):
    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def parse(self, parser: OpCursor, pending: OperationState) -> None:
        if parser.tokens[parser.position][:1] == "#":
            parser.file(pending, self.name, parser.attribute())
        else:
            pending.attributes[self.name] = _Dimensions(parser).read()

    def print(self, printer: Printer, op: Op) -> str:
        return format_dimensions(op[self.name]) or printer.decline()


@custom("WindowAttributes")
class WindowAttributes(Directive):
    """`stride = [1, 1], pad = [[0, 0], [1, 1]], lhs_dilate = ..., rhs_dilate = ..., reverse = [...]`, any of them."""

    WORDS = ("stride", "pad", "lhs_dilate", "rhs_dilate", "reverse")

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.names = dict(zip(self.WORDS, (argument.name for argument in arguments), strict=True))

    def parse(self, parser: OpCursor, pending: OperationState) -> None:
        while parser.tokens[parser.position] != "}":
            word = parser.tokens[parser.position]
            if word not in self.names or self.names[word] in pending.attributes:
                parser.expected(f"one of {', '.join(self.WORDS)}, once")
            parser.position += 1
            parser.expect("=")
            pending.attributes[self.names[word]] = self._value(parser, word)
            if not parser.take(","):
                break

    def _value(self, parser: OpCursor, word: str) -> Any:
        if word == "pad":
            return self._padding(parser)
        if word == "reverse":
            return _flags(parser)
        return parser.integer_list()

    def _padding(self, parser: OpCursor) -> np.ndarray[Any, Any]:
        parser.expect("[")
        rows: list[tuple[int, ...]] = []
        for _ in parser.items("]"):
            position = parser.position
            rows.append(parser.integer_list())
            if len(rows[-1]) != 2:
                parser.fail(f"Expected array with 2 elements, got {len(rows[-1])} elements instead", position)
        return np.array(rows, dtype=np.int64).reshape(len(rows), 2)

    def print(self, printer: Printer, op: Op) -> str:
        parts = []
        for word, name in self.names.items():
            value = op.attributes.get(name)
            if value is None:
                continue
            if word == "pad":
                if value.ndim != 2 or value.shape[1] != 2:
                    return printer.decline()
                text = ", ".join(f"[{low}, {high}]" for low, high in value.tolist())
            elif word == "reverse":
                text = ", ".join("true" if flag else "false" for flag in value)
            else:
                text = ", ".join(map(str, value))
            parts.append(f"{word} = [{text}]")
        return ", ".join(parts)


def _flags(parser: OpCursor) -> tuple[bool, ...]:
    parser.expect("[")
    found: list[bool] = []
    for _ in parser.items("]"):
        if parser.take("true"):
            found.append(True)
        elif parser.take("false"):
            found.append(False)
        else:
            found.append(parser.int64("true or false") != 0)
    return tuple(found)
