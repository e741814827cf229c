"""Which functions have definitions."""

from __future__ import annotations

from collections.abc import Callable

from spmd.analysis.scalar.build import extend, shorten
from spmd.analysis.scalar.expression import F32, Expression, Primitive

Definition = Callable[..., Expression]

#: A function's definition, and how many operands it takes.
DEFINITIONS: dict[Primitive, tuple[Definition, int]] = {}


def define(function: Primitive, arity: int = 1) -> Callable[[Definition], Definition]:
    """Register the definition of `function` for every type."""

    def register(formula: Definition) -> Definition:
        DEFINITIONS[function] = formula, arity
        return formula

    return register


def in_double(function: Callable[..., Expression]) -> Definition:
    """Return a definition that computes f32 in f64; `function` is told by its last argument whether f32 is what is
    wanted."""

    def formula(*operands: Expression) -> Expression:
        if operands[0].type is F32:
            return shorten(function(*map(extend, operands), True))
        return function(*operands, False)

    return formula


def by_width(single: Definition, double: Definition) -> Definition:
    """`single` on f32, `double` on f64."""
    return lambda *operands: (single if operands[0].type is F32 else double)(*operands)
