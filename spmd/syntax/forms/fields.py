"""Attributes with their own syntax."""

from __future__ import annotations

import re

from spmd.dialects.core import OpDef
from spmd.ir import Op
from spmd.syntax.directives import Argument, Directive, custom
from spmd.syntax.elements import note_size
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer

_FORMAT = re.compile(r"e(\d+)m(\d+)", re.ASCII)
_INT32 = 2**31 - 1


@custom("SliceRanges")
class SliceRanges(Directive):
    """`[start:limit:stride, ...]`; a stride of 1 may be left out."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.names = tuple(argument.name for argument in arguments)

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        token = parser.tokens[parser.position]
        shorthand = _RANGES.get(token) if len(token) > 1 else None
        if shorthand is None:
            ranges = self._read(parser)
            columns = tuple(zip(*ranges, strict=True)) if ranges else ((), (), ())
            shorthand = columns
            if token[:1] == "[" and len(token) > 1 and len(_RANGES) < 10_000:
                _RANGES[token] = columns
        else:
            parser.position += 1
        for name, values in zip(self.names, shorthand, strict=True):
            state.attributes[name] = values

    def _read(self, parser: OperationParser) -> list[tuple[int, int, int]]:
        parser.expect("[")
        ranges: list[tuple[int, int, int]] = []
        for _ in parser.items("]"):
            start = parser.parse_int64()
            parser.expect(":")
            limit = parser.parse_int64()
            ranges.append((start, limit, parser.parse_int64() if parser.consume_if(":") else 1))
        return ranges

    def print(self, printer: Printer, op: Op) -> str:
        starts, limits, strides = (op[name] for name in self.names)
        if not len(starts) == len(limits) == len(strides):
            return printer.decline()
        ranges = (f"{a}:{b}" + (f":{c}" if c != 1 else "") for a, b, c in zip(starts, limits, strides, strict=True))
        return f"[{', '.join(ranges)}]"


_RANGES: dict[str, tuple[tuple[int, ...], ...]] = {}


@custom("VariadicOperandWithAttribute")
class VariadicOperandWithAttribute(Directive):
    """Operands, each followed by a comma."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        count = 0
        while parser.tokens[parser.position][:1] == "%":
            parser.parse_operand(state)
            parser.expect(",")
            count += 1
        note_size(state, self.name, count)

    def print(self, printer: Printer, op: Op) -> str:
        values = op.operand_group(self.name)
        return printer.names(values) + "," if values else printer.decline()


@custom("CustomCallTarget")
class CustomCallTarget(Directive):
    """`@target`: a string written as a symbol."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        state.attributes[self.name] = parser.parse_symbol()

    def print(self, printer: Printer, op: Op) -> str:
        return printer.symbol(op[self.name])


@custom("ExponentMantissa")
class ExponentMantissa(Directive):
    """`e5m10`."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.names = tuple(argument.name for argument in arguments)

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        position = parser.position
        word = parser.parse_keyword("a format such as e5m10")
        match = _FORMAT.fullmatch(word)
        if match is None:
            parser.fail(f"expected exponent mantissa in format e#m#, saw {word}", position)
        for name, part, digits in zip(self.names, ("exponent", "mantissa"), match.groups(), strict=True):
            if len(digits) > 10 or int(digits) > _INT32:
                parser.fail(f"unable to parse {part} '{digits[:40]}'", position)
            state.attributes[name] = int(digits)

    def print(self, printer: Printer, op: Op) -> str:
        return f"e{op[self.names[0]]}m{op[self.names[1]]}"
