"""chlo.scan."""

from __future__ import annotations

from spmd.ir import Op
from spmd.syntax.directives import PlainForm, custom
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer


@custom("Scan")
class ScanForm(PlainForm):
    """`chlo.scan(%inputs) inits(%inits) dimension=0 attributes {...} {region} : type`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        inputs = self._operands(parser, state)
        parser.expect("inits")
        inits = self._operands(parser, state)
        parser.expect("dimension")
        parser.expect("=")
        state.attributes["dimension"] = parser.parse_int64()
        if parser.consume_if("attributes"):
            parser.parse_entries(state)
        state.regions += (parser.parse_region(isolated=True),)
        parser.expect(":")
        position = parser.position
        signature = parser.parse_function_type()
        if len(signature.inputs) != inputs + inits:
            parser.fail("operand types must match the number of inputs and inits", position)
        outputs = len(signature.results) - inits
        if outputs < 0:
            parser.fail("not enough result types to cover the required carries", position)
        state.operand_types, state.result_types = signature.inputs, signature.results
        state.attributes["operandSegmentSizes"] = (inputs, inits)
        state.attributes["resultSegmentSizes"] = (outputs, inits)

    def _operands(self, parser: OperationParser, state: OperationState) -> int:
        parser.expect("(")
        count = parser.parse_operand_list(state)
        parser.expect(")")
        return count

    def print(self, printer: Printer, op: Op) -> str:
        if not {"dimension", "operandSegmentSizes", "resultSegmentSizes"} <= op.attributes.keys():
            return printer.decline()
        inputs, inits = op.operand_group("inputs"), op.operand_group("inits")
        if tuple(op.attributes["resultSegmentSizes"]) != (len(op.results) - len(inits), len(inits)):
            return printer.decline()
        dictionary = printer.dictionary(op, {"dimension"})
        text = f"({printer.names(inputs)}) inits({printer.names(inits)}) dimension={op['dimension']}"
        text += f" attributes {dictionary}" if dictionary else ""
        return f"{text} {printer.region(op.regions[0])} : {printer.signature(op)}"
