"""Dimension numbers and windows of convolutions."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from spmd.dialects.core import OpDef
from spmd.dialects.structs import (
    ConvDimensionNumbersAttr,
)
from spmd.ir import AttributeValue, Op
from spmd.ir.attributes import Attribute
from spmd.support.arrays import Array
from spmd.syntax.attribute_parser import AttributeParser, attribute_parser
from spmd.syntax.directives import Argument, Directive, custom
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer

_Places = dict[str, int]


class _Dimensions:
    """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""

    def __init__(self, parser: AttributeParser) -> None:
        self.parser = parser

    def read(self) -> ConvDimensionNumbersAttr:
        parser = self.parser
        input_spatial, input_other = self._side("bf")
        parser.expect("x")
        kernel_spatial, kernel_other = self._side("io")
        parser.expect("->")
        output_spatial, output_other = self._side("bf")
        return ConvDimensionNumbersAttr(
            input_other["b"], input_other["f"], input_spatial,
            kernel_other["i"], kernel_other["o"], kernel_spatial,
            output_other["b"], output_other["f"], output_spatial,
        )  # fmt: skip

    def _side(self, letters: str) -> tuple[tuple[int, ...], _Places]:
        parser = self.parser
        parser.expect("[")
        spatial: dict[int, int] = {}
        other: _Places = {}
        index = 0
        while True:
            token = parser.tokens[parser.position]
            if token[:1].isdigit() or token[:1] == "-":
                self._spatial(spatial, index)
            elif token in letters and len(token) == 1 and token not in other:
                other[token] = index
                parser.position += 1
            else:
                parser.expected(f"a dimension, one of {', '.join(letters)} or a number")
            index += 1
            if not parser.consume_if(","):
                break
        missing = [letter for letter in letters if letter not in other]
        if missing:
            parser.fail(f"Expected dimensions {', '.join(missing)} not specified")
        lacking = [number for number in range(len(spatial)) if number not in spatial]
        if lacking:
            parser.fail(f"Expected spatial dimensions {', '.join(map(str, lacking[:10]))} not specified")
        parser.expect("]")
        return tuple(spatial[number] for number in range(len(spatial))), other

    def _spatial(self, spatial: dict[int, int], index: int) -> None:
        position = self.parser.position
        number = self.parser.parse_int64()
        if number < 0:
            self.parser.fail(f"Unexpected dimension {number}", position)
        if number in spatial:
            self.parser.fail(f"Duplicate entries for spatial dimension {number}", position)
        spatial[number] = index


@attribute_parser("stablehlo", "conv")
def _conv(parser: AttributeParser) -> Attribute:
    parser.expect("<")
    if parser.tokens[parser.position] == "raw":
        # After `raw` comes a struct whose opening bracket has been consumed already.
        parser.tokens[parser.position] = "<"
        fields_here = parser.parse_struct_fields(ConvDimensionNumbersAttr)
        absent: dict[str, AttributeValue] = {
            field.name: 0 if field.type == "int" else () for field in fields(ConvDimensionNumbersAttr)
        }
        return ConvDimensionNumbersAttr(**(absent | fields_here))
    attribute = _Dimensions(parser).read()
    parser.expect(">")
    return attribute


def format_dimensions(numbers: ConvDimensionNumbersAttr) -> str | None:
    """Return the lettered form; None for dimension numbers that are no permutation, which need the raw form."""
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

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if parser.tokens[parser.position][:1] == "#":
            parser.file(state, self.name, parser.parse_attribute())
        else:
            state.attributes[self.name] = _Dimensions(parser).read()

    def print(self, printer: Printer, op: Op) -> str:
        return format_dimensions(op[self.name]) or printer.decline()


@custom("WindowAttributes")
class WindowAttributes(Directive):
    """`stride = [1, 1], pad = [[0, 0], [1, 1]], lhs_dilate = ..., rhs_dilate = ..., reverse = [...]`, any of them."""

    WORDS = ("stride", "pad", "lhs_dilate", "rhs_dilate", "reverse")

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.names = dict(zip(self.WORDS, (argument.name for argument in arguments), strict=True))

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        seen = set[str]()
        while parser.tokens[parser.position] != "}":
            word = parser.tokens[parser.position]
            if word not in self.names or word in seen:
                parser.expected(f"one of {', '.join(self.WORDS)}, once")
            seen.add(word)
            parser.position += 1
            parser.expect("=")
            value = self._value(parser, word)
            if len(value):  # an empty list means the default
                state.attributes[self.names[word]] = value
            if not parser.consume_if(","):
                break

    def _value(self, parser: OperationParser, word: str) -> tuple[int, ...] | Array:
        if word == "pad":
            return self._padding(parser)
        if word == "reverse":
            return _flags(parser)
        return parser.parse_integer_list()

    def _padding(self, parser: OperationParser) -> Array:
        parser.expect("[")
        rows: list[tuple[int, ...]] = []
        for _ in parser.items("]"):
            position = parser.position
            rows.append(parser.parse_integer_list())
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


def _flags(parser: OperationParser) -> tuple[bool, ...]:
    parser.expect("[")
    flags: list[bool] = []
    for _ in parser.items("]"):
        if parser.consume_if("true"):
            flags.append(True)
        elif parser.consume_if("false"):
            flags.append(False)
        else:
            flags.append(parser.parse_int64("true or false") != 0)
    return tuple(flags)
