"""Scalar expressions as C99: integers are unsigned, and cast to signed where a primitive requires it.

Values that are long, or used repeatedly, become variables. Math functions are expanded from their definitions
(spmd.analysis.scalar.functions), so that all back ends give the same bits; the compiler must not contract products and
sums.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np

from spmd.analysis.scalar.expression import F32, I1, Expression, MachineType, Primitive, constant_value, walk
from spmd.analysis.scalar.functions import definition
from spmd.backends.c.helpers import HELPERS, needs

P = Primitive
#: Length of an expression, in characters, from which it becomes a variable.
_LONG = 60
#: By primitive: operands as they are {0}, promoted to 32 bits {w0}, or signed {s0}; {n1} is a shift amount less than
#: the width, {f} the type suffix of C's math functions.
_INSTRUCTIONS = {
    P.ADD: "{w0} + {w1}", P.SUB: "{w0} - {w1}", P.MUL: "{w0} * {w1}", P.DIV: "{0} / {1}",
    P.SDIV: "{s0} / {s1}", P.UDIV: "{0} / {1}", P.SREM: "{s0} % {s1}", P.UREM: "{0} % {1}",
    P.SMAX: "{s0} > {s1} ? {0} : {1}", P.UMAX: "{0} > {1} ? {0} : {1}",
    P.SMIN: "{s0} < {s1} ? {0} : {1}", P.UMIN: "{0} < {1} ? {0} : {1}",
    P.AND: "{0} & {1}", P.OR: "{0} | {1}", P.XOR: "{0} ^ {1}",
    P.SHL: "{w0} << {n1}", P.LSHR: "{0} >> {n1}", P.ASHR: "{s0} >> {n1}",
    P.CTPOP: "ctpop({0})", P.CTLZ: "ctlz({0}) - {spare}u", P.NEG: "-{0}", P.SELECT: "{0} ? {1} : {2}",
    P.REM: "fmod{f}({0}, {1})", P.ABS: "fabs{f}({0})", P.COPYSIGN: "copysign{f}({0}, {1})",
    P.FMA: "fma{f}({0}, {1}, {2})", P.SQRT: "sqrt{f}({0})", P.FLOOR: "floor{f}({0})", P.CEIL: "ceil{f}({0})",
    P.TRUNC: "trunc{f}({0})", P.RINT: "rint{f}({0})",
    P.MAXIMUM: "maximum_{type}({0}, {1})", P.MINIMUM: "minimum_{type}({0}, {1})",
    P.FLOAT_TO_HALF: "float_to_half({0})", P.HALF_TO_FLOAT: "half_to_float({0})",
}  # fmt: skip
#: Operands of casts.
_CASTS = {
    P.TRUNCATE: "{0}", P.ZERO_EXTEND: "{0}", P.SIGN_EXTEND: "{s0}", P.FLOAT_TRUNCATE: "{0}", P.FLOAT_EXTEND: "{0}",
    P.SIGNED_TO_FLOAT: "{s0}", P.UNSIGNED_TO_FLOAT: "{0}",
}  # fmt: skip
_ORDERS = {"lt": ("<", ">="), "le": ("<=", ">"), "gt": (">", "<="), "ge": (">=", "<")}
_OF_INTEGERS = {
    "eq": "{0} == {1}", "ne": "{0} != {1}",
    **{f"u{name}": f"{{0}} {sign} {{1}}" for name, (sign, _) in _ORDERS.items()},
    **{f"s{name}": f"{{s0}} {sign} {{s1}}" for name, (sign, _) in _ORDERS.items()},
}  # fmt: skip
_OF_FLOATS = {
    "oeq": "{0} == {1}", "une": "{0} != {1}", "one": "{0} < {1} || {0} > {1}", "ueq": "!({0} < {1} || {0} > {1})",
    "ord": "{0} == {0} && {1} == {1}", "uno": "{0} != {0} || {1} != {1}",
    **{f"o{name}": f"{{0}} {sign} {{1}}" for name, (sign, _) in _ORDERS.items()},
    **{f"u{name}": f"!({{0}} {opposite} {{1}})" for name, (_, opposite) in _ORDERS.items()},
}  # fmt: skip


def c_type(type: MachineType) -> str:
    """Return the C type of variables and memory."""
    if type is I1:
        return "bool"
    return ("float" if type is F32 else "double") if type.is_float else f"uint{type.bits}_t"


def number(value: float, type: MachineType) -> str:
    """Return a C literal of exactly this value."""
    if type is I1:
        return "true" if value else "false"
    if not type.is_float:
        return f"UINT64_C({int(value) % 2**64})" if type.bits == 64 else f"{int(value) % 2**type.bits}u"
    if math.isfinite(value):
        text = str(np.float32(abs(value))) + "f" if type is F32 else repr(abs(value))
    else:
        text = "NAN" if math.isnan(value) else "INFINITY"
    return f"(-{text})" if math.copysign(1, value) < 0 else text


def indented(lines: Sequence[str]) -> str:
    """Return `lines` as text, indented by braces."""
    depth, texts = 0, []
    for line in lines:
        depth -= line == "}"
        texts.append("  " * depth + line)
        depth += line.endswith("{")
    return "\n".join(texts)


class FunctionLibrary:
    """The helper and math functions that a source includes, in order of use."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}

    def helper(self, name: str) -> None:
        """Include a function of HELPERS."""
        for needed in needs(name):
            self.helper(needed)
        self.functions.setdefault(name, HELPERS[name])

    def function(self, primitive: Primitive, type: MachineType, arity: int) -> str:
        """Include the function that computes `primitive`; return its name."""
        name, of = f"{primitive.value}_{type.value}", c_type(type)
        if name not in self.functions:
            scope = ExpressionScope(self, lambda node: f"p{node.attribute}", count())
            (result,) = scope.render([definition(primitive, type)])
            parameters = ", ".join(f"{of} p{index}" for index in range(arity))
            lines = [f"static {of} {name}({parameters}) {{", *scope.lines, f"return {result};", "}"]
            self.functions[name] = indented(lines)
        return name


class ExpressionScope:
    """Emits expressions at one place, each once; `leaf` returns the text of a parameter."""

    def __init__(self, library: FunctionLibrary, leaf: Callable[[Expression], str], numbers: Iterator[int]) -> None:
        self.library, self._leaf, self._numbers = library, leaf, numbers
        self.lines: list[str] = []
        self.names: dict[Expression, str] = {}

    def render(self, roots: Sequence[Expression]) -> list[str]:
        """Return the texts of `roots` as operands."""
        order = [node for node in walk(roots, _needed) if node not in self.names]
        reads = Counter(operand for node in order for operand in node.operands)
        for node in order:
            if node not in self.names:
                text, is_operand = self._write(node)
                is_long = len(text) > _LONG or reads[node] > 1
                if node.operands and is_long and node.primitive is not P.RARELY:
                    text = self.variable(node.type, text)
                elif not is_operand:
                    text = f"({text})"
                self.names[node] = text
        return [self.names[root] for root in roots]

    def variable(self, type: MachineType, text: str) -> str:
        """Declare a variable with value `text`; return its name."""
        name = f"x{next(self._numbers)}"
        self.lines.append(f"const {c_type(type)} {name} = {text};")
        return name

    def _write(self, node: Expression) -> tuple[str, bool]:
        """Return the text of a node, and whether it needs no parentheses as an operand."""
        primitive, type = node.primitive, node.type
        if primitive is P.CONSTANT:
            return number(constant_value(node), type), True
        if primitive is P.PARAMETER:
            return self._leaf(node), True
        if primitive is P.RARELY:
            return self._rarely(node), True
        operands = [self.names[operand] for operand in node.operands]
        if primitive.is_function:
            return f"{self.library.function(primitive, type, len(operands))}({', '.join(operands)})", True
        if primitive is P.TABLE:
            operands = [self._table(node, operands[0])]
        template, casts = _template(node)
        text = template.format(*operands, **_fields(node, operands))
        for name in re.findall(r"\w+(?=\()", text):
            if name in HELPERS:
                self.library.helper(name)
        is_operand = re.fullmatch(r"[\w{}]*\([^()]*\)|{s?0}", template) is not None
        if type is I1 and primitive not in (P.COMPARE_FLOAT, P.COMPARE_INTEGER, P.SELECT):
            return f"(bool)(({text}) & 1u)", True
        if casts:
            return f"({c_type(type)}){text if is_operand else f'({text})'}", True
        return text, is_operand

    def _rarely(self, node: Expression) -> str:
        """Emit a conditional value whose rare operand is evaluated only if selected; return its name."""
        condition, rare, usual = node.operands
        name, outside = f"x{next(self._numbers)}", dict(self.names)
        self.lines.append(f"{c_type(node.type)} {name} = {self.names[usual]};")
        self.lines.append(f"if ({self.names[condition]}) {{")
        self.lines += [f"{name} = {text};" for text in self.render([rare])]
        self.lines.append("}")
        self.names = outside
        return name

    def _table(self, node: Expression, index: str) -> str:
        """Return the bits of a table entry."""
        assert isinstance(node.attribute, tuple)
        bits, name = node.type.integer, f"x{next(self._numbers)}"
        entries = ", ".join(number(int(str(entry)), bits) for entry in node.attribute)
        self.lines.append(f"static const {c_type(bits)} {name}[] = {{{entries}}};")
        return f"{name}[{index}]"


def _needed(node: Expression) -> Sequence[Expression]:
    return (node.operands[0], node.operands[2]) if node.primitive is P.RARELY else node.operands


def _template(node: Expression) -> tuple[str, bool]:
    """Return the format of a node's text, and whether its C type differs and must be cast."""
    primitive, type = node.primitive, node.type
    if primitive in (P.COMPARE_INTEGER, P.COMPARE_FLOAT):
        return (_OF_FLOATS if primitive is P.COMPARE_FLOAT else _OF_INTEGERS)[str(node.attribute)], False
    if primitive in _CASTS:
        return _CASTS[primitive], True
    if primitive in (P.FLOAT_TO_SIGNED, P.FLOAT_TO_UNSIGNED):
        of, low = ("int", f"-0x1p{type.bits - 1}") if primitive is P.FLOAT_TO_SIGNED else ("uint", "-0.0")
        high = f"0x1p{type.bits - (of == 'int')}"
        inside = f"{{0}} >= {low}" if type.bits == 64 else f"{{0}} > {low} - 1.0"
        return f"{inside} && {{0}} < {high} ? ({of}{max(8, type.bits)}_t){{0}} : 0", True
    if primitive in (P.BITCAST, P.TABLE):
        to = f"{type.value}_of_bits({{0}})" if type.is_float else f"bits_of_{node.operands[0].type.value}({{0}})"
        return ("{0}" if primitive is P.TABLE and not type.is_float else to), False
    template = _INSTRUCTIONS[primitive]
    return template, not type.is_float and (type.bits < 32 or "{s" in template) and primitive is not P.SELECT


def _fields(node: Expression, operands: Sequence[str]) -> dict[str, object]:
    """Return the format fields other than operands."""
    fields: dict[str, object] = {"f": "f" if node.type is F32 else "", "type": node.type.value}
    fields["spare"] = 64 - node.type.bits
    for place, (operand, text) in enumerate(zip(node.operands, operands, strict=True)):
        bits, is_narrow = operand.type.bits, not operand.type.is_float and operand.type.bits < 32
        fields[f"w{place}"] = f"(uint32_t){text}" if is_narrow else text
        fields[f"s{place}"] = f"(-(int32_t){text})" if operand.type is I1 else f"(int{bits}_t){text}"
        fields[f"n{place}"] = text if operand.primitive is P.CONSTANT else f"({text} & {bits - 1}u)"
    return fields
