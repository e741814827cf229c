"""Builders of expressions, one per primitive, and small compositions of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

from spmd.analysis.scalar.expression import (
    F32,
    F64,
    I1,
    I16,
    Expression,
    MachineType,
    Operand,
    Primitive,
    as_expression,
    constant,
    constant_bits,
    constant_value,
    expression,
    is_constant,
)

Unary = Callable[[Expression], Expression]
Binary = Callable[[Expression, Expression], Expression]


def _unary(primitive: Primitive) -> Unary:
    return lambda x: expression(primitive, x.type, (x,))


def _binary(primitive: Primitive) -> Binary:
    return lambda x, y: expression(primitive, x.type, (x, y))


rem = _binary(Primitive.REM)
sdiv, udiv, srem, urem = (_binary(p) for p in (Primitive.SDIV, Primitive.UDIV, Primitive.SREM, Primitive.UREM))
smax, smin, umax, umin = (_binary(p) for p in (Primitive.SMAX, Primitive.SMIN, Primitive.UMAX, Primitive.UMIN))
shl, lshr, ashr = (_binary(p) for p in (Primitive.SHL, Primitive.LSHR, Primitive.ASHR))
ctpop, ctlz, abs_, sqrt = (_unary(p) for p in (Primitive.CTPOP, Primitive.CTLZ, Primitive.ABS, Primitive.SQRT))
floor, ceil, trunc, rint = (_unary(p) for p in (Primitive.FLOOR, Primitive.CEIL, Primitive.TRUNC, Primitive.RINT))
copysign = _binary(Primitive.COPYSIGN)


def fma(x: Operand, y: Expression, z: Operand) -> Expression:
    """Return x * y + z, rounded once."""
    return expression(Primitive.FMA, y.type, (as_expression(x, y.type), y, as_expression(z, y.type)))


def call(function: Primitive, *operands: Expression) -> Expression:
    """Return a call of a function of floats, in its operands' type."""
    return expression(function, operands[0].type, operands)


def like(value: float, x: Expression) -> Expression:
    """Return the constant `value` in the type of `x`."""
    return constant(value, x.type)


def table(index: Expression, values: Sequence[float], type: MachineType) -> Expression:
    """Return `values[index]` for an i32 `index`, which must be in range."""
    bits = tuple(constant(value, type).attribute for value in values)
    return expression(Primitive.TABLE, type, (index,), bits)


# --- choices and comparisons -----------------------------------------------------------------------------------------


def select(chosen: Expression, x: Operand, y: Operand) -> Expression:
    """Return x if `chosen` (an i1), else y; one of them may be a number."""
    if x is y and isinstance(x, Expression):
        return x
    first, second = _of_one_type(x, y)
    if is_constant(chosen):
        return first if chosen.attribute else second
    return expression(Primitive.SELECT, first.type, (chosen, first, second))


def rarely(chosen: Expression, x: Operand, y: Operand) -> Expression:
    """Return `select` for an expensive x that is seldom chosen: back ends may skip it if no lane chooses it."""
    first, second = _of_one_type(x, y)
    return expression(Primitive.RARELY, first.type, (chosen, first, second))


def _of_one_type(x: Operand, y: Operand) -> tuple[Expression, Expression]:
    """Return both as expressions of one type; raises TypeError if both are numbers."""
    if isinstance(x, Expression):
        return x, as_expression(y, x.type)
    if isinstance(y, Expression):
        return as_expression(x, y.type), y
    raise TypeError("two numbers have no machine type")


def compare(predicate: str, x: Expression, y: Operand) -> Expression:
    """Return a comparison, an i1; `predicate` is one of COMPARE_FLOAT's or COMPARE_INTEGER's."""
    primitive = Primitive.COMPARE_FLOAT if x.type.is_float else Primitive.COMPARE_INTEGER
    return expression(primitive, I1, (x, as_expression(y, x.type)), predicate)


def is_nan(x: Expression) -> Expression:
    return compare("uno", x, x)


def all_of(*conditions: Expression) -> Expression:
    return reduce(operator.and_, conditions)


def any_of(*conditions: Expression) -> Expression:
    return reduce(operator.or_, conditions)


# --- maxima ----------------------------------------------------------------------------------------------------------


def maximum(x: Expression, y: Expression) -> Expression:
    """Return the larger float; NaN propagates and -0 < +0."""
    return _extremum(Primitive.MAXIMUM, x, y)


def minimum(x: Expression, y: Expression) -> Expression:
    """Return the smaller float; NaN propagates and -0 < +0."""
    return _extremum(Primitive.MINIMUM, x, y)


def _extremum(primitive: Primitive, x: Expression, y: Expression) -> Expression:
    """Return the larger or smaller float; one comparison suffices if one is a constant, whose sign of zero is known."""
    if is_constant(x):
        x, y = y, x
    if not is_constant(y):
        return expression(primitive, x.type, (x, y))
    value = constant_value(y)
    if value != value:
        return y
    above = primitive is Primitive.MAXIMUM
    ties_to_constant = value == 0 and (str(value)[0] == "-") is not above
    predicate = ("ole" if ties_to_constant else "olt") if above else ("oge" if ties_to_constant else "ogt")
    return select(compare(predicate, x, y), y, x)


# --- conversions -----------------------------------------------------------------------------------------------------


def truncate(x: Expression, type: MachineType) -> Expression:
    """Return the low bits of an integer, which may already have the width of `type`."""
    return _resized(Primitive.TRUNCATE, x, type)


def zero_extend(x: Expression, type: MachineType) -> Expression:
    return _resized(Primitive.ZERO_EXTEND, x, type)


def sign_extend(x: Expression, type: MachineType) -> Expression:
    return _resized(Primitive.SIGN_EXTEND, x, type)


def _resized(primitive: Primitive, x: Expression, type: MachineType) -> Expression:
    """Return an integer in another width, folded if it is constant."""
    if x.type is type:
        return x
    if x.primitive is not Primitive.CONSTANT:
        return expression(primitive, type, (x,))
    assert isinstance(x.attribute, int)
    sign = x.attribute >> (x.type.bits - 1) if primitive is Primitive.SIGN_EXTEND else 0
    return constant(x.attribute - (sign << x.type.bits), type)


def resize(x: Expression, type: MachineType, *, signed: bool) -> Expression:
    """Return an integer in another width, truncated or extended."""
    if x.type.bits >= type.bits:
        return truncate(x, type)
    return sign_extend(x, type) if signed and x.type is not I1 else zero_extend(x, type)


def to_float(x: Expression, type: MachineType, *, signed: bool) -> Expression:
    """Return the float nearest to an integer."""
    signed = signed and x.type is not I1
    return expression(Primitive.SIGNED_TO_FLOAT if signed else Primitive.UNSIGNED_TO_FLOAT, type, (x,))


def to_integer(x: Expression, type: MachineType, *, signed: bool = True) -> Expression:
    """Return a float rounded towards zero; it must be in the range of `type`."""
    return expression(Primitive.FLOAT_TO_SIGNED if signed else Primitive.FLOAT_TO_UNSIGNED, type, (x,))


def extend(x: Expression) -> Expression:
    """Return an f32 as f64, folded if it is constant."""
    if is_constant(x) and (value := constant_value(x)) == value:
        return constant(value, F64)
    return x if x.type is F64 else expression(Primitive.FLOAT_EXTEND, F64, (x,))


def shorten(x: Expression) -> Expression:
    """Return an f64 rounded to f32."""
    return x if x.type is F32 else expression(Primitive.FLOAT_TRUNCATE, F32, (x,))


def bits_of(x: Expression) -> Expression:
    """Return a float's bits as an integer."""
    return expression(Primitive.BITCAST, x.type.integer, (x,))


def float_of(x: Expression) -> Expression:
    """Return the float with these bits, an i32 or i64."""
    return expression(Primitive.BITCAST, F32 if x.type.bits == 32 else F64, (x,))


def to_half(x: Expression) -> Expression:
    return expression(Primitive.FLOAT_TO_HALF, I16, (x,))


def from_half(x: Expression) -> Expression:
    return expression(Primitive.HALF_TO_FLOAT, F32, (x,))


# --- polynomials -----------------------------------------------------------------------------------------------------


def polynomial(x: Expression, coefficients: Sequence[float]) -> Expression:
    """Return the polynomial with `coefficients`, highest power first, by Horner's rule with fused multiply-adds."""
    result = like(coefficients[0], x)
    for coefficient in coefficients[1:]:
        result = fma(result, x, coefficient)
    return result


def shift_left(x: Expression, count: int) -> Expression:
    return shl(x, like(count, x))


def shift_right(x: Expression, count: int, *, signed: bool = False) -> Expression:
    return (ashr if signed else lshr)(x, like(count, x))


def mask(x: Expression, bits: int) -> Expression:
    """Return x & bits."""
    return x & constant_bits(bits, x.type)


def infinity(type: MachineType) -> Expression:
    return constant(float("inf"), type)


def nan(type: MachineType) -> Expression:
    return constant(float("nan"), type)
