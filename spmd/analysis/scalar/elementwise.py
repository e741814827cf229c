"""Scalar rules of StableHLO's elementwise ops, as expressions over scalar primitives.

The tables map each op to its function for each kind of element type. spmd.analysis.scalar.rules extends functions of
f32 and f64 to the narrower types. Source: StableHLO specification, "Ops".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction

from spmd.analysis.scalar import build as b
from spmd.analysis.scalar import chlo, conversion, integer, quantization
from spmd.analysis.scalar import complex as z
from spmd.analysis.scalar.build import compare, like, select
from spmd.analysis.scalar.elements import Element, round_to
from spmd.analysis.scalar.expression import F32, Expression, Primitive, constant, constant_value, is_constant
from spmd.analysis.scalar.rules import HALF, NARROW, RULES, ScalarRule, element_of, function, rule
from spmd.ir import Op
from spmd.types import ElementType

#: Modules imported because they register rules in RULES.
_FILES = (chlo, conversion, quantization)


def compute(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Return the elements of the results of `op` at one index, given its operands' elements there.

    None if the op is not elementwise, or has no scalar form on its types.
    """
    scalar_rule = RULES.get(op.name)
    if scalar_rule is None:
        return None
    if any(value.tensor.is_quantized for value in (*op.operands, *op.results)):
        return quantization.on_floats(op, operands)
    return scalar_rule(op, operands)


def has_scalar_form(name: str) -> bool:
    """Return whether ops of that name have a scalar rule."""
    return name in RULES


# --- tables ----------------------------------------------------------------------------------------------------------


def _real_sign(x: Expression) -> Expression:
    """Return -1 or 1; a zero or NaN unchanged."""
    return select(compare("one", x, 0), b.copysign(like(1, x), x), x)


def _rsqrt(x: Expression) -> Expression:
    return 1 / b.sqrt(x)


def _round_half_away(x: Expression) -> Expression:
    """Return the nearest integer, ties away from zero."""
    whole = b.trunc(x)
    away = compare("oge", b.abs_(x - whole), 0.5)
    size = b.abs_(whole)
    return b.copysign(select(away, size + 1, size), x)


#: Primitives whose results are integral floats.
_WHOLE = (Primitive.SIGNED_TO_FLOAT, Primitive.UNSIGNED_TO_FLOAT)


def _power(x: Expression, y: Expression) -> Expression:
    """Return x^y; a square is a product, whether or not the exponent is a literal."""
    if is_constant(y, 2):
        return x * x
    return b.call(Primitive.POW, x, y)


def _quotient(x: Expression, y: Expression) -> Expression:
    """Return x / y, without a division if x is an integer's float and y a constant of few digits, as in image code.

    The reciprocal, as the sum of two floats, is accurate to 2^(1 - 2p) relative, p being the float's precision, and so
    is the quotient that `fma` rounds. A tie between two floats has p + 1 digits, and its product with y more than p, so
    x differs from it: if y has k digits, by at least 2^(-p - 1 - k) relative. With k at most p - 8 the result is that
    of the division. Nothing overflows or becomes subnormal, and zeros keep their sign.
    """
    if x.primitive not in _WHOLE or not is_constant(y):
        return x / y
    divisor, digits = float(constant_value(y)), 24 if y.type is F32 else 53
    if not 2.0**-40 <= divisor <= 2.0**40 or Fraction(divisor).numerator.bit_length() > digits - 8:
        return x / y
    exact = 1 / Fraction(divisor)
    high = constant(float(exact), y.type)
    low = constant(float(exact - Fraction(constant_value(high))), y.type)
    return b.fma(x, high, x * low) if not is_constant(low, 0) else x * high


UNARY: dict[str, ScalarRule] = {
    "stablehlo.abs": ScalarRule(b.abs_, signed=integer.absolute, exact=True),
    "stablehlo.cbrt": function(Primitive.CBRT, z.cbrt),
    "stablehlo.ceil": ScalarRule(b.ceil),
    "stablehlo.cosine": function(Primitive.COS, z.cos),
    "stablehlo.exponential": function(Primitive.EXP, z.exp),
    "stablehlo.exponential_minus_one": function(Primitive.EXPM1, z.expm1),
    "stablehlo.floor": ScalarRule(b.floor),
    "stablehlo.log": function(Primitive.LOG, z.log),
    "stablehlo.log_plus_one": function(Primitive.LOG1P, z.log1p),
    "stablehlo.logistic": function(Primitive.LOGISTIC, z.logistic),
    "stablehlo.negate": ScalarRule(operator.neg, z.negative, integer.negate, integer.negate, exact=True),
    "stablehlo.not": ScalarRule(signed=operator.invert, unsigned=operator.invert, boolean=operator.invert),
    "stablehlo.round_nearest_afz": ScalarRule(_round_half_away),
    "stablehlo.round_nearest_even": ScalarRule(b.rint),
    "stablehlo.rsqrt": ScalarRule(_rsqrt, z.rsqrt, doubled=HALF),
    "stablehlo.sign": ScalarRule(_real_sign, z.sign, signed=integer.sign, exact=True),
    "stablehlo.sine": function(Primitive.SIN, z.sin),
    "stablehlo.sqrt": ScalarRule(b.sqrt, z.sqrt_),
    "stablehlo.tan": function(Primitive.TAN, z.tan),
    "stablehlo.tanh": function(Primitive.TANH, z.tanh),
}

BINARY: dict[str, ScalarRule] = {
    "stablehlo.add": ScalarRule(operator.add, z.plus, operator.add, operator.add, operator.or_),
    "stablehlo.and": ScalarRule(signed=operator.and_, unsigned=operator.and_, boolean=operator.and_),
    "stablehlo.atan2": function(Primitive.ATAN2, z.atan2, NARROW),
    "stablehlo.divide": ScalarRule(_quotient, z.divide, integer.divide_signed, integer.divide_unsigned),
    "stablehlo.maximum": ScalarRule(b.maximum, z.maximum, b.smax, b.umax, operator.or_, exact=True),
    "stablehlo.minimum": ScalarRule(b.minimum, z.minimum, b.smin, b.umin, operator.and_, exact=True),
    "stablehlo.multiply": ScalarRule(operator.mul, z.times, operator.mul, operator.mul, operator.and_),
    "stablehlo.or": ScalarRule(signed=operator.or_, unsigned=operator.or_, boolean=operator.or_),
    "stablehlo.power": ScalarRule(_power, z.power, integer.power_signed, integer.power_unsigned, doubled=NARROW),
    "stablehlo.remainder": ScalarRule(b.rem, z.remainder, integer.remainder_signed, integer.remainder_unsigned),
    "stablehlo.subtract": ScalarRule(operator.sub, z.minus, operator.sub, operator.sub),
    "stablehlo.xor": ScalarRule(signed=operator.xor, unsigned=operator.xor, boolean=operator.xor),
}


@rule(*UNARY)
def unary(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    if op.name == "stablehlo.abs" and element_of(op).is_complex:
        return [(z.absolute(operands[0]),)]
    return _listed(UNARY[op.name].compute(element_of(op), operands))


@rule(*BINARY)
def binary(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    return _listed(BINARY[op.name].compute(element_of(op), operands))


def _listed(element: Element | None) -> list[Element] | None:
    return None if element is None else [element]


#: Functions of integers that depend on the element type.
_INTEGER: dict[str, Callable[..., Expression]] = {
    "stablehlo.count_leading_zeros": integer.count_leading_zeros,
    "stablehlo.popcnt": integer.population_count,
    "stablehlo.shift_left": integer.shift_left,
    "stablehlo.shift_right_arithmetic": integer.shift_right_arithmetic,
    "stablehlo.shift_right_logical": integer.shift_right_logical,
}


@rule(*_INTEGER)
def of_integers(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    element_type = element_of(op)
    if not element_type.is_integer:
        return None
    value = _INTEGER[op.name](*(operand[0] for operand in operands), element_type)
    return [round_to((value,), element_type)]


@rule("stablehlo.is_finite")
def is_finite(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    value = operands[0][0]
    return [(compare("olt", b.abs_(value), b.infinity(value.type)),)]


# --- comparison and choice -------------------------------------------------------------------------------------------


@rule("stablehlo.compare")
def comparison(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Compare as IEEE-754 (FLOAT) or by its total order (TOTALORDER); integers by the sign of the element type."""
    return [(compared(op["comparison_direction"], op["compare_type"], element_of(op), *operands),)]


def compared(
    direction: str, compare_type: str | None, element_type: ElementType, left: Element, right: Element
) -> Expression:
    """Return the comparison of two elements, an i1; `direction` is EQ, NE, GE, GT, LE or LT."""
    if element_type.is_complex:
        return z.compared(direction, left, right)
    x, y = left[0], right[0]
    if element_type.is_float:
        if compare_type != "TOTALORDER":
            return _float_comparison(direction, x, y)
        return _integer_comparison(direction, _order_key(x), _order_key(y), signed=True)
    return _integer_comparison(direction, x, y, signed=element_type.is_signed or element_type.is_index)


def _float_comparison(direction: str, x: Expression, y: Expression) -> Expression:
    return compare("une" if direction == "NE" else "o" + direction.lower(), x, y)


def _integer_comparison(direction: str, x: Expression, y: Expression, *, signed: bool) -> Expression:
    predicate = direction.lower()
    return compare(predicate if predicate in ("eq", "ne") else ("s" if signed else "u") + predicate, x, y)


def _order_key(x: Expression) -> Expression:
    """Return a signed integer that orders floats by their total order."""
    bits = b.bits_of(x)
    sign = b.shift_right(bits, bits.type.bits - 1, signed=True)
    return bits ^ b.shift_right(sign, 1)


@rule("stablehlo.select")
def choose(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    (chosen,), on_true, on_false = operands
    return [tuple(select(chosen, x, y) for x, y in zip(on_true, on_false, strict=True))]


@rule("stablehlo.clamp")
def clamp(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Return minimum(maximum(operand, min), max)."""
    low, value, high = operands
    element_type = element_of(op, 1)
    raised = BINARY["stablehlo.maximum"].compute(element_type, (value, low))
    return None if raised is None else _listed(BINARY["stablehlo.minimum"].compute(element_type, (raised, high)))


# --- parts of complex numbers ----------------------------------------------------------------------------------------


@rule("stablehlo.complex")
def complex_(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    return [(operands[0][0], operands[1][0])]


@rule("stablehlo.real")
def real(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    return [operands[0][:1]]


@rule("stablehlo.imag")
def imag(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Return the imaginary part; zero if the operand is real."""
    return [operands[0][1:] or (like(0, operands[0][0]),)]
