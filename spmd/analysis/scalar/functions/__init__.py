"""Functions of floats, each defined in terms of primitives that processors have.

A definition is branch-free (except for `rarely`), so that it can be vectorized; it is accurate to two ULPs and gives
the results of C's functions for NaN, infinities, zeros and subnormals.
"""

from __future__ import annotations

from functools import cache

from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, expression, parameter, substitute, walk
from spmd.analysis.scalar.functions import (
    bessel,
    error,
    exponential,
    gamma,
    integer_power,
    inverse,
    logarithm,
    power,
    trigonometric,
)
from spmd.analysis.scalar.functions.table import DEFINITIONS

#: Modules imported because they register DEFINITIONS.
_FILES = (bessel, error, exponential, gamma, integer_power, inverse, logarithm, power, trigonometric)


__all__ = ["DEFINITIONS", "definition", "expand"]


@cache
def definition(function: Primitive, type: MachineType) -> Expression:
    """Return the function of parameters 0, 1, ... of `type`, in terms of primitives and other functions."""
    formula, arity = DEFINITIONS[function]
    return formula(*(parameter(index, type) for index in range(arity)))


def expand(roots: list[Expression]) -> list[Expression]:
    """Return `roots` with every function replaced by its definition."""
    expressions: dict[Expression, Expression] = {}
    for node in walk(roots):
        operands = [expressions[operand] for operand in node.operands]
        if node.primitive.is_function:
            (body,) = expand([definition(node.primitive, node.type)])
            (expressions[node],) = substitute([body], operands)
        elif operands:
            expressions[node] = expression(node.primitive, node.type, operands, node.attribute)
        else:
            expressions[node] = node
    return [expressions[root] for root in roots]
