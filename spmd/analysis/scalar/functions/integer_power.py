"""Powers of integers."""

from __future__ import annotations

from spmd.analysis.scalar.build import compare, like, mask, select, shift_right
from spmd.analysis.scalar.expression import Expression, Primitive
from spmd.analysis.scalar.functions.table import define


@define(Primitive.INTEGER_POWER, 2)
def integer_power(x: Expression, exponent: Expression) -> Expression:
    """Return x to the power of an unsigned exponent, wrapping: squaring, one step per bit of the exponent."""
    result, square = like(1, x), x
    for bit in range(x.type.bits):
        odd = compare("ne", mask(shift_right(exponent, bit), 1), 0)
        result = select(odd, result * square, result)
        square = square * square
    return result
