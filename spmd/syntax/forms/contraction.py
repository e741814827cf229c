"""Dimension numbers and precision of dot products."""

from __future__ import annotations

from spmd.dialects.core import OpDef
from spmd.dialects.structs import (
    DotAlgorithmAttr,
    DotDimensionNumbersAttr,
)
from spmd.ir import AttributeValue, Op
from spmd.syntax.directives import Argument, Directive, custom
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer


@custom("DotDimensionNumbers")
class DotDimensions(Directive):
    """`batching_dims = [0] x [0], contracting_dims = [2] x [1]`; batching_dims is omitted when empty."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        batching: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        if parser.consume_if("batching_dims") or parser.consume_if("batch_dims"):
            batching = self._pair(parser)
            parser.expect(",")
        parser.expect("contracting_dims")
        contracting = self._pair(parser)
        state.attributes[self.name] = DotDimensionNumbersAttr(batching[0], batching[1], *contracting)

    def _pair(self, parser: OperationParser) -> tuple[tuple[int, ...], tuple[int, ...]]:
        parser.expect("=")
        left = parser.parse_integer_list()
        parser.expect("x")
        return left, parser.parse_integer_list()

    def print(self, printer: Printer, op: Op) -> str:
        numbers = op[self.name]
        contracting = _list(numbers.lhs_contracting_dimensions), _list(numbers.rhs_contracting_dimensions)
        text = f"contracting_dims = {contracting[0]} x {contracting[1]}"
        if numbers.lhs_batching_dimensions or numbers.rhs_batching_dimensions:
            batching = f"{_list(numbers.lhs_batching_dimensions)} x {_list(numbers.rhs_batching_dimensions)}"
            text = f"batching_dims = {batching}, {text}"
        return text


def _list(values: AttributeValue) -> str:
    return f"[{', '.join(map(str, values))}]"


@custom("PrecisionConfig")
@custom("PrecisionConfigAndAlgorithm")
class PrecisionConfigAndAlgorithm(Directive):
    """`, precision = [DEFAULT, HIGH], algorithm = <...>`, both optional."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.precision = arguments[0].name
        self.kind = definition.attribute_table[self.precision].kind
        self.algorithm = arguments[1].name if len(arguments) > 1 else None

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if parser.tokens[parser.position] != ",":
            return
        parser.position += 1
        if self.algorithm is None or parser.tokens[parser.position] != "algorithm":
            if not parser.consume_if("precision"):
                parser.expected("'precision'")
            parser.expect("=")
            state.attributes[self.precision] = self._precisions(parser)
            if self.algorithm is None or not parser.consume_if(","):
                return
        parser.expect("algorithm")
        parser.expect("=")
        state.attributes[self.algorithm] = (
            parser.parse_attribute()
            if parser.tokens[parser.position][:1] == "#"
            else parser.parse_struct(DotAlgorithmAttr)
        )

    def _precisions(self, parser: OperationParser) -> tuple[str, ...]:
        parser.expect("[")
        texts: list[str] = []
        for _ in parser.items("]"):
            token = parser.tokens[parser.position]
            if token not in _PRECISIONS:
                parser.expected("one of: DEFAULT, HIGH, HIGHEST")
            texts.append(token)
            parser.position += 1
        return tuple(texts)

    def print(self, printer: Printer, op: Op) -> str:
        text = ""
        precision = op.attributes.get(self.precision)
        if precision is not None:
            text = f", precision = [{', '.join(precision)}]"
        algorithm = op.attributes.get(self.algorithm) if self.algorithm else None
        return text + (f", algorithm = {printer.stripped(algorithm)}" if algorithm is not None else "")


_PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")
