"""Functions of floats, each a definition over the primitives that processors have.

A definition is branch-free (but for what `rarely` tells of), so that it runs on vectors; it is within two units in
the last place, and gives what C's functions give for NaN, infinities, zeros and subnormal numbers.
"""

from __future__ import annotations

from functools import cache

from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, expression, parameter, substitute, walk
from spmd.analysis.scalar.functions import (
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

#: The modules whose definitions stand in DEFINITIONS.
_FILES = (error, exponential, gamma, integer_power, inverse, logarithm, power, trigonometric)


__all__ = ["DEFINITIONS", "definition", "expand"]


@cache
def definition(function: Primitive, type: MachineType) -> Expression:
    """Return the function of parameters 0, 1, ... of `type`, over primitives and other functions."""
    formula, arity = DEFINITIONS[function]
    return formula(*(parameter(index, type) for index in range(arity)))


def expand(roots: list[Expression]) -> list[Expression]:
    """`roots` with every function replaced by its definition."""
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
