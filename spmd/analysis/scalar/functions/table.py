"""The table of definitions of functions."""

from __future__ import annotations

from collections.abc import Callable

from spmd.analysis.scalar.build import extend, shorten
from spmd.analysis.scalar.expression import F32, Expression, Primitive

Definition = Callable[..., Expression]

#: A function's definition, and its number of operands.
DEFINITIONS: dict[Primitive, tuple[Definition, int]] = {}


def define(function: Primitive, arity: int = 1) -> Callable[[Definition], Definition]:
    """Return a decorator that registers the definition of `function` for every type."""

    def register(formula: Definition) -> Definition:
        DEFINITIONS[function] = formula, arity
        return formula

    return register


def in_double(function: Callable[..., Expression]) -> Definition:
    """Return a definition that computes f32 in f64; the last argument of `function` is whether the result is f32."""

    def formula(*operands: Expression) -> Expression:
        if operands[0].type is F32:
            return shorten(function(*map(extend, operands), True))
        return function(*operands, False)

    return formula


def by_width(single: Definition, double: Definition) -> Definition:
    """Return a definition that is `single` on f32 and `double` on f64."""
    return lambda *operands: (single if operands[0].type is F32 else double)(*operands)
