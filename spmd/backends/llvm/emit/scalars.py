"""Scalar expressions as LLVM's instructions, on one lane or on a vector of any power of two lanes.

A renderer is a table from primitive to instruction. Each instruction rounds as its primitive says, on every width
alike, and none has a fast-math flag: lanes give the same bits as scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.scalar.expression import F32, I16, Expression, MachineType, Primitive, walk
from spmd.backends.llvm.emit.writer import Callee, FloatFunction, Writer, constant_text, llvm_type, suffix

P = Primitive

#: Instructions of two operands, of integers and of floats.
_BINARY: dict[Primitive, tuple[str, str]] = {
    P.ADD: ("add", "fadd"),
    P.SUB: ("sub", "fsub"),
    P.MUL: ("mul", "fmul"),
    P.DIV: ("", "fdiv"),
    P.REM: ("", "frem"),
    P.SDIV: ("sdiv", ""),
    P.UDIV: ("udiv", ""),
    P.SREM: ("srem", ""),
    P.UREM: ("urem", ""),
    P.AND: ("and", ""),
    P.OR: ("or", ""),
    P.XOR: ("xor", ""),
    P.SHL: ("shl", ""),
    P.LSHR: ("lshr", ""),
    P.ASHR: ("ashr", ""),
}
_INTRINSICS: dict[Primitive, str] = {
    P.SMAX: "smax",
    P.SMIN: "smin",
    P.UMAX: "umax",
    P.UMIN: "umin",
    P.CTPOP: "ctpop",
    P.ABS: "fabs",
    P.COPYSIGN: "copysign",
    P.FMA: "fma",
    P.SQRT: "sqrt",
    P.FLOOR: "floor",
    P.CEIL: "ceil",
    P.TRUNC: "trunc",
    P.RINT: "rint",
    P.MAXIMUM: "maximum",
    P.MINIMUM: "minimum",
}
_CASTS: dict[Primitive, str] = {
    P.TRUNCATE: "trunc",
    P.ZERO_EXTEND: "zext",
    P.SIGN_EXTEND: "sext",
    P.FLOAT_TRUNCATE: "fptrunc",
    P.FLOAT_EXTEND: "fpext",
    P.SIGNED_TO_FLOAT: "sitofp",
    P.UNSIGNED_TO_FLOAT: "uitofp",
    P.FLOAT_TO_SIGNED: "fptosi",
    P.FLOAT_TO_UNSIGNED: "fptoui",
    P.BITCAST: "bitcast",
}


#: Lanes that a function out of line takes at most; calls on more are several calls.
WIDEST_CALL = 16

Emit = Callable[[str], str]


def render(writer: Writer, expressions: Sequence[Expression], parameters: Sequence[str], width: int) -> list[str]:
    """Emit what computes `expressions` on `width` lanes; the names (or constants) of their values.

    `parameters` are the LLVM names of the values that stand at the parameters' indices, each of `width` lanes. Who
    renders in several steps with the same parameters keeps a `Renderer`, which writes nothing twice.
    """
    return Renderer(writer, width, parameters).render(expressions)


class Renderer:
    """Writes expressions of one set of parameters at one place; what stands already is not written again."""

    def __init__(self, writer: Writer, width: int, parameters: Sequence[str]) -> None:
        self.writer = writer
        self.width = width
        self._parameters = parameters
        self._names: dict[Expression, str] = {}

    def render(self, expressions: Sequence[Expression]) -> list[str]:
        for node in walk([each for each in expressions if each not in self._names], self._needed):
            if node not in self._names:
                self._names[node] = self._write(node)
        return [self._names[each] for each in expressions]

    def _needed(self, node: Expression) -> Sequence[Expression]:
        """What must stand before `node` is written."""
        return node.operands

    def _write(self, node: Expression) -> str:
        if node.primitive is P.PARAMETER:
            assert isinstance(node.attribute, int)
            return self._parameters[node.attribute]
        operands = [self._names[operand] for operand in node.operands]
        return render_node(node, operands, self.width, self.writer.emit, self.writer.callees)


def render_node(node: Expression, operands: Sequence[str], width: int, emit: Emit, callees: dict[str, Callee]) -> str:
    """Emit what computes one node, no parameter, on `width` lanes; the name (or constant) of its value.

    `operands` are names or constants of values of `width` lanes. `emit` writes an instruction and gives its name. The
    functions that are called are put in `callees`, by name: their `declaration` belongs in the module, and
    spmd.backends.llvm.emit.math_library has their code.
    """
    primitive = node.primitive
    if primitive is P.CONSTANT:
        return constant_text(node, width)
    typed = [f"{llvm_type(each.type, width)} {name}" for each, name in zip(node.operands, operands, strict=True)]
    if primitive.is_function:
        return _call(node, operands, width, emit, callees)
    if primitive in (P.FLOAT_TO_HALF, P.HALF_TO_FLOAT):
        return _half(primitive, typed[0], width, emit)
    return emit(_instruction(node, operands, typed, width))


def _instruction(node: Expression, operands: Sequence[str], typed: Sequence[str], width: int) -> str:
    primitive, type = node.primitive, llvm_type(node.type, width)
    if primitive in _BINARY:
        return f"{_BINARY[primitive][node.type.is_float]} {typed[0]}, {operands[1]}"
    if primitive in _INTRINSICS:
        return f"call {type} @llvm.{_INTRINSICS[primitive]}.{suffix(node.type, width)}({', '.join(typed)})"
    if primitive in _CASTS:
        return f"{_CASTS[primitive]} {typed[0]} to {type}"
    if primitive in (P.SELECT, P.RARELY):
        return f"select {', '.join(typed)}"
    if primitive in (P.COMPARE_INTEGER, P.COMPARE_FLOAT):
        instruction = "icmp" if primitive is P.COMPARE_INTEGER else "fcmp"
        return f"{instruction} {node.attribute} {typed[0]}, {operands[1]}"
    if primitive is P.NEG:
        return f"fneg {typed[0]}"
    assert primitive is P.CTLZ, primitive
    return f"call {type} @llvm.ctlz.{suffix(node.type, width)}({typed[0]}, i1 false)"


def _half(primitive: Primitive, typed: str, width: int, emit: Emit) -> str:
    """f16 is a type of LLVM alone: registers hold its values as f32, memory its bits."""
    half, bits, single = (llvm_type(type, width) for type in ("half", I16, F32))
    if primitive is P.FLOAT_TO_HALF:
        return emit(f"bitcast {half} {emit(f'fptrunc {typed} to {half}')} to {bits}")
    return emit(f"fpext {half} {emit(f'bitcast {typed} to {half}')} to {single}")


# --- calls -----------------------------------------------------------------------------------------------------------


def _call(node: Expression, operands: Sequence[str], width: int, emit: Emit, callees: dict[str, Callee]) -> str:
    lanes = min(width, WIDEST_CALL)
    callee = FloatFunction(node.primitive, node.type, lanes, len(operands))
    callees[callee.name] = callee
    type = llvm_type(node.type, lanes)
    parts = []
    for first in range(0, width, lanes):
        pieces = [operand if width == lanes else _lanes(operand, node.type, width, first, emit) for operand in operands]
        parts.append(emit(f"call {type} @{callee.name}({', '.join(f'{type} {piece}' for piece in pieces)})"))
    while len(parts) > 1:
        parts = [_joined(*pair, node.type, lanes, emit) for pair in zip(parts[::2], parts[1::2], strict=True)]
        lanes *= 2
    return parts[0]


def _lanes(value: str, type: MachineType, width: int, first: int, emit: Emit) -> str:
    """Some lanes of a vector."""
    vector, places = llvm_type(type, width), _places(range(first, first + WIDEST_CALL))
    return emit(f"shufflevector {vector} {value}, {vector} poison, {places}")


def _joined(left: str, right: str, type: MachineType, width: int, emit: Emit) -> str:
    """Return the lanes of two vectors, one after another."""
    vector = llvm_type(type, width)
    return emit(f"shufflevector {vector} {left}, {vector} {right}, {_places(range(2 * width))}")


def _places(lanes: range) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"
