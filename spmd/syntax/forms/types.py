"""Types after the colon, abbreviated where operands and results agree."""

from __future__ import annotations

from spmd import types as t
from spmd.errors import Diagnostic, ParseError
from spmd.ir import Op
from spmd.syntax.directives import PlainForm, custom
from spmd.syntax.elements import type_sequence
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer


def assign_signature(parser: OperationParser, state: OperationState, signature: t.FunctionType, position: int) -> None:
    """Take operand and result types from `(types) -> type`."""
    if len(signature.inputs) != len(state.operands):
        parser.fail(f"{len(state.operands)} operands present, but expected {len(signature.inputs)}", position)
    if len(signature.results) != 1:
        parser.fail("expected single output", position)
    state.operand_types = signature.inputs
    state.result_types = signature.results


@custom("SameOperandsAndResultType")
@custom("VariadicSameOperandsAndResultType")
class SameOperandsAndResultType(PlainForm):
    """One type for all operands and the result, or the whole signature."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        position = parser.position
        type = parser.parse_type()
        if type.__class__ is t.FunctionType:
            assign_signature(parser, state, type, position)
        else:
            state.operand_types = (type,) * len(state.operands)
            state.result_types = (type,)

    def print(self, printer: Printer, op: Op) -> str:
        type = op.results[0].type
        if all(operand.type is type for operand in op.operands):
            return printer.type(type)
        return printer.signature(op)


@custom("PairwiseOpType")
class PairwiseOpType(PlainForm):
    """A list of types, the same for operands and results."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        position = parser.position
        types = type_sequence(parser)
        if not types:
            parser.expected("a type list")
        if len(types) != len(state.operands):
            parser.fail(
                "number of operands and types do not match: "
                f"got {len(state.operands)} operands and {len(types)} types", position
            )  # fmt: skip
        state.operand_types = state.result_types = types

    def print(self, printer: Printer, op: Op) -> str:
        return printer.types(op.operand_types)


@custom("TupleOpType")
class TupleOpType(PlainForm):
    """The result's tuple type, which determines the operands'."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        position = parser.position
        type = parser.parse_type()
        if not isinstance(type, t.TupleType):
            parser.fail(f"expected a tuple type, got {type}", position)
        if len(type.types) != len(state.operands):
            parser.fail(
                "number of operands and types do not match: "
                f"got {len(state.operands)} operands and {len(type.types)} types", position
            )  # fmt: skip
        state.operand_types = type.types
        state.result_types = (type,)

    def print(self, printer: Printer, op: Op) -> str:
        return printer.type(op.results[0].type)


@custom("ComplexOpType")
class ComplexOpType(PlainForm):
    """The complex result's type, which determines that of both parts."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        position = parser.position
        type = parser.parse_type()
        if isinstance(type, t.FunctionType):
            assign_signature(parser, state, type, position)
            return
        part = real_type(type)
        if part is None:
            parser.fail(f"expected a tensor with complex element type, got {type}", position)
        state.operand_types = (part,) * len(state.operands)
        state.result_types = (type,)

    def print(self, printer: Printer, op: Op) -> str:
        type = op.results[0].type
        part = real_type(type)
        return printer.type(type) if all(operand.type is part for operand in op.operands) else printer.signature(op)


def real_type(type: t.Type) -> t.TensorType | None:
    """Return the type of the real part of a complex tensor; None for any other type."""
    if not isinstance(type, t.TensorType) or not isinstance(type.element_type, t.ElementType):
        return None
    return type.with_element_type(type.element_type.real) if type.element_type.is_complex else None


@custom("SelectOpType")
class SelectOpType(PlainForm):
    """The predicate's type and that of the rest, or the whole signature."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        position = parser.position
        types = type_sequence(parser)
        if len(types) == 1 and isinstance(types[0], t.FunctionType):
            assign_signature(parser, state, types[0], position)
        elif len(types) == 2:
            if len(state.operands) != 3:
                raise ParseError(
                    Diagnostic(state.location, f"expected 3 operands, got {len(state.operands)}", state.name)
                )
            state.operand_types = (types[0], types[1], types[1])
            state.result_types = (types[1],)
        else:
            parser.fail("expected functional type or list of two types", position)

    def print(self, printer: Printer, op: Op) -> str:
        result = op.results[0].type
        if op.operands[1].type is result and op.operands[2].type is result:
            return f"{printer.type(op.operands[0].type)}, {printer.type(result)}"
        return printer.signature(op)
