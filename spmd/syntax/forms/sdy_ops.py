"""Directives of the sdy dialect's ops."""

from __future__ import annotations

from spmd.dialects.core import OpDef
from spmd.ir import Op
from spmd.syntax.directives import Argument, Directive, custom
from spmd.syntax.forms.sdy_attributes import shardings
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer


class _Named(Directive):
    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        self.name = arguments[0].name

    def present(self, op: Op) -> bool:
        return op.attributes.get(self.name) is not None


@custom("StrippedShardings")
class StrippedShardings(_Named):
    """`[<@mesh, [{"x"}]>, ...]`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        state.attributes[self.name] = shardings(parser)

    def print(self, printer: Printer, op: Op) -> str:
        return str(op[self.name].format_list())


@custom("PropagationDirection")
@custom("ReductionOp")
class EnumWord(_Named):
    """The name of an enum's case; nothing where the attribute has its default."""

    def __init__(self, definition: OpDef, arguments: list[Argument]) -> None:
        super().__init__(definition, arguments)
        declared = definition.attribute_table[self.name]
        self.required, self.default = declared.required, declared.default
        self.cases = declared.kind.cases

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        token = parser.tokens[parser.position]
        if token in self.cases:
            state.attributes[self.name] = token
            parser.position += 1
        elif self.required:
            parser.expected(f"one of: {', '.join(self.cases)}")

    def print(self, printer: Printer, op: Op) -> str:
        case = op[self.name]
        return "" if not self.required and case == self.default else str(case)


@custom("RegionWithArguments")
class RegionWithArguments(_Named):
    """`(%arg0: type, ...) {...}`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        parser.expect("(")
        arguments = [parser.parse_argument() for _ in parser.items(")")]
        state.regions += (parser.parse_region(arguments, isolated=True, dialect="sdy"),)

    def print(self, printer: Printer, op: Op) -> str:
        region = op.region(self.name)
        names = printer.enter_arguments(region.block, "arg")
        header = ", ".join(printer.shown_arguments(names, region.block))
        return f"({header}) {printer.region(region, dialect='sdy', arguments=names)}"
