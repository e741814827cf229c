"""Scalar expressions as LLVM instructions, on one lane or on a vector of a power of two lanes.

Instructions are selected by primitive. Each rounds as its primitive does at every width, and none has fast-math flags:
lanes are bitwise equal to scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.scalar.expression import F32, I16, Expression, MachineType, Primitive, walk
from spmd.backends.llvm.emit.writer import Callee, FloatFunction, InstructionBuilder, constant_text, llvm_type, suffix

P = Primitive

#: Binary instructions, of integers and of floats.
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


#: Widest vector argument of an outlined function; wider vectors are split.
WIDEST_CALL = 16

Emit = Callable[[str], str]


def render(
    writer: InstructionBuilder, expressions: Sequence[Expression], parameters: Sequence[str], width: int
) -> list[str]:
    """Emit `expressions` on `width` lanes; return the SSA names (or constants) of their values.

    `parameters` are SSA names by parameter number, each of `width` lanes. For several calls with the same parameters
    use one `Renderer`, which emits no value twice.
    """
    return Renderer(writer, width, parameters).render(expressions)


class Renderer:
    """Emits expressions of one set of parameters at one place, each value once."""

    def __init__(self, writer: InstructionBuilder, width: int, parameters: Sequence[str]) -> None:
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
        """Return the operands to emit before `node`."""
        return node.operands

    def _write(self, node: Expression) -> str:
        if node.primitive is P.PARAMETER:
            assert isinstance(node.attribute, int)
            return self._parameters[node.attribute]
        operands = [self._names[operand] for operand in node.operands]
        return render_node(node, operands, self.width, self.writer.emit, self.writer.callees)


def render_node(node: Expression, operands: Sequence[str], width: int, emit: Emit, callees: dict[str, Callee]) -> str:
    """Emit one node, no parameter, on `width` lanes; return the SSA name (or constant) of its value.

    `operands` are SSA names or constants of `width` lanes. `emit` appends an instruction and returns its name. Called
    functions are added to `callees` by name: their `declaration` belongs in the module, and
    spmd.backends.llvm.emit.math_library compiles them.
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
    """Emit a conversion of f16, which registers hold as f32 and memory as bits."""
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
    """Return `WIDEST_CALL` lanes of a vector from lane `first` on."""
    vector, places = llvm_type(type, width), _places(range(first, first + WIDEST_CALL))
    return emit(f"shufflevector {vector} {value}, {vector} poison, {places}")


def _joined(left: str, right: str, type: MachineType, width: int, emit: Emit) -> str:
    """Return the concatenation of two vectors."""
    vector = llvm_type(type, width)
    return emit(f"shufflevector {vector} {left}, {vector} {right}, {_places(range(2 * width))}")


def _places(lanes: range) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"
