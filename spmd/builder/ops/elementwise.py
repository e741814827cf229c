"""Elementwise operations.

Source: XlaBuilder operation semantics, "Element-wise binary arithmetic operations", "Element-wise comparison
operations", "Element-wise unary functions", and the sections of the other operations' names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from spmd import types as t
from spmd.builder import checks
from spmd.builder.broadcasting import broadcast_pair
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation, operation_named
from spmd.builder.shape import ElementLike, PrimitiveType, Shape
from spmd.builder.xla_op import XlaOp
from spmd.ir import Value
from spmd.support.arrays import Array

#: An operand of a binary operation: a number or an array becomes a constant of the other operand's element type.
Operand = XlaOp | complex | float | int | bool | Array

_NUMBERS = ("signed", "unsigned", "float", "complex")
_BITS = ("i1", "signed", "unsigned")


def binary_operands(
    builder: XlaBuilder, lhs: object, rhs: object, broadcast_dimensions: Sequence[int]
) -> tuple[Value, Value]:
    """Return both operands as values of one element type and one shape."""
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
        raise ArgumentError(argument, f"must be an XlaOp or a number, got {type(number).__name__}")
    constant = np.asarray(number)
    array = constant.astype(other.tensor.dtype)
    exact = constant.dtype.kind in "fc" and array.dtype.kind not in "biu"
    if not exact and not np.array_equal(array.astype(constant.dtype), constant):
        raise ArgumentError(
            argument, f"must be a value of {Shape.of(other.type).xla_element_type().value}, got {number!r}"
        )
    return builder.constant(array)


def _binary(builder: XlaBuilder, op: str, lhs: object, rhs: object, dimensions: Sequence[int]) -> XlaOp:
    left, right = binary_operands(builder, lhs, rhs, dimensions)
    return builder.emit_one(f"stablehlo.{op}", [left, right])


class BinaryOperation(Protocol):
    """An operation on two arrays of one element type, or on one and a number, broadcast (see broadcasting.py).

    `broadcast_dimensions` maps each dimension of the lower-rank operand to one of the higher-rank operand.
    """

    def __call__(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...


def _of_two(
    name: str, section: str, doc: str, write: Callable[[XlaBuilder, Operand, Operand, Sequence[int]], XlaOp]
) -> BinaryOperation:
    @operation_named(name, doc, f'"{section}"')
    def function(builder: XlaBuilder, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return write(builder, lhs, rhs, broadcast_dimensions)

    return function


def _arithmetic(name: str, op: str, doc: str) -> BinaryOperation:
    return _of_two(
        name, "Element-wise binary arithmetic operations", doc,
        lambda builder, lhs, rhs, dimensions: _binary(builder, op, lhs, rhs, dimensions),
    )  # fmt: skip


Add = _arithmetic("Add", "add", "Return lhs + rhs; logical or for PRED.")
Sub = _arithmetic("Sub", "subtract", "Return lhs - rhs.")
Mul = _arithmetic("Mul", "multiply", "Return lhs * rhs; logical and for PRED.")
Div = _arithmetic("Div", "divide", "Return lhs / rhs; integers round toward zero, and by zero give -1 (all bits set).")
Rem = _arithmetic(
    "Rem",
    "remainder",
    "Return the remainder of lhs / rhs: the sign is the dividend's, the absolute value less than the divisor's.",
)
Pow = _arithmetic("Pow", "power", "Return lhs to the power of rhs.")
Max = _arithmetic("Max", "maximum", "Return the larger of both; NaN where one of them is NaN; logical or for PRED.")
Min = _arithmetic("Min", "minimum", "Return the smaller of both; NaN where one of them is NaN; logical and for PRED.")
And = _arithmetic("And", "and", "Return logical and of PRED, bitwise and of integers.")
Or = _arithmetic("Or", "or", "Return logical or of PRED, bitwise or of integers.")
Xor = _arithmetic("Xor", "xor", "Return logical exclusive or of PRED, bitwise exclusive or of integers.")
ShiftLeft = _arithmetic(
    "ShiftLeft", "shift_left", "Return integers lhs shifted left by rhs bits; 0 when rhs is the width or more."
)
ShiftRightArithmetic = _arithmetic(
    "ShiftRightArithmetic",
    "shift_right_arithmetic",
    "Return integers lhs shifted right by rhs bits, the sign bit coming in.",
)
ShiftRightLogical = _arithmetic(
    "ShiftRightLogical", "shift_right_logical", "Return integers lhs shifted right by rhs bits, zeros coming in."
)
Atan2 = _arithmetic("Atan2", "atan2", "The angle of the point (rhs, lhs), in (-pi, pi].")
Complex = _arithmetic("Complex", "complex", "Real parts lhs and imaginary parts rhs, both F32 or F64, as C64 or C128.")


# --- comparison ------------------------------------------------------------------------------------------------------


_TOTAL_ORDER = "TotalOrder"


def _compare(
    builder: XlaBuilder, direction: str, lhs: object, rhs: object, dimensions: Sequence[int], *, total: bool = False
) -> XlaOp:
    left, right = binary_operands(builder, lhs, rhs, dimensions)
    kind = left.tensor.scalar_type.kind
    if kind == "complex" and direction not in ("EQ", "NE"):
        raise ArgumentError("lhs", f"must not be complex, got {Shape.of(left.type).brief}")
    compare_type = {"signed": "SIGNED", "i1": "UNSIGNED", "unsigned": "UNSIGNED"}.get(kind, "FLOAT")
    if total and compare_type == "FLOAT" and kind != "complex":
        compare_type = "TOTALORDER"
    attributes = {"comparison_direction": direction, "compare_type": compare_type}
    return builder.emit_one("stablehlo.compare", [left, right], attributes)


def _comparison(name: str, doc: str) -> BinaryOperation:
    """Declare Eq, Ne, Ge, Gt, Le or Lt (StableHLO's directions), or one of these in the total order."""
    direction = name.removesuffix(_TOTAL_ORDER)
    return _of_two(
        name, "Element-wise comparison operations", doc,
        lambda builder, lhs, rhs, dimensions: _compare(
            builder, direction.upper(), lhs, rhs, dimensions, total=direction != name
        ),
    )  # fmt: skip


Eq = _comparison("Eq", "lhs == rhs as PRED; floats as IEEE 754 says: NaN is unequal to all.")
Ne = _comparison("Ne", "lhs != rhs as PRED.")
Ge = _comparison("Ge", "lhs >= rhs as PRED.")
Gt = _comparison("Gt", "lhs > rhs as PRED.")
Le = _comparison("Le", "lhs <= rhs as PRED.")
Lt = _comparison("Lt", "lhs < rhs as PRED.")

_TOTAL = "{} in the total order -NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN."
EqTotalOrder, NeTotalOrder, GeTotalOrder, GtTotalOrder, LeTotalOrder, LtTotalOrder = (
    _comparison(name + _TOTAL_ORDER, _TOTAL.format(name)) for name in ("Eq", "Ne", "Ge", "Gt", "Le", "Lt")
)


# --- choice and conversion -------------------------------------------------------------------------------------------


@operation
def Select(builder: XlaBuilder, pred: XlaOp, on_true: XlaOp, on_false: XlaOp) -> XlaOp:
    """Return on_true where pred holds, else on_false, of the same shape. `pred` is PRED of that shape, or a scalar.

    Tuples need a scalar `pred`. Source: "Select".
    """
    chooser = checks.kind(checks.array(builder, pred, "pred"), "pred", "of element type PRED", "i1")
    yes, no = builder.value(on_true, "on_true"), builder.value(on_false, "on_false")
    if not Shape.of(yes.type).at_bounds().compatible(Shape.of(no.type).at_bounds()):
        raise ArgumentError(
            "on_false", f"must have the shape of on_true {Shape.of(yes.type).brief}, got {Shape.of(no.type).brief}"
        )
    if isinstance(yes.type, t.TensorType):
        if checks.sizes(chooser) not in ((), checks.sizes(yes)):
            shape = Shape.of(chooser.type).brief
            raise ArgumentError(
                "pred",
                f"must be a scalar or have the dimensions {list(checks.sizes(yes))}, got {shape}",
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
    """Return min(max(operand, min), max). `min` and `max` have the shape of `operand` or are scalars. Source:
    "Clamp"."""
    value = checks.array(builder, operand, "operand")
    bounds = []
    for argument, limit in (("min", min), ("max", max)):
        constant = not isinstance(limit, XlaOp)
        bound = _constant_like(builder, limit, value, argument) if constant else checks.array(builder, limit, argument)
        checks.same_element_type(bound, value, argument)
        if checks.sizes(bound) not in ((), checks.sizes(value)):
            raise ArgumentError(
                argument,
                f"must be a scalar or have the shape {Shape.of(value.type).brief}, got {Shape.of(bound.type).brief}",
            )
        bounds.append(bound)
    return builder.emit_one("stablehlo.clamp", [bounds[0], value, bounds[1]])


@operation
def ConvertElementType(builder: XlaBuilder, operand: XlaOp, new_element_type: ElementLike) -> XlaOp:
    """Return each element converted to `new_element_type`; dimensions are unchanged. Source: "ConvertElementType"."""
    value = checks.array(builder, operand, "operand")
    return builder.emit_one(
        "stablehlo.convert", [value], None, value.tensor.with_element_type(_element(new_element_type))
    )


@operation
def BitcastConvertType(builder: XlaBuilder, operand: XlaOp, new_element_type: ElementLike) -> XlaOp:
    """Return the bits of the elements reinterpreted as `new_element_type`. Source: "BitcastConvertType".

    Converting to a type B/B' times narrower appends a dimension of size B/B'; to a wider one, the last dimension,
    of size B'/B, is removed.
    """
    value = checks.array(builder, operand, "operand")
    element = _element(new_element_type)
    old, new, sizes = value.tensor.scalar_type.bits, element.bits, checks.sizes(value)
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
    """Return floats rounded to a narrower format and back. Source: "ReducePrecision", whose argument order this is.

    `exponent_bits` must be at least 1, `mantissa_bits` at least 0.
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
