"""Scalar expressions: elementwise computations as directed acyclic graphs of scalar primitives.

Expressions are immutable and hash-consed: equal ones are the same object, so common subexpressions are found by
identity. Every value has a machine type; integers are signless, as primitives determine signedness. Floating point is
IEEE 754's, every primitive rounded to nearest even: back ends may not contract, reorder or approximate.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary


class MachineType(enum.Enum):
    """The type of a value in a register; `bits` is 1 for i1."""

    I1 = "i1"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    F32 = "f32"
    F64 = "f64"

    bits: int
    is_float: bool
    __hash__ = object.__hash__  # members are singletons, and hashed for every node

    def __init__(self, name: str) -> None:
        self.bits = int(name[1:])
        self.is_float = name[0] == "f"

    @property
    def integer(self) -> MachineType:
        """The integer type of the same width."""
        return integer_type(self.bits)


I1, I8, I16, I32, I64, F32, F64 = MachineType


def integer_type(bits: int) -> MachineType:
    """Return the integer type of 1, 8, 16, 32 or 64 bits."""
    return MachineType(f"i{bits}")


class Primitive(enum.Enum):
    """The operation of a node. Operands and result have one type unless stated otherwise.

    The last group are functions that back ends expand or call: each has a definition in terms of the other primitives
    (spmd.analysis.scalar.functions).
    """

    CONSTANT = "constant"  # `attribute`: the bits, as an unsigned integer
    PARAMETER = "parameter"  # `attribute`: its index

    # integers (wrapping) and floats
    ADD = "add"
    SUB = "sub"
    MUL = "mul"

    # integers
    SDIV = "sdiv"  # truncates; the divisor is not 0, nor is this the smallest integer divided by -1
    UDIV = "udiv"
    SREM = "srem"
    UREM = "urem"
    SMAX = "smax"
    SMIN = "smin"
    UMAX = "umax"
    UMIN = "umin"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"  # shifts are by less than the width
    LSHR = "lshr"
    ASHR = "ashr"
    CTPOP = "ctpop"
    CTLZ = "ctlz"  # the width for zero
    COMPARE_INTEGER = "compare_integer"  # -> i1; `attribute`: eq ne slt sle sgt sge ult ule ugt uge

    # floats
    DIV = "div"
    REM = "rem"  # of division towards zero, exact, with the sign of the dividend (C's fmod)
    NEG = "neg"
    ABS = "abs"
    COPYSIGN = "copysign"
    FMA = "fma"
    SQRT = "sqrt"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    RINT = "rint"  # ties to even
    MAXIMUM = "maximum"  # NaN propagates, -0 < +0 (IEEE 754-2019)
    MINIMUM = "minimum"
    COMPARE_FLOAT = "compare_float"  # -> i1; `attribute`: oeq olt ole ogt oge one ord, or unordered: ueq ... une uno

    # any type
    SELECT = "select"  # (i1, x, x) -> x
    RARELY = "rarely"  # select whose first value is expensive and seldom chosen: skipped if no lane chooses it
    TRUNCATE = "truncate"  # to a narrower integer
    ZERO_EXTEND = "zero_extend"
    SIGN_EXTEND = "sign_extend"
    FLOAT_TRUNCATE = "float_truncate"  # f64 -> f32
    FLOAT_EXTEND = "float_extend"
    SIGNED_TO_FLOAT = "signed_to_float"
    UNSIGNED_TO_FLOAT = "unsigned_to_float"
    FLOAT_TO_SIGNED = "float_to_signed"  # truncates; the operand is in the range of the result's type
    FLOAT_TO_UNSIGNED = "float_to_unsigned"
    FLOAT_TO_HALF = "float_to_half"  # f32 -> i16, the bits of the nearest f16
    HALF_TO_FLOAT = "half_to_float"
    BITCAST = "bitcast"  # between an integer and a float of the same width
    TABLE = "table"  # (i32 index) -> an entry of `attribute`, bits of constants; only in definitions of functions

    # functions
    EXP = "exp"
    EXPM1 = "expm1"
    LOG = "log"
    LOG1P = "log1p"
    LOGISTIC = "logistic"
    TANH = "tanh"
    SINH = "sinh"
    COSH = "cosh"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    ATAN2 = "atan2"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    CBRT = "cbrt"
    POW = "pow"
    ERF = "erf"
    ERFC = "erfc"
    ERF_INV = "erf_inv"
    LGAMMA = "lgamma"
    DIGAMMA = "digamma"
    BESSEL_I1E = "bessel_i1e"
    INTEGER_POWER = "integer_power"  # (x, n): x to the power n, wrapping; n is unsigned

    __hash__ = object.__hash__

    @property
    def is_function(self) -> bool:
        return self in _FUNCTIONS


_ORDER = list(Primitive)
_FUNCTIONS = frozenset(_ORDER[_ORDER.index(Primitive.EXP) :])

#: A constant's bits, a parameter's index, a comparison's predicate, a table's entries.
Attribute = int | str | tuple[object, ...] | None


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Expression:
    """A primitive applied to operands. Made by `expression`, `constant` and `parameter` only.

    Operators build binary primitives on operands of one type, one of which may be a number: `0.5 * x + y`. `/` is for
    floats. Comparisons have no operators, since those of integers depend on signedness: see `build.compare`.
    """

    primitive: Primitive
    type: MachineType
    operands: tuple[Expression, ...]
    attribute: Attribute = None

    def __repr__(self) -> str:
        return show(self)

    def __add__(self, other: Operand) -> Expression:
        return self._with(Primitive.ADD, other)

    def __radd__(self, other: float) -> Expression:
        return constant(other, self.type) + self

    def __sub__(self, other: Operand) -> Expression:
        return self._with(Primitive.SUB, other)

    def __rsub__(self, other: float) -> Expression:
        return constant(other, self.type) - self

    def __mul__(self, other: Operand) -> Expression:
        return self._with(Primitive.MUL, other)

    def __rmul__(self, other: float) -> Expression:
        return constant(other, self.type) * self

    def __truediv__(self, other: Operand) -> Expression:
        return self._with(Primitive.DIV, other)

    def __rtruediv__(self, other: float) -> Expression:
        return constant(other, self.type) / self

    def __and__(self, other: Operand) -> Expression:
        return self._with(Primitive.AND, other)

    def __or__(self, other: Operand) -> Expression:
        return self._with(Primitive.OR, other)

    def __xor__(self, other: Operand) -> Expression:
        return self._with(Primitive.XOR, other)

    def __invert__(self) -> Expression:
        return self ^ -1

    def __neg__(self) -> Expression:
        return expression(Primitive.NEG, self.type, (self,))

    def _with(self, primitive: Primitive, other: Operand) -> Expression:
        return expression(primitive, self.type, (self, as_expression(other, self.type)))


#: An expression, or a number that is converted to a constant of the other operand's type.
Operand = Expression | float


_KNOWN: WeakValueDictionary[tuple[object, ...], Expression] = WeakValueDictionary()


def expression(
    primitive: Primitive, type: MachineType, operands: Sequence[Expression] = (), attribute: Attribute = None
) -> Expression:
    """Return the unique expression with these components."""
    parts = tuple(operands)
    key = (primitive, type, attribute, *map(id, parts))
    node = _KNOWN.get(key)
    if node is None:
        node = Expression(primitive, type, parts, attribute)
        _KNOWN[key] = node
    return node


def parameter(index: int, type: MachineType) -> Expression:
    """Return parameter number `index` of an expression."""
    return expression(Primitive.PARAMETER, type, (), index)


def constant(value: float | bool, type: MachineType) -> Expression:
    """Return `value` as a constant of `type`: an integer wrapped to its width, or a number rounded to nearest."""
    if type.is_float:
        return constant_bits(float_bits(float(value), type), type)
    return constant_bits(int(value) & ((1 << type.bits) - 1), type)


def as_expression(operand: Operand, type: MachineType) -> Expression:
    """Return `operand`, a number being converted to a constant of `type`."""
    return operand if isinstance(operand, Expression) else constant(operand, type)


def constant_bits(bits: int, type: MachineType) -> Expression:
    """Return the constant with these bits."""
    return expression(Primitive.CONSTANT, type, (), bits)


def float_bits(value: float, type: MachineType) -> int:
    """Return the bits of `value` rounded to f32 or f64."""
    if type is F64:
        return int.from_bytes(struct.pack("<d", value), "little")
    try:
        return int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def constant_value(node: Expression) -> float | int:
    """Return the value of a constant; integers are read as signed."""
    assert node.primitive is Primitive.CONSTANT and isinstance(node.attribute, int)
    bits, type = node.attribute, node.type
    if type.is_float:
        code = "<f" if type is F32 else "<d"
        return float(struct.unpack(code, bits.to_bytes(type.bits // 8, "little"))[0])
    return bits - (1 << type.bits) if bits >> (type.bits - 1) and type.bits > 1 else bits


def is_constant(node: Expression, value: float | None = None) -> bool:
    """Return whether `node` is a constant, and equal to `value` if given."""
    return node.primitive is Primitive.CONSTANT and (value is None or constant_value(node) == value)


def walk(
    roots: Sequence[Expression], needed: Callable[[Expression], Sequence[Expression]] = lambda node: node.operands
) -> list[Expression]:
    """Return every node reachable from `roots` once, operands before users; `needed` overrides a node's operands."""
    order: dict[Expression, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(needed(node)) if operand not in order)
    return list(order)


def substitute(roots: Sequence[Expression], parameters: Sequence[Expression]) -> list[Expression]:
    """Return `roots` with each parameter replaced by the expression at its index."""
    expressions: dict[Expression, Expression] = {}
    for node in walk(roots):
        if node.primitive is Primitive.PARAMETER:
            assert isinstance(node.attribute, int)
            expressions[node] = parameters[node.attribute]
        elif not node.operands:
            expressions[node] = node
        else:
            operands = [expressions[operand] for operand in node.operands]
            expressions[node] = expression(node.primitive, node.type, operands, node.attribute)
    return [expressions[root] for root in roots]


def show(node: Expression) -> str:
    """Return `node` as text: `fma.f32(p0, 0x1p+1, p1)`."""
    texts: dict[Expression, str] = {}
    for each in walk([node]):
        if each.primitive is Primitive.PARAMETER:
            texts[each] = f"p{each.attribute}"
        elif each.primitive is Primitive.CONSTANT:
            texts[each] = f"{constant_value(each)}"
        else:
            name = each.primitive.value if each.attribute is None else f"{each.primitive.value}.{each.attribute}"
            texts[each] = f"{name}.{each.type.value}({', '.join(texts[operand] for operand in each.operands)})"
    return texts[node]
