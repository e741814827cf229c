"""Attributes written in a way of their own."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from spmd.attributes import Attribute
from spmd.dialects.core import OpDef
from spmd.dialects.structs import (
    AxisRef,
    ConvDimensionNumbers,
    DotAlgorithm,
    DotDimensionNumbers,
    Mesh,
    MeshAxis,
    ResultAccuracy,
    SubAxisInfo,
)
from spmd.ir import Op
from spmd.syntax.assembly import Argument, Directive, custom
from spmd.syntax.attribute_cursor import AttributeCursor, attribute_parser
from spmd.syntax.elements import note_size

if TYPE_CHECKING:
    from spmd.syntax.operand_cursor import Pending
    from spmd.syntax.parser import Parser
    from spmd.syntax.printer import Printer

_FORMAT = re.compile(r"e(\d+)m(\d+)", re.ASCII)
_INT32 = 2**31 - 1


@custom("SliceRanges")
class SliceRanges(Directive):
    """`[start:limit:stride, ...]`; a stride of 1 may be left out."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.names = tuple(argument.name for argument in arguments)

    def parse(self, parser: Parser, pending: Pending) -> None:
        token = parser.tokens[parser.position]
        found = _RANGES.get(token) if len(token) > 1 else None
        if found is None:
            ranges = self._read(parser)
            columns = tuple(zip(*ranges, strict=True)) if ranges else ((), (), ())
            found = columns
            if token[:1] == "[" and len(token) > 1 and len(_RANGES) < 10_000:
                _RANGES[token] = columns
        else:
            parser.position += 1
        for name, values in zip(self.names, found, strict=True):
            pending.attributes[name] = values

    def _read(self, parser: Parser) -> list[tuple[int, int, int]]:
        parser.expect("[")
        ranges: list[tuple[int, int, int]] = []
        while not parser.take("]"):
            start = parser.int64()
            parser.expect(":")
            limit = parser.int64()
            ranges.append((start, limit, parser.int64() if parser.take(":") else 1))
            if not parser.take(","):
                parser.expect("]")
                break
        return ranges

    def print(self, printer: Printer, op: Op) -> str:
        starts, limits, strides = (op[name] for name in self.names)
        if not len(starts) == len(limits) == len(strides):
            return printer.decline()
        ranges = (f"{a}:{b}" + (f":{c}" if c != 1 else "") for a, b, c in zip(starts, limits, strides, strict=True))
        return f"[{', '.join(ranges)}]"


_RANGES: dict[str, Any] = {}


@custom("VariadicOperandWithAttribute")
class VariadicOperandWithAttribute(Directive):
    """Operands, each with a comma behind it."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def parse(self, parser: Parser, pending: Pending) -> None:
        count = 0
        while parser.tokens[parser.position][:1] == "%":
            parser.operand(pending)
            parser.expect(",")
            count += 1
        note_size(pending, self.name, count)

    def print(self, printer: Printer, op: Op) -> str:
        values = op.operand_group(self.name)
        return printer.names(values) + "," if values else printer.decline()


@custom("CustomCallTarget")
class CustomCallTarget(Directive):
    """`@target`: a string written as a symbol."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def parse(self, parser: Parser, pending: Pending) -> None:
        pending.attributes[self.name] = parser.symbol()

    def print(self, printer: Printer, op: Op) -> str:
        return printer.symbol(op[self.name])


@custom("ExponentMantissa")
class ExponentMantissa(Directive):
    """`e5m10`."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.names = tuple(argument.name for argument in arguments)

    def parse(self, parser: Parser, pending: Pending) -> None:
        position = parser.position
        word = parser.keyword("a format such as e5m10")
        match = _FORMAT.fullmatch(word)
        if match is None:
            parser.fail(f"expected exponent mantissa in format e#m#, saw {word}", position)
        for name, part, digits in zip(self.names, ("exponent", "mantissa"), match.groups(), strict=True):
            if len(digits) > 10 or int(digits) > _INT32:
                parser.fail(f"unable to parse {part} '{digits[:40]}'", position)
            pending.attributes[name] = int(digits)

    def print(self, printer: Printer, op: Op) -> str:
        return f"e{op[self.names[0]]}m{op[self.names[1]]}"


# --- contraction -----------------------------------------------------------------------------------------------------


@custom("DotDimensionNumbers")
class DotDimensions(Directive):
    """`batching_dims = [0] x [0], contracting_dims = [2] x [1]`; no batching dimensions need no mention."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def parse(self, parser: Parser, pending: Pending) -> None:
        batching: tuple[tuple[int, ...], ...] = ((), ())
        if parser.take("batching_dims") or parser.take("batch_dims"):
            batching = self._pair(parser)
            parser.expect(",")
        parser.expect("contracting_dims")
        contracting = self._pair(parser)
        pending.attributes[self.name] = DotDimensionNumbers(*batching, *contracting)

    def _pair(self, parser: Parser) -> tuple[tuple[int, ...], tuple[int, ...]]:
        parser.expect("=")
        left = parser.integer_list()
        parser.expect("x")
        return left, parser.integer_list()

    def print(self, printer: Printer, op: Op) -> str:
        numbers = op[self.name]
        contracting = _list(numbers.lhs_contracting_dimensions), _list(numbers.rhs_contracting_dimensions)
        text = f"contracting_dims = {contracting[0]} x {contracting[1]}"
        if numbers.lhs_batching_dimensions or numbers.rhs_batching_dimensions:
            batching = f"{_list(numbers.lhs_batching_dimensions)} x {_list(numbers.rhs_batching_dimensions)}"
            text = f"batching_dims = {batching}, {text}"
        return text


def _list(values: Any) -> str:
    return f"[{', '.join(map(str, values))}]"


@custom("PrecisionConfig")
@custom("PrecisionConfigAndAlgorithm")
class PrecisionConfigAndAlgorithm(Directive):
    """`, precision = [DEFAULT, HIGH], algorithm = <...>`, both optional."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.precision = arguments[0].name
        self.kind = definition.attribute_table[self.precision].kind
        self.algorithm = arguments[1].name if len(arguments) > 1 else None

    def parse(self, parser: Parser, pending: Pending) -> None:
        if parser.tokens[parser.position] != ",":
            return
        parser.position += 1
        if self.algorithm is None or parser.tokens[parser.position] != "algorithm":
            if not parser.take("precision"):
                parser.expected("'precision'")
            parser.expect("=")
            pending.attributes[self.precision] = self._precisions(parser)
            if self.algorithm is None or not parser.take(","):
                return
        parser.expect("algorithm")
        parser.expect("=")
        pending.attributes[self.algorithm] = (
            parser.attribute() if parser.tokens[parser.position][:1] == "#" else parser.struct(DotAlgorithm)
        )

    def _precisions(self, parser: Parser) -> tuple[str, ...]:
        parser.expect("[")
        found: list[str] = []
        while not parser.take("]"):
            token = parser.tokens[parser.position]
            if token not in _PRECISIONS:
                parser.expected("one of: DEFAULT, HIGH, HIGHEST")
            found.append(token)
            parser.position += 1
            if not parser.take(","):
                parser.expect("]")
                break
        return tuple(found)

    def print(self, printer: Printer, op: Op) -> str:
        text = ""
        precision = op.attributes.get(self.precision)
        if precision is not None:
            text = f", precision = [{', '.join(precision)}]"
        algorithm = op.attributes.get(self.algorithm) if self.algorithm else None
        return text + (f", algorithm = {printer.stripped(algorithm)}" if algorithm is not None else "")


_PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")

_Places = dict[str, int]


class _Dimensions:
    """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""

    def __init__(self, cursor: AttributeCursor) -> None:
        self.cursor = cursor

    def read(self) -> ConvDimensionNumbers:
        cursor = self.cursor
        input_spatial, input_other = self._side("bf")
        cursor.expect("x")
        kernel_spatial, kernel_other = self._side("io")
        cursor.expect("->")
        output_spatial, output_other = self._side("bf")
        return ConvDimensionNumbers(
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
        given = cursor.struct_fields(ConvDimensionNumbers)
        absent: dict[str, Any] = {
            field.name: 0 if field.type == "int" else () for field in fields(ConvDimensionNumbers)
        }
        return ConvDimensionNumbers(**(absent | given))
    made = _Dimensions(cursor).read()
    cursor.expect(">")
    return made


def format_dimensions(numbers: ConvDimensionNumbers) -> str | None:
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

    def parse(self, parser: Parser, pending: Pending) -> None:
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

    def parse(self, parser: Parser, pending: Pending) -> None:
        while parser.tokens[parser.position] != "}":
            word = parser.tokens[parser.position]
            if word not in self.names or self.names[word] in pending.attributes:
                parser.expected(f"one of {', '.join(self.WORDS)}, once")
            parser.position += 1
            parser.expect("=")
            pending.attributes[self.names[word]] = self._value(parser, word)
            if not parser.take(","):
                break

    def _value(self, parser: Parser, word: str) -> Any:
        if word == "pad":
            return self._padding(parser)
        if word == "reverse":
            return _flags(parser)
        return parser.integer_list()

    def _padding(self, parser: Parser) -> np.ndarray[Any, Any]:
        parser.expect("[")
        rows: list[tuple[int, ...]] = []
        while not parser.take("]"):
            position = parser.position
            rows.append(parser.integer_list())
            if len(rows[-1]) != 2:
                parser.fail(f"Expected array with 2 elements, got {len(rows[-1])} elements instead", position)
            if not parser.take(","):
                parser.expect("]")
                break
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


def _flags(parser: Parser) -> tuple[bool, ...]:
    parser.expect("[")
    found: list[bool] = []
    while not parser.take("]"):
        if parser.take("true"):
            found.append(True)
        elif parser.take("false"):
            found.append(False)
        else:
            found.append(parser.int64("true or false") != 0)
        if not parser.take(","):
            parser.expect("]")
            break
    return tuple(found)


# --- structured attributes -------------------------------------------------------------------------------------------


@attribute_parser("stablehlo", "result_accuracy")
def _result_accuracy(cursor: AttributeCursor) -> Attribute:
    """`<atol = 1.0e-5, rtol = 0.0, ulps = 1, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>`."""
    given = cursor.struct_fields(ResultAccuracy, {"mode": _accuracy_mode})
    return ResultAccuracy(**given)


def _accuracy_mode(cursor: AttributeCursor) -> str:
    if cursor.tokens[cursor.position][:1] == "#":
        position = cursor.position
        made = cursor.attribute()
        value = getattr(made, "value", None)
        if not isinstance(value, str):
            cursor.fail("expected #stablehlo.result_accuracy_mode<...>", position)
        return value
    return cursor.string() if cursor.tokens[cursor.position][:1] == '"' else cursor.keyword("an accuracy mode")


@attribute_parser("stablehlo", "sub_axis_info")
def _sub_axis_info(cursor: AttributeCursor) -> Attribute:
    """`(pre_size)size`, with or without brackets around it."""
    bracketed = cursor.take("<")
    cursor.expect("(")
    pre_size = cursor.int64()
    cursor.expect(")")
    made = SubAxisInfo(pre_size, cursor.int64())
    if bracketed:
        cursor.expect(">")
    return made


@attribute_parser("stablehlo", "axis_ref")
def _axis_ref(cursor: AttributeCursor) -> Attribute:
    """`<name = "x", sub_axis_info = (1)2>`."""
    return AxisRef(
        **cursor.struct_fields(AxisRef, {"name": AttributeCursor.string, "sub_axis_info": _stripped_sub_axis})
    )


def _stripped_sub_axis(cursor: AttributeCursor) -> Any:
    return cursor.attribute() if cursor.tokens[cursor.position][:1] == "#" else _sub_axis_info(cursor)


@attribute_parser("stablehlo", "mesh")
def _mesh(cursor: AttributeCursor) -> Attribute:
    """`<axes = [<name = "x", size = 2>], device_ids = dense<...> : tensor<...>>`."""
    return Mesh(**cursor.struct_fields(Mesh, {"axes": _mesh_axes, "device_ids": AttributeCursor.dense_integers}))


def _mesh_axes(cursor: AttributeCursor) -> tuple[MeshAxis, ...]:
    cursor.expect("[")
    axes: list[MeshAxis] = []
    while not cursor.take("]"):
        stripped = cursor.tokens[cursor.position][:1] != "#"
        position = cursor.position
        axis = cursor.struct(MeshAxis) if stripped else cursor.attribute()
        if not isinstance(axis, MeshAxis):
            cursor.fail("expected a mesh axis", position)
        axes.append(axis)
        if not cursor.take(","):
            cursor.expect("]")
            break
    return tuple(axes)
