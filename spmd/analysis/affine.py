"""Affine forms over loop variables: the indices and addresses of elements.

An index into a dimension, or an address in a buffer, is `offset + sum(coefficient * variable)`, and where a program
computes indices (dynamic slices, gathers) also `coefficient * expression` of scalar expressions. Ops that move data
(slices, transposes, broadcasts, ...) rewrite such forms at compile time and cost nothing at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from spmd.analysis.scalar.expression import I64, Expression, constant, constant_value, is_constant

#: A loop variable: its index in the loop nest, the outermost being 0.
Variable = int


@dataclass(frozen=True, slots=True)
class Affine:
    """`offset + sum(c * variable) + sum(c * expression)`: terms sorted by variable, without zero coefficients."""

    offset: int = 0
    terms: tuple[tuple[Variable, int], ...] = ()
    dynamic: tuple[tuple[Expression, int], ...] = ()

    @staticmethod
    def of(variable: Variable) -> Affine:
        """Return the form of one variable."""
        return Affine(0, ((variable, 1),))

    @staticmethod
    def computed(expression: Expression) -> Affine:
        """Return the i64 `expression` as a form: an offset if it is constant, else a dynamic term."""
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
        """Return the form plus `offset`."""
        return self if not offset else Affine(self.offset + offset, self.terms, self.dynamic)

    def scaled(self, factor: int) -> Affine:
        """Return the form times `factor`."""
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
        """Return the coefficient of `variable`, 0 if it does not occur."""
        return next((c for v, c in self.terms if v == variable), 0)

    def replaced(self, substitutes: Mapping[Variable, Affine]) -> Affine:
        """Return the form with forms substituted for variables; variables inside expressions are left alone."""
        affine = Affine(self.offset, (), self.dynamic)
        for variable, coefficient in self.terms:
            affine += substitutes.get(variable, Affine.of(variable)).scaled(coefficient)
        return affine

    def bounds(self, extents: Mapping[Variable, int] | Sequence[int]) -> tuple[int, int] | None:
        """Return the smallest and largest value, both inclusive, for variables in [0, extent); None if dynamic."""
        if self.dynamic:
            return None
        low = high = self.offset
        for variable, coefficient in self.terms:
            reach = coefficient * (extents[variable] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def expression(self, position: Callable[[Variable], Expression]) -> Expression:
        """Return the form as a scalar expression of type i64; `position` maps a variable to its value."""
        total = constant(self.offset, I64)
        parts = [(position(v), c) for v, c in self.terms] + list(self.dynamic)
        for part, coefficient in parts:
            scaled = part if coefficient == 1 else part * constant(coefficient, I64)
            total = scaled if is_constant(total, 0) else total + scaled
        return total


def linear(index: Iterable[Affine], strides: Iterable[int]) -> Affine:
    """Return the address, in elements, of the element at `index` in a buffer with `strides`."""
    total = Affine()
    for part, stride in zip(index, strides, strict=True):
        total += part.scaled(stride)
    return total


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense row-major buffer of `shape`; the last dimension is minor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class Split(Exception):
    """Raised when a variable must be split into two loops, the inner one of `size`, to make an index affine."""

    def __init__(self, variable: Variable, size: int) -> None:
        super().__init__(variable, size)
        self.variable = variable
        self.size = size


def divided(form: Affine, size: int, extents: Mapping[Variable, int]) -> tuple[Affine, Affine] | None:
    """Return the quotient and remainder of `form` by `size`, or None if they are not affine.

    `form` must be non-negative. Raises Split if splitting a loop would make them affine.
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


def dilated(
    form: Affine, step: int, extents: Mapping[Variable, int]
) -> tuple[Affine, tuple[Variable, int] | None] | None:
    """Return the quotient of `form` by `step` at multiples of it, and the iteration of a loop that these are.

    The iteration, (variable, number), is None if every point is a multiple. Returns None if multiples are not one
    iteration of a loop. Raises Split if splitting a loop would make them one.
    """
    if step == 1:
        return form, None
    rest = [(variable, coefficient) for variable, coefficient in form.terms if coefficient % step]
    if form.dynamic or len(rest) > 1 or (not rest and form.offset % step):
        return None
    if not rest:
        return Affine(form.offset // step, tuple((v, c // step) for v, c in form.terms)), None
    ((variable, coefficient),) = rest
    if gcd(coefficient, step) > 1:
        return None
    if extents[variable] > step:
        if extents[variable] % step:
            return None
        raise Split(variable, step)
    number = -form.offset * pow(coefficient, -1, step) % step
    whole = form.replaced({variable: Affine(number)})
    return Affine(whole.offset // step, tuple((v, c // step) for v, c in whole.terms)), (variable, number)
