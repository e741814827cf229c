"""Functions of CHLO in HLO text: the primitives of their definitions, since XLA's clients do not run these functions.

Functions that clients have opcodes for stay whole. A fused multiply-add is a product and a sum: in 64 bits, in which
functions of 32 are defined, that loses nothing of the result; of 64 bits it may be off by some units in the last place.
"""

from __future__ import annotations

import numpy as np

from spmd import types as t
from spmd.analysis.scalar.elements import register_types
from spmd.analysis.scalar.elementwise import compute, has_scalar_form
from spmd.analysis.scalar.expression import (
    Expression,
    MachineType,
    Primitive,
    constant_bits,
    constant_value,
    parameter,
    substitute,
    walk,
)
from spmd.analysis.scalar.functions import definition
from spmd.builder.hlo.printer import CONVERTERS, Body
from spmd.builder.literal import literal_text
from spmd.dialects.bounded import bound_shape
from spmd.dialects.core import OPS, Trait
from spmd.ir import Op

P = Primitive
#: Primitives that are one instruction on values of the result's type.
_OPCODES = {
    P.ADD: "add", P.SUB: "subtract", P.MUL: "multiply", P.DIV: "divide", P.REM: "remainder", P.NEG: "negate",
    P.ABS: "abs", P.SQRT: "sqrt", P.FLOOR: "floor", P.CEIL: "ceil", P.RINT: "round-nearest-even",
    P.MAXIMUM: "maximum", P.MINIMUM: "minimum", P.SELECT: "select", P.RARELY: "select", P.AND: "and", P.OR: "or",
    P.XOR: "xor", P.SHL: "shift-left", P.LSHR: "shift-right-logical", P.ASHR: "shift-right-arithmetic",
    P.CTPOP: "popcnt", P.CTLZ: "count-leading-zeros", P.SDIV: "divide", P.SREM: "remainder", P.SMAX: "maximum",
    P.SMIN: "minimum", P.TRUNCATE: "convert", P.SIGN_EXTEND: "convert", P.FLOAT_TRUNCATE: "convert",
    P.FLOAT_EXTEND: "convert", P.SIGNED_TO_FLOAT: "convert", P.FLOAT_TO_SIGNED: "convert",
    P.BITCAST: "bitcast-convert", P.EXP: "exponential", P.EXPM1: "exponential-minus-one", P.LOG: "log",
    P.LOG1P: "log-plus-one", P.LOGISTIC: "logistic", P.TANH: "tanh", P.SIN: "sine", P.COS: "cosine", P.TAN: "tan",
    P.ATAN2: "atan2", P.CBRT: "cbrt", P.POW: "power", P.ERF: "erf",
}  # fmt: skip

#: Comparisons of floats that HLO has not: as a direction that is negated.
_UNORDERED = {"ueq": "NE", "ult": "GE", "ule": "GT", "ugt": "LE", "uge": "LT"}
_REGISTERS = {
    MachineType.I1: t.I1, MachineType.I8: t.I8, MachineType.I16: t.I16, MachineType.I32: t.I32, MachineType.I64: t.I64,
    MachineType.F32: t.F32, MachineType.F64: t.F64,
}  # fmt: skip


def _write(body: Body, op: Op) -> None:
    """Write the instructions of an elementwise op; one without a scalar form on its types is one instruction."""
    writer = _Writer(body, op.result.tensor)
    parameters: list[Expression] = []
    operands = []
    for value in op.operands:
        names = writer.registers(body.name_of(value), value.tensor)
        types = register_types(value.tensor.scalar_type)
        operands.append(tuple(parameter(len(parameters) + index, type) for index, type in enumerate(types)))
        parameters += operands[-1]
        writer.names.update(zip(operands[-1], names, strict=True))
    elements = compute(op, operands)
    if elements is None:
        body.instruction(op, op.name.partition(".")[2].replace("_", "-"), op.operands)
        return
    (element,) = elements
    names = [writer.value(root) for root in element]
    body.name_value(op.result, writer.result(names))


class _Writer:
    """Writes expressions as instructions on arrays of the sizes of `shaped`."""

    def __init__(self, body: Body, shaped: t.TensorType) -> None:
        self._body = body
        self._shaped = shaped
        self.names: dict[Expression, str] = {}

    def add(
        self,
        opcode: str,
        type: MachineType | t.ElementType | t.QuantizedType,
        *names: str,
        attributes: tuple[str, ...] = (),
    ) -> str:
        element = _REGISTERS[type] if isinstance(type, MachineType) else type
        return self._body.add(opcode, self._shaped.with_element_type(element), names, attributes)

    def registers(self, name: str, type: t.TensorType) -> list[str]:
        """Return the names of the registers' arrays of an operand."""
        element = type.scalar_type
        kinds = register_types(element)
        if element.is_complex:
            return [self.add(part, kind, name) for part, kind in zip(("real", "imag"), kinds, strict=True)]
        if _REGISTERS[kinds[0]] is element:
            return [name]
        same = element.is_integer and element.bits == kinds[0].bits
        return [self.add("bitcast-convert" if same else "convert", kinds[0], name)]

    def result(self, names: list[str]) -> str:
        """Return the array of the result's own type, of its registers' arrays."""
        element = self._shaped.scalar_type
        if element.is_complex:
            return self.add("complex", element, *names)
        kind = register_types(element)[0]
        if _REGISTERS[kind] is element:
            return names[0]
        return self.add(
            "bitcast-convert" if element.is_integer and element.bits == kind.bits else "convert", element, *names
        )

    def value(self, root: Expression) -> str:
        """Return the name of the array of `root`."""
        for node in walk([root]):
            if node not in self.names:
                self.names[node] = self._node(node, [self.names[operand] for operand in node.operands])
        return self.names[root]

    def _node(self, node: Expression, names: list[str]) -> str:
        primitive = node.primitive
        if (
            primitive is P.SUB
            and node.operands[0].primitive is P.FMA
            and node.operands[0].operands[2] is node.operands[1]
        ):
            names = [self.add("opt-barrier", node.type, names[0]), names[1]]  # rounds, which XLA would simplify away
        if primitive in _OPCODES:
            return self.add(_OPCODES[primitive], node.type, *names)
        if primitive.is_function:
            return self.value(substitute([definition(primitive, node.type)], node.operands)[0])
        write = _WRITERS.get(primitive)
        if write is None:
            raise ValueError(f"{primitive.value} of a scalar expression is not written")
        return write(self, node, names)

    def constant(self, node: Expression, names: list[str]) -> str:
        element, value = _REGISTERS[node.type], constant_value(node)
        scalar = self._body.add("constant", t.TensorType((), element), [literal_text(np.array(value, element.dtype))])
        full = t.TensorType(bound_shape(self._shaped), element)
        return self._body.add("broadcast", full, [scalar], ["dimensions={}"])

    def fused(self, node: Expression, names: list[str]) -> str:
        return self.add("add", node.type, self.add("multiply", node.type, *names[:2]), names[2])

    def zero_extend(self, node: Expression, names: list[str]) -> str:
        source = node.operands[0].type
        if source is MachineType.I1:
            return self.add("convert", node.type, *names)
        narrow, wide = (t.ELEMENT_TYPES[f"ui{type.bits}"] for type in (source, node.type))
        extended = self.add("convert", wide, self.add("bitcast-convert", narrow, *names))
        return self.add("bitcast-convert", node.type, extended)

    def to_half(self, node: Expression, names: list[str]) -> str:
        return self.add("bitcast-convert", node.type, self.add("convert", t.F16, *names))

    def from_half(self, node: Expression, names: list[str]) -> str:
        return self.add("convert", node.type, self.add("bitcast-convert", t.F16, *names))

    def copysign(self, node: Expression, names: list[str]) -> str:
        """Return the bits of the first but for that of the sign, with that of the second."""
        bits = node.type.integer
        sign = 1 << (bits.bits - 1)
        value, other = (self.add("bitcast-convert", bits, name) for name in names)
        kept = self.add("and", bits, value, self.constant(constant_bits(sign - 1, bits), []))
        taken = self.add("and", bits, other, self.constant(constant_bits(sign, bits), []))
        return self.add("bitcast-convert", node.type, self.add("or", bits, kept, taken))

    def compare_floats(self, node: Expression, names: list[str]) -> str:
        predicate = str(node.attribute)
        if predicate in ("ord", "uno"):
            direction, opcode = ("EQ", "and") if predicate == "ord" else ("NE", "or")
            return self.add(opcode, node.type, *(self._compare(node, [name, name], direction) for name in names))
        if predicate == "one":
            less, more = (self._compare(node, names, direction) for direction in ("LT", "GT"))
            return self.add("or", node.type, less, more)
        if predicate in _UNORDERED:
            return self.add("not", node.type, self._compare(node, names, _UNORDERED[predicate]))
        return self._compare(node, names, predicate[1:].upper())

    def compare_integers(self, node: Expression, names: list[str]) -> str:
        predicate = str(node.attribute)
        if predicate[0] == "u":
            kind = t.ELEMENT_TYPES[f"ui{node.operands[0].type.bits}"]
            names = [self.add("bitcast-convert", kind, name) for name in names]
        return self._compare(node, names, predicate[-2:].upper())

    def _compare(self, node: Expression, names: list[str], direction: str) -> str:
        return self.add("compare", node.type, *names, attributes=(f"direction={direction}",))


def _is_rounding(sum: Expression, constant: Expression) -> bool:
    """Return whether what was added is taken away again: the digits behind the point are lost."""
    return sum.primitive is P.FMA and sum.operands[2] is constant


_WRITERS = {
    P.CONSTANT: _Writer.constant,
    P.FMA: _Writer.fused,
    P.COPYSIGN: _Writer.copysign,
    P.ZERO_EXTEND: _Writer.zero_extend,
    P.FLOAT_TO_HALF: _Writer.to_half,
    P.HALF_TO_FLOAT: _Writer.from_half,
    P.COMPARE_FLOAT: _Writer.compare_floats,
    P.COMPARE_INTEGER: _Writer.compare_integers,
}


def _named_call(body: Body, op: Op) -> None:
    """Write an op without a definition over primitives as a call of its name, which only this reader knows."""
    body.instruction(op, "custom-call", op.operands, [f'custom_call_target="{op.name}"'])


for _name, _declared in OPS.items():
    if _declared.dialect == "chlo" and Trait.ELEMENTWISE in _declared.traits and not _declared.attributes:
        CONVERTERS.setdefault(_name, _write if has_scalar_form(_name) else _named_call)
