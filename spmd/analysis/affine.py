"""Where an element lies: affine forms over loop variables.

An index into a dimension, or an address in a buffer, is `offset + sum(coefficient * variable)`, and where a program
computes indices (dynamic slices, gathers) also `coefficient * expression` of scalar expressions. Movement of data
(slices, transposes, broadcasts, ...) rewrites such forms and leaves nothing to be done while running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spmd.analysis.scalar.expression import I64, Expression, constant, constant_value, is_constant

#: A loop variable: its number among those of a loop nest.
Variable = int


@dataclass(frozen=True, slots=True)
class Affine:
    """`offset + sum(c * variable) + sum(c * expression)`: terms in the order of variables, no coefficient zero."""

    offset: int = 0
    terms: tuple[tuple[Variable, int], ...] = ()
    dynamic: tuple[tuple[Expression, int], ...] = ()

    @staticmethod
    def of(variable: Variable) -> Affine:
        return Affine(0, ((variable, 1),))

    @staticmethod
    def computed(expression: Expression) -> Affine:
        """Return the i64 `expression`, as it is."""
        if is_constant(expression):
            return Affine(int(constant_value(expression)))
        return Affine(0, (), ((expression, 1),))

    @property
    def is_constant(self) -> bool:
        return not self.terms and not self.dynamic

    def __add__(self, other: Affine) -> Affine:
        if not other.terms and not other.dynamic:
            return self.shifted(other.offset)
        if not self.terms and not self.dynamic:
            return other.shifted(self.offset)
        terms = dict(self.terms)
        for variable, coefficient in other.terms:
            terms[variable] = terms.get(variable, 0) + coefficient
        dynamic = dict(self.dynamic)
        for expression, coefficient in other.dynamic:
            dynamic[expression] = dynamic.get(expression, 0) + coefficient
        return Affine(
            self.offset + other.offset,
            tuple(sorted((v, c) for v, c in terms.items() if c)),
            tuple((e, c) for e, c in dynamic.items() if c),
        )

    def shifted(self, offset: int) -> Affine:
        return self if not offset else Affine(self.offset + offset, self.terms, self.dynamic)

    def scaled(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return Affine()
        return Affine(
            self.offset * factor,
            tuple((v, c * factor) for v, c in self.terms),
            tuple((e, c * factor) for e, c in self.dynamic),
        )

    def coefficient(self, variable: Variable) -> int:
        return next((c for v, c in self.terms if v == variable), 0)

    def replaced(self, substitutes: Mapping[Variable, Affine]) -> Affine:
        """Return the form with variables written as others; its expressions are not looked into."""
        affine = Affine(self.offset, (), self.dynamic)
        for variable, coefficient in self.terms:
            affine += substitutes.get(variable, Affine.of(variable)).scaled(coefficient)
        return affine

    def bounds(self, extents: Mapping[Variable, int] | Sequence[int]) -> tuple[int, int] | None:
        """Return the smallest and the largest value, both included; None where an expression takes part."""
        if self.dynamic:
            return None
        low = high = self.offset
        for variable, coefficient in self.terms:
            reach = coefficient * (extents[variable] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def expression(self, position: Callable[[Variable], Expression]) -> Expression:
        """Return the form as a scalar expression of i64; `position` gives a variable's."""
        total = constant(self.offset, I64)
        parts = [(position(v), c) for v, c in self.terms] + list(self.dynamic)
        for part, coefficient in parts:
            scaled = part if coefficient == 1 else part * constant(coefficient, I64)
            total = scaled if is_constant(total, 0) else total + scaled
        return total


def linear(index: Iterable[Affine], strides: Iterable[int]) -> Affine:
    """Return the address of the element at `index` in a buffer of `strides`, in elements."""
    total = Affine()
    for part, stride in zip(index, strides, strict=True):
        total += part.scaled(stride)
    return total


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense buffer of `shape` whose last dimension is the quickest."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class Split(Exception):
    """A variable has to become two loops, the inner one of `size`, before an index is affine."""

    def __init__(self, variable: Variable, size: int) -> None:
        super().__init__(variable, size)
        self.variable = variable
        self.size = size


def divided(form: Affine, size: int, extents: Mapping[Variable, int]) -> tuple[Affine, Affine] | None:
    """Quotient and remainder of `form` by `size`; None where they are not affine. Raises Split where they could be.

    `form` is known to be at least zero.
    """
    if form.dynamic:
        return None
    quotient: list[tuple[Variable, int]] = []
    remainder: list[tuple[Variable, int]] = []
    for variable, coefficient in form.terms:
        (remainder if coefficient % size else quotient).append((variable, coefficient))
    high = form.offset % size
    for variable, coefficient in remainder:
        if coefficient < 0:
            return None
        high += coefficient * (extents[variable] - 1)
    if high >= size:
        for variable, coefficient in remainder:
            inner = size // coefficient
            if size % coefficient == 0 and inner < extents[variable] and extents[variable] % inner == 0:
                raise Split(variable, inner)
        return None
    return (
        Affine(form.offset // size, tuple((v, c // size) for v, c in quotient)),
        Affine(form.offset % size, tuple(remainder)),
    )
