"""Scalar expressions as C99: integers are unsigned, signed where a primitive reads them so.

Every text is an operand as it stands: a name, a number, a call, or in parentheses. What is read several times, or long,
becomes a variable. Functions of floats are written from their definitions (spmd.analysis.scalar.functions), so that
they give the bits that other back ends give; a compiler must not contract products and sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from spmd.analysis.scalar.expression import F32, I1, Expression, MachineType, Primitive, constant_value, walk
from spmd.analysis.scalar.functions import definition
from spmd.backends.c.helpers import HELPERS

P = Primitive
#: Characters of a text from which on it becomes a variable.
_LONG = 60

_ARITHMETIC = {P.ADD: "+", P.SUB: "-", P.MUL: "*", P.DIV: "/", P.AND: "&", P.OR: "|", P.XOR: "^"}
_DIVISIONS = {P.SDIV: "/", P.UDIV: "/", P.SREM: "%", P.UREM: "%"}
_SHIFTS = {P.SHL: "<<", P.LSHR: ">>", P.ASHR: ">>"}
_EXTREMA = {P.SMAX: ">", P.UMAX: ">", P.SMIN: "<", P.UMIN: "<"}
_SIGNED = frozenset((P.SDIV, P.SREM, P.ASHR, P.SMAX, P.SMIN))
#: Functions of C's library, which are exact or rounded once.
_LIBRARY = {
    P.REM: "fmod", P.ABS: "fabs", P.COPYSIGN: "copysign", P.FMA: "fma", P.SQRT: "sqrt",
    P.FLOOR: "floor", P.CEIL: "ceil", P.TRUNC: "trunc", P.RINT: "rint",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OPPOSITE = {"lt": ">=", "le": ">", "gt": "<=", "ge": "<"}


def c_type(type: MachineType) -> str:
    """The type of a variable, and of memory."""
    if type is I1:
        return "bool"
    if type.is_float:
        return "float" if type is F32 else "double"
    return f"uint{type.bits}_t"


def number(node: Expression) -> str:
    """A constant."""
    value, type = constant_value(node), node.type
    if type is I1:
        return "true" if value else "false"
    if not type.is_float:
        return f"UINT64_C({value % 2**64})" if type.bits == 64 else f"{value % 2**type.bits}u"
    return float_number(value, type)


def float_number(value: float, type: MachineType) -> str:
    """A float that C reads as the same."""
    if math.isnan(value):
        text = "NAN"
    elif math.isinf(value):
        text = "INFINITY"
    else:
        text = str(np.float32(abs(value))) + "f" if type is F32 else repr(abs(value))
    return f"(-{text})" if math.copysign(1, value) < 0 else text


class Library:
    """The functions that a source calls and has itself: helpers, and functions of floats, in the order of their use."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}

    def helper(self, name: str) -> str:
        """The name of a function of HELPERS, which is made part of the source."""
        for needed in HELPERS[name].needs:
            self.helper(needed)
        self.functions.setdefault(name, HELPERS[name].text)
        return name

    def function(self, primitive: Primitive, type: MachineType, arity: int) -> str:
        """The name of the function that computes `primitive`, which is made part of the source."""
        name, of = f"{primitive.value}_{type.value}", c_type(type)
        if name not in self.functions:
            scope = Scope(self, lambda node: f"p{node.attribute}", "  ")
            result = scope.render([definition(primitive, type)])[0]
            parameters = ", ".join(f"{of} p{index}" for index in range(arity))
            lines = [f"static {of} {name}({parameters}) {{", *scope.lines, f"  return {result};", "}"]
            self.functions[name] = "\n".join(lines)
        return name


class Scope:
    """Writes expressions at one place, each once; `leaf` gives the text of a parameter."""

    def __init__(self, library: Library, leaf: Callable[[Expression], str], indent: str) -> None:
        self.library, self._leaf, self.indent = library, leaf, indent
        self.lines: list[str] = []
        self.names: dict[Expression, str] = {}
        self._count = 0

    def render(self, roots: Sequence[Expression]) -> list[str]:
        """The texts of `roots`."""
        order = [node for node in walk(roots, _needed) if node not in self.names]
        reads = Counter(operand for node in order for operand in node.operands)
        for node in order:
            if node in self.names:
                continue
            text = self._write(node)
            is_atom = node.primitive in (P.CONSTANT, P.PARAMETER)
            if not is_atom and (reads[node] > 1 or len(text) > _LONG):
                text = self.variable(node.type, text)
            self.names[node] = text
        return [self.names[root] for root in roots]

    def fresh(self) -> str:
        """The name of a new variable."""
        self._count += 1
        return f"x{self._count - 1}"

    def variable(self, type: MachineType, text: str) -> str:
        """The name of a variable that holds `text`."""
        name = self.fresh()
        self.lines.append(f"{self.indent}const {c_type(type)} {name} = {text[1:-1] if _is_wrapped(text) else text};")
        return name

    def _write(self, node: Expression) -> str:
        primitive = node.primitive
        if primitive is P.CONSTANT:
            return number(node)
        if primitive is P.PARAMETER:
            return self._leaf(node)
        if primitive is P.RARELY:
            return self._rarely(node)
        operands = [self.names[operand] for operand in node.operands]
        if primitive.is_function:
            return f"{self.library.function(primitive, node.type, len(operands))}({', '.join(operands)})"
        if primitive is P.TABLE:
            return self._table(node, operands[0])
        return self._instruction(node, operands)

    def _rarely(self, node: Expression) -> str:
        """A choice whose first part is computed where it is taken alone."""
        condition, rare, usual = node.operands
        name = self.fresh()
        outside, indent = dict(self.names), self.indent
        self.lines += [f"{indent}{c_type(node.type)} {name} = {self.names[usual]};",
                       f"{indent}if ({self.names[condition]}) {{"]  # fmt: skip
        self.indent += "  "
        (text,) = self.render([rare])
        self.lines += [f"{self.indent}{name} = {text};", f"{indent}}}"]
        self.names, self.indent = outside, indent
        return name

    def _table(self, node: Expression, index: str) -> str:
        assert isinstance(node.attribute, tuple)
        bits = node.type.integer
        entries = ", ".join(f"{entry}u" if bits.bits < 64 else f"UINT64_C({entry})" for entry in node.attribute)
        name = self.fresh()
        self.lines.append(f"{self.indent}static const {c_type(bits)} {name}[] = {{{entries}}};")
        entry = f"{name}[{index}]"
        return f"{self.library.helper(f'{node.type.value}_of_bits')}({entry})" if node.type.is_float else entry

    def _instruction(self, node: Expression, operands: Sequence[str]) -> str:
        primitive, type = node.primitive, node.type
        source = node.operands[0].type
        first, *others = operands
        if primitive in _SIGNED:
            first, *others = (_signed(text, type) for text in operands)
        if primitive in _ARITHMETIC:
            return _arithmetic(_ARITHMETIC[primitive], type, first, others[0])
        if primitive in _DIVISIONS:
            return _narrowed(f"({first} {_DIVISIONS[primitive]} {others[0]})", type)
        if primitive in _SHIFTS:
            wide = f"(uint32_t){first}" if primitive is P.SHL and type.bits < 32 else first
            is_number = node.operands[1].primitive is P.CONSTANT
            by = operands[1] if is_number else f"({operands[1]} & {type.bits - 1}u)"
            return _narrowed(f"({wide} {_SHIFTS[primitive]} {by})", type)
        if primitive in _EXTREMA:
            return f"({first} {_EXTREMA[primitive]} {others[0]} ? {operands[0]} : {operands[1]})"
        if primitive in _LIBRARY:
            return f"{_LIBRARY[primitive]}{'f' if type is F32 else ''}({', '.join(operands)})"
        if primitive in (P.COMPARE_INTEGER, P.COMPARE_FLOAT):
            return _comparison(str(node.attribute), source, operands)
        if primitive is P.SELECT:
            return f"({first} ? {others[0]} : {others[1]})"
        if primitive is P.NEG:
            return f"(-{first})"
        if primitive in (P.MAXIMUM, P.MINIMUM):
            return f"{self.library.helper(f'{primitive.value}_{type.value}')}({', '.join(operands)})"
        if primitive in (P.CTPOP, P.CTLZ):
            count = f"{self.library.helper(primitive.value)}({first})"
            return f"({c_type(type)})({count}{f' - {64 - type.bits}u' if primitive is P.CTLZ else ''})"
        if primitive in (P.FLOAT_TO_HALF, P.HALF_TO_FLOAT):
            return f"{self.library.helper(primitive.value)}({first})"
        if primitive is P.BITCAST:
            to = f"{type.value}_of_bits" if type.is_float else f"bits_of_{source.value}"
            return f"{self.library.helper(to)}({first})"
        return self._conversion(node, first, source)

    def _conversion(self, node: Expression, operand: str, source: MachineType) -> str:
        primitive, type = node.primitive, node.type
        if primitive is P.TRUNCATE and type is I1:
            return f"(bool)({operand} & 1u)"
        if primitive in (P.SIGN_EXTEND, P.SIGNED_TO_FLOAT):
            signed = f"(-(int32_t){operand})" if source is I1 else _signed(operand, source)
            return f"(({c_type(type)}){signed})"
        if primitive in (P.FLOAT_TO_SIGNED, P.FLOAT_TO_UNSIGNED):
            bits, sign = type.bits, primitive is P.FLOAT_TO_SIGNED
            low, high = (f"-0x1p{bits - 1}", f"0x1p{bits - 1}") if sign else ("0.0", f"0x1p{bits}")
            inside = f"{operand} >= {low}" if bits == 64 else f"{operand} > {low} - 1.0"
            whole = f"({'' if sign else 'u'}int{max(8, bits)}_t){operand}"
            return f"({inside} && {operand} < {high} ? ({c_type(type)}){whole} : 0)"
        return f"(({c_type(type)}){operand})"


def _needed(node: Expression) -> Sequence[Expression]:
    return (node.operands[0], node.operands[2]) if node.primitive is P.RARELY else node.operands


def _is_wrapped(text: str) -> bool:
    """Whether the first parenthesis is closed by the last one."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place == len(text) - 1 and text[0] == "("
    return False


def _signed(text: str, type: MachineType) -> str:
    return f"(int{max(8, type.bits)}_t){text}"


def _narrowed(text: str, type: MachineType) -> str:
    """An integer as one of `type`, which C computes in 32 bits at least, and where a sign was read as signed."""
    return f"(({c_type(type)}){text})"


def _arithmetic(operator: str, type: MachineType, first: str, second: str) -> str:
    if type.is_float or type.bits >= 32:
        return f"({first} {operator} {second})"
    if operator in "&|^":
        return f"(({c_type(type)})({first} {operator} {second}))"
    total = f"((uint32_t){first} {operator} (uint32_t){second})"
    return f"((bool)({total} & 1u))" if type is I1 else f"(({c_type(type)}){total})"


def _comparison(predicate: str, type: MachineType, operands: Sequence[str]) -> str:
    first, second = operands
    if predicate in ("ord", "uno"):
        return f"({first} == {first} && {second} == {second})" if predicate == "ord" else (
            f"({first} != {first} || {second} != {second})")  # fmt: skip
    if predicate in ("one", "ueq"):
        either = f"({first} < {second} || {first} > {second})"
        return either if predicate == "one" else f"(!{either})"
    name = predicate[-2:]
    if type.is_float and predicate[0] == "u" and name in _OPPOSITE:
        return f"(!({first} {_OPPOSITE[name]} {second}))"
    if predicate[0] == "s" and not type.is_float and len(predicate) == 3:
        first, second = _signed(first, type), _signed(second, type)
    return f"({first} {_COMPARISONS[name]} {second})"
