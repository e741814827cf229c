"""Operations that work element by element.

Source: XlaBuilder operation semantics, "Element-wise binary arithmetic operations", "Element-wise comparison
operations", "Element-wise unary functions", and the sections of the other operations' names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd import types as t
from spmd.arrays import Array
from spmd.builder import checks
from spmd.builder.broadcasting import broadcast_pair
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation, operation_of
from spmd.builder.shape import ElementLike, PrimitiveType, Shape
from spmd.builder.xla_op import XlaOp
from spmd.ir import Value

#: An operand of a binary operation: a number or an array becomes a constant of the other operand's type.
Operand = XlaOp | complex | float | int | bool | Array

_NUMBERS = ("signed", "unsigned", "float", "complex")
_BITS = ("i1", "signed", "unsigned")


def binary_operands(
    builder: XlaBuilder, lhs: object, rhs: object, broadcast_dimensions: Sequence[int]
) -> tuple[Value, Value]:
    """Both operands as values of one element type and one shape."""
    left = checks.array(builder, lhs, "lhs") if isinstance(lhs, XlaOp) else None
    right = checks.array(builder, rhs, "rhs") if isinstance(rhs, XlaOp) else None
    if left is None:
        left = _constant_like(builder, lhs, right, "lhs")
    if right is None:
        right = _constant_like(builder, rhs, left, "rhs")
    checks.same_element_type(right, left, "rhs")
    return broadcast_pair(builder, left, right, checks.integers(broadcast_dimensions, "broadcast_dimensions"))


def _constant_like(builder: XlaBuilder, number: object, other: Value | None, argument: str) -> Value:
    if other is None or not isinstance(number, (bool, int, float, complex, np.generic, np.ndarray)):
        raise ArgumentError(argument, f"an XlaOp or a number is needed, got {type(number).__name__}")
    constant = np.asarray(number)
    array = constant.astype(other.tensor.dtype)
    exact = constant.dtype.kind in "fc" and array.dtype.kind not in "biu"
    if not exact and not np.array_equal(array.astype(constant.dtype), constant):
        raise ArgumentError(
            argument, f"{number!r} is no value of element type {Shape.of(other.type).xla_element_type().value}"
        )
    return builder.constant(array)


def _binary(builder: XlaBuilder, op: str, lhs: object, rhs: object, dimensions: Sequence[int]) -> XlaOp:
    left, right = binary_operands(builder, lhs, rhs, dimensions)
    return builder.emit_one(f"stablehlo.{op}", [left, right])


@operation_of('"Element-wise binary arithmetic operations"')
def Add(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs + rhs; logical or for PRED. Operands of one element type, broadcast as the broadcasting semantics say."""
    return _binary(builder, "add", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Sub(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs - rhs."""
    return _binary(builder, "subtract", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Mul(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs * rhs; logical and for PRED."""
    return _binary(builder, "multiply", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Div(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs / rhs; integers round toward zero, and by zero give -1 (all bits set)."""
    return _binary(builder, "divide", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Rem(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The remainder of lhs / rhs: the sign is the dividend's, the absolute value less than the divisor's."""
    return _binary(builder, "remainder", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Pow(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs to the power of rhs."""
    return _binary(builder, "power", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Max(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The larger of both; NaN where one of them is NaN; logical or for PRED."""
    return _binary(builder, "maximum", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Min(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The smaller of both; NaN where one of them is NaN; logical and for PRED."""
    return _binary(builder, "minimum", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def And(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Logical and of PRED, bitwise and of integers."""
    return _binary(builder, "and", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Or(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Logical or of PRED, bitwise or of integers."""
    return _binary(builder, "or", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Xor(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Logical exclusive or of PRED, bitwise exclusive or of integers."""
    return _binary(builder, "xor", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def ShiftLeft(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Integers lhs shifted left by rhs bits; 0 when rhs is the width or more."""
    return _binary(builder, "shift_left", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def ShiftRightArithmetic(
    builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()
) -> XlaOp:
    """Integers lhs shifted right by rhs bits, the sign bit coming in."""
    return _binary(builder, "shift_right_arithmetic", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def ShiftRightLogical(
    builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()
) -> XlaOp:
    """Integers lhs shifted right by rhs bits, zeros coming in."""
    return _binary(builder, "shift_right_logical", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Atan2(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The angle of the point (rhs, lhs), in (-pi, pi]."""
    return _binary(builder, "atan2", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise binary arithmetic operations"')
def Complex(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Real parts lhs and imaginary parts rhs, both F32 or F64, as C64 or C128."""
    return _binary(builder, "complex", lhs, rhs, broadcast_dimensions)


# --- comparison ------------------------------------------------------------------------------------------------------


def _compare(
    builder: XlaBuilder, direction: str, lhs: object, rhs: object, dimensions: Sequence[int], *, total: bool = False
) -> XlaOp:
    left, right = binary_operands(builder, lhs, rhs, dimensions)
    kind = left.tensor.scalar_type.kind
    if kind == "complex" and direction not in ("EQ", "NE"):
        raise ArgumentError("lhs", f"complex numbers have no order, got {Shape.of(left.type).brief}")
    compare_type = {"signed": "SIGNED", "i1": "UNSIGNED", "unsigned": "UNSIGNED"}.get(kind, "FLOAT")
    if total and compare_type == "FLOAT" and kind != "complex":
        compare_type = "TOTALORDER"
    attributes = {"comparison_direction": direction, "compare_type": compare_type}
    return builder.emit_one("stablehlo.compare", [left, right], attributes)


@operation_of('"Element-wise comparison operations"')
def Eq(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs == rhs as PRED; floats as IEEE 754 says: NaN is unequal to all."""
    return _compare(builder, "EQ", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise comparison operations"')
def Ne(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs != rhs as PRED."""
    return _compare(builder, "NE", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise comparison operations"')
def Ge(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs >= rhs as PRED."""
    return _compare(builder, "GE", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise comparison operations"')
def Gt(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs > rhs as PRED."""
    return _compare(builder, "GT", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise comparison operations"')
def Le(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs <= rhs as PRED."""
    return _compare(builder, "LE", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise comparison operations"')
def Lt(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs < rhs as PRED."""
    return _compare(builder, "LT", lhs, rhs, broadcast_dimensions)


@operation_of('"Element-wise comparison operations"')
def EqTotalOrder(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Eq in the total order -NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN."""
    return _compare(builder, "EQ", lhs, rhs, broadcast_dimensions, total=True)


@operation_of('"Element-wise comparison operations"')
def NeTotalOrder(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Ne in the total order of EqTotalOrder."""
    return _compare(builder, "NE", lhs, rhs, broadcast_dimensions, total=True)


@operation_of('"Element-wise comparison operations"')
def GeTotalOrder(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Ge in the total order of EqTotalOrder."""
    return _compare(builder, "GE", lhs, rhs, broadcast_dimensions, total=True)


@operation_of('"Element-wise comparison operations"')
def GtTotalOrder(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Gt in the total order of EqTotalOrder."""
    return _compare(builder, "GT", lhs, rhs, broadcast_dimensions, total=True)


@operation_of('"Element-wise comparison operations"')
def LeTotalOrder(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Le in the total order of EqTotalOrder."""
    return _compare(builder, "LE", lhs, rhs, broadcast_dimensions, total=True)


@operation_of('"Element-wise comparison operations"')
def LtTotalOrder(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Lt in the total order of EqTotalOrder."""
    return _compare(builder, "LT", lhs, rhs, broadcast_dimensions, total=True)


# --- choice and conversion -------------------------------------------------------------------------------------------


@operation
def Select(builder: XlaBuilder, pred: XlaOp, on_true: XlaOp, on_false: XlaOp) -> XlaOp:
    """on_true where pred, else on_false, which have one shape. `pred` is PRED of that shape, or a scalar.

    Tuples are chosen whole by a scalar `pred`. Source: "Select".
    """
    chooser = checks.kind(checks.array(builder, pred, "pred"), "pred", "of element type PRED", "i1")
    yes, no = builder.value(on_true, "on_true"), builder.value(on_false, "on_false")
    if yes.type != no.type:
        raise ArgumentError(
            "on_false", f"must have the shape of on_true {Shape.of(yes.type).brief}, got {Shape.of(no.type).brief}"
        )
    if isinstance(yes.type, t.TensorType):
        if chooser.tensor.shape not in ((), yes.type.shape):
            raise ArgumentError(
                "pred",
                f"must be a scalar or have the dimensions {list(yes.type.shape)}, got {Shape.of(chooser.type).brief}",
            )
        return builder.emit_one("stablehlo.select", [chooser, yes, no])
    if chooser.tensor.rank:
        raise ArgumentError("pred", f"must be a scalar to choose between tuples, got {Shape.of(chooser.type).brief}")
    pairs = zip(builder.unpack(yes), builder.unpack(no), strict=True)
    leaves = [one if one.type is t.TOKEN else _select(builder, chooser, one, two) for one, two in pairs]
    return builder.pack(yes.type, leaves)


def _select(builder: XlaBuilder, chooser: Value, one: Value, two: Value) -> Value:
    (value,) = builder.emit("stablehlo.select", [chooser, one, two])
    return value


@operation
def Clamp(builder: XlaBuilder, min: Operand, operand: XlaOp, max: Operand) -> XlaOp:
    """min(max(operand, min), max). `min` and `max` have the shape of `operand` or are scalars. Source: "Clamp"."""
    value = checks.array(builder, operand, "operand")
    bounds = []
    for argument, limit in (("min", min), ("max", max)):
        constant = not isinstance(limit, XlaOp)
        bound = _constant_like(builder, limit, value, argument) if constant else checks.array(builder, limit, argument)
        checks.same_element_type(bound, value, argument)
        if bound.tensor.shape not in ((), value.tensor.shape):
            raise ArgumentError(
                argument,
                f"must be a scalar or have the shape {Shape.of(value.type).brief}, got {Shape.of(bound.type).brief}",
            )
        bounds.append(bound)
    return builder.emit_one("stablehlo.clamp", [bounds[0], value, bounds[1]])


@operation
def ConvertElementType(builder: XlaBuilder, operand: XlaOp, new_element_type: ElementLike) -> XlaOp:
    """Each element converted to `new_element_type`; the dimensions stay. Source: "ConvertElementType"."""
    value = checks.array(builder, operand, "operand")
    return builder.emit_one(
        "stablehlo.convert", [value], None, value.tensor.with_element_type(_element(new_element_type))
    )


@operation
def BitcastConvertType(builder: XlaBuilder, operand: XlaOp, new_element_type: ElementLike) -> XlaOp:
    """The bits of the elements seen as `new_element_type`. Source: "BitcastConvertType".

    To a type B/B' times narrower, a last dimension of size B/B' is added; to a wider one, a last dimension of size
    B'/B is taken away.
    """
    value = checks.array(builder, operand, "operand")
    element = _element(new_element_type)
    old, new, sizes = value.tensor.scalar_type.bits, element.bits, value.tensor.shape
    if old > new:
        sizes = (*sizes, old // new)
    elif new > old:
        if not sizes or sizes[-1] != new // old:
            raise ArgumentError(
                "operand",
                f"the last dimension must have size {new // old} to become {element}, got {Shape.of(value.type).brief}",
            )
        sizes = sizes[:-1]
    return builder.emit_one("stablehlo.bitcast_convert", [value], None, t.TensorType(sizes, element))


@operation
def ReducePrecision(builder: XlaBuilder, operand: XlaOp, mantissa_bits: int, exponent_bits: int) -> XlaOp:
    """Floats rounded to a format of so many bits and back. Source: "ReducePrecision", whose argument order this is.

    At least 1 exponent bit, no negative mantissa bits.
    """
    value = checks.kind(checks.array(builder, operand, "operand"), "operand", "of a floating-point type", "float")
    exponent = checks.integer(exponent_bits, "exponent_bits", 1)
    mantissa = checks.integer(mantissa_bits, "mantissa_bits", 0)
    attributes = {"exponent_bits": exponent, "mantissa_bits": mantissa}
    return builder.emit_one("stablehlo.reduce_precision", [value], attributes)


def _element(element: ElementLike) -> t.ElementType:
    try:
        return PrimitiveType.of(element).element_type
    except (TypeError, ValueError) as error:
        raise ArgumentError("new_element_type", str(error)) from None
