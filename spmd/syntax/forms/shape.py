"""Forms of ops of the shape and arith dialects."""

from __future__ import annotations

import numpy as np

from spmd import types as t
from spmd.ir import Op
from spmd.ir.attributes import DenseAttr
from spmd.syntax.directives import WholeForm, custom
from spmd.syntax.elements import type_sequence
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer


@custom("ArithSelect")
class ArithSelect(WholeForm):
    """`%condition, %true, %false : type`, the condition's type first when it is not i1."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        parser.parse_operand_list(state)
        if parser.tokens[parser.position] == "{":
            parser.parse_entries(state)
        parser.expect(":")
        position = parser.position
        types = type_sequence(parser)
        if len(types) not in (1, 2):
            parser.fail("expected the type of the condition and that of the values", position)
        condition = types[0] if len(types) == 2 else t.I1
        state.operand_types = (condition, types[-1], types[-1])
        state.result_types = (types[-1],)

    def print(self, printer: Printer, op: Op) -> str:
        condition, *rest = op.operand_types
        dictionary = printer.dictionary(op, ())
        shown = "" if condition is t.I1 else f"{condition}, "
        return f" {printer.names(op.operands)}{' ' + dictionary if dictionary else ''} : {shown}{printer.type(rest[0])}"


@custom("ConstShape")
class ConstShape(WholeForm):
    """`[1, 2] : tensor<2xindex>`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if parser.tokens[parser.position] == "{":
            parser.parse_entries(state)
        sizes = parser.parse_integer_list()
        parser.expect(":")
        state.result_types = (parser.parse_type(),)
        extents = np.array(sizes, dtype=np.int64)
        extents.flags.writeable = False
        parser.file(state, "shape", DenseAttr(extents, t.TensorType((len(sizes),), t.INDEX)))

    def print(self, printer: Printer, op: Op) -> str:
        value = op["shape"]
        extents = value.array if isinstance(value, DenseAttr) else np.asarray(value)
        dictionary = printer.dictionary(op, {"shape"})
        shown = ", ".join(map(str, extents.tolist()))
        return f"{' ' + dictionary if dictionary else ''} [{shown}] : {op.results[0].type}"


@custom("Assuming")
class Assuming(WholeForm):
    """`%witness -> (types) {...}`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        parser.parse_operand(state)
        state.operand_types = (t.OpaqueType("!shape.witness"),)
        state.result_types = parser.parse_result_types() if parser.consume_if("->") else ()
        state.regions += (parser.parse_region(),)
        if parser.tokens[parser.position] == "{":
            parser.parse_entries(state)

    def print(self, printer: Printer, op: Op) -> str:
        results = f" -> ({printer.types(op.result_types)})" if op.results else ""
        dictionary = printer.dictionary(op, ())
        return f" {printer.names(op.operands)}{results} {printer.region(op.regions[0])}" + (
            f" {dictionary}" if dictionary else ""
        )
