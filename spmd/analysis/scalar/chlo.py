"""Scalar rules of CHLO's elementwise ops: special and inverse functions, predicates, next_after, mulhi, constants.

Source: StableHLO's CHLO dialect (docs/generated/chlo.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.scalar import build as b
from spmd.analysis.scalar import complex as z
from spmd.analysis.scalar.build import compare, like, select
from spmd.analysis.scalar.elements import Element, decode, encode, round_to
from spmd.analysis.scalar.expression import Primitive
from spmd.analysis.scalar.integer import high_product
from spmd.analysis.scalar.rules import ScalarRule, element_of, function, rule
from spmd.ir import Op
from spmd.types import BF16, F16

UNARY: dict[str, ScalarRule] = {
    "chlo.acos": function(Primitive.ACOS),
    "chlo.acosh": function(Primitive.ACOSH),
    "chlo.asin": function(Primitive.ASIN),
    "chlo.asinh": function(Primitive.ASINH),
    "chlo.atan": function(Primitive.ATAN),
    "chlo.atanh": function(Primitive.ATANH),
    "chlo.bessel_i1e": function(Primitive.BESSEL_I1E, doubled=frozenset({F16, BF16})),  # x / 2 of subnormals is a tie
    "chlo.conj": ScalarRule(lambda x: x, z.conjugate, exact=True),
    "chlo.cosh": function(Primitive.COSH, z.cosh),
    "chlo.digamma": function(Primitive.DIGAMMA),
    "chlo.erf": function(Primitive.ERF),
    "chlo.erf_inv": function(Primitive.ERF_INV),
    "chlo.erfc": function(Primitive.ERFC, doubled=frozenset({F16, BF16})),  # f32 has no subnormal results
    "chlo.lgamma": function(Primitive.LGAMMA),
    "chlo.sinh": function(Primitive.SINH, z.sinh),
    "chlo.square": ScalarRule(lambda x: x * x, z.square),
    "chlo.tan": function(Primitive.TAN, z.tan),
}


@rule(*UNARY)
def unary(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    element = UNARY[op.name].compute(element_of(op), operands)
    return None if element is None else [element]


@rule("chlo.is_inf")
def is_inf(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    value = operands[0][0]
    return [(compare("oeq", b.abs_(value), b.infinity(value.type)),)]


@rule("chlo.is_pos_inf")
def is_pos_inf(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    value = operands[0][0]
    return [(compare("oeq", value, b.infinity(value.type)),)]


@rule("chlo.is_neg_inf")
def is_neg_inf(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    value = operands[0][0]
    return [(compare("oeq", value, -b.infinity(value.type)),)]


@rule("chlo.mulhi")
def mulhi(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Return the upper half of the full product of two integers."""
    element_type = element_of(op)
    return [round_to((high_product(operands[0][0], operands[1][0], element_type),), element_type)]


@rule("chlo.next_after")
def next_after(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Return the number next to x towards y; y if they are equal, NaN if either is NaN."""
    element_type = element_of(op)
    if element_type.bits < 32 and element_type not in (F16, BF16):
        return None
    (x,), (y,) = operands
    code = encode((x,), element_type)[0]
    bits = b.bits_of(code) if code.type.is_float else code
    other = encode((y,), element_type)[0]
    other_bits = b.bits_of(other) if other.type.is_float else other
    sign = 1 << (bits.type.bits - 1)
    outwards = compare("ogt", y, x) ^ compare("olt", x, 0)
    step = select(outwards, like(1, bits), -1)
    least = b.mask(other_bits, sign) | 1
    moved = select(compare("oeq", x, 0), least, bits + step)
    back = b.float_of(moved) if code.type.is_float else moved
    value = select(compare("oeq", x, y), y, decode((back,), element_type)[0])
    return [(select(compare("uno", x, y), b.nan(x.type), value),)]
