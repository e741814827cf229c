"""Recognizes what reduction regions compute, from their ops, without evaluating them.

Shared by kernels, collectives, the partitioner, the compiler's passes and the back ends. A region is a monoid if it
applies one associative and commutative op to its two arguments, in either order, and returns the result; a variadic
region is one monoid per result if each result depends on its own pair only. Ops that return a scalar unchanged (a
convert to the same type, a reshape) are skipped. A body that converts to another type in between is not a monoid: it
rounds where the op alone would not.
Source: StableHLO specification, "reduce" and the other ops with a reduction region.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from spmd.analysis.expressions import Expression, Expressions
from spmd.ir import Region, Value
from spmd.support.arrays import Array, DType, extreme
from spmd.types import F32, ElementType, storage_range

#: Names of associative ops, without their dialect.
KINDS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")


@dataclass(frozen=True)
class Monoid:
    """An associative op on elements of one type, commutative if `commutes`; `kind` is its name without dialect.

    `element` is the region's type, to which operands are converted first. On i1, add and maximum are OR, multiply and
    minimum are AND. Maximum and minimum propagate NaN and order zeros by sign.
    """

    kind: str
    element: ElementType

    @property
    def op(self) -> str:
        """The op's full name."""
        return f"stablehlo.{self.kind}"

    @property
    def accumulator(self) -> ElementType:
        """The type to accumulate in: f32 for sums and products of floats of at most 16 bits, else `element`.

        A result accumulated in f32 is rounded once, not after each step as in the specification's loop: it is never
        less accurate, it is what XLA does, and it hardly depends on the grouping of elements, so that a reduce, a
        reduce_window, a scatter and an all_reduce of the same elements agree.
        """
        narrow = self.element.is_float and self.element.bits <= 16
        return F32 if narrow and self.kind in ("add", "multiply") else self.element

    @property
    def idempotent(self) -> bool:
        """Whether an element combined with itself is itself."""
        return self.kind in ("maximum", "minimum", "and", "or") or (self.element.is_boolean and self.kind != "xor")

    @property
    def commutes(self) -> bool:
        """Whether the result has the same bits in any order, rounding aside.

        Maximum and minimum of complex numbers with NaN, or with parts that are zeros of both signs, keep the first.
        """
        return not (self.element.is_complex and self.kind in ("maximum", "minimum"))

    @cached_property
    def identity(self) -> Array | None:
        """The identity, a 0-d array; None if the type has none. For sums of floats it is -0.0, since 0.0 would turn
        a sum of -0.0 alone into 0.0."""
        return identity(self.kind, self.element)


def monoid_of(region: Region) -> Monoid | None:
    """Return the monoid that a region of two arguments and one result computes; None for any other region."""
    monoids = monoids_of(region)
    return monoids[0] if monoids is not None and len(monoids) == 1 else None


def monoids_of(region: Region) -> list[Monoid] | None:
    """Return the monoid of each pair of a region on n accumulators and n elements, if its results are independent.

    Return None for any other region.
    """
    if len(region.blocks) != 1:
        return None
    arguments, returned = region.block.arguments, region.block.terminator.operands
    count = len(returned)
    if not count or len(arguments) != 2 * count:
        return None
    expressions = Expressions(region.block)
    monoids = [_monoid(expressions[returned[k]], arguments[k], k, k + count) for k in range(count)]
    return None if None in monoids else [monoid for monoid in monoids if monoid is not None]


def scan_monoid(region: Region) -> Monoid | None:
    """Return the monoid that a scan's body applies to input and carry, returning it twice; None for any other body."""
    if len(region.blocks) != 1 or len(region.block.arguments) != 2 or len(region.block.terminator.operands) != 2:
        return None
    expressions = Expressions(region.block)
    result, carry = (expressions[value] for value in region.block.terminator.operands)
    return _monoid(result, region.block.arguments[0], 0, 1) if result == carry else None


def _monoid(expression: Expression | None, argument: Value, left: int, right: int) -> Monoid | None:
    element = argument.tensor.element_type
    if expression is None or len(expression) != 4 or expression[0] not in KINDS or not isinstance(element, ElementType):
        return None
    operands = {expression[2], expression[3]}
    if operands != {("argument", left), ("argument", right)} or len(operands) != 2:
        return None
    return Monoid(str(expression[0]), element)


def binary_of(region: Region) -> str | None:
    """Return the name, without dialect, of the single op that `region` applies to its arguments in order, or None."""
    if len(region.blocks) != 1 or len(region.block.arguments) != 2:
        return None
    returned = region.block.terminator.operands
    if len(returned) != 1:
        return None
    expression = Expressions(region.block)[returned[0]]
    if expression is None or len(expression) != 4 or expression[2:] != (("argument", 0), ("argument", 1)):
        return None
    return str(expression[0])


def returned_argument(region: Region) -> int | None:
    """Return the index of the argument that `region` returns unchanged (1 for an overwriting scatter), or None."""
    returned = region.block.terminator.operands
    if len(returned) == 1:
        expression = Expressions(region.block)[returned[0]]
        if expression is not None and expression[0] == "argument":
            return int(expression[1])
    return None


# --- identities ------------------------------------------------------------------------------------------------------


def identity(kind: str, element: ElementType) -> Array | None:
    """Return the identity of the monoid `kind` on elements of a type, as a 0-d array; None if there is none."""
    if element.numpy is None:
        return None
    if element.is_float:
        return _of_floats(kind, element.numpy)
    if element.is_complex:
        return _of_complex(kind, element)
    return np.array(_of_integers(kind, element), element.numpy)


def _of_integers(kind: str, element: ElementType) -> Any:
    if kind in ("add", "or", "xor"):
        return 0
    if element.is_boolean:
        return kind in ("multiply", "and", "minimum")
    if kind == "multiply":
        return 1
    low, high = storage_range(element)
    if kind == "and":
        return -1 if low < 0 else high
    return low if kind == "maximum" else high


def _of_floats(kind: str, dtype: DType) -> Array | None:
    if kind == "multiply":
        return np.array(1, dtype)
    if kind == "add":
        zeros = [zero for zero in (np.array(-0.0, dtype), np.array(0.0, dtype)) if zero == 0]
        return zeros[0] if zeros else None  # f8E8M0FNU has no zero
    if kind not in ("maximum", "minimum"):
        return None
    return extreme(dtype, largest=kind == "minimum")


def _of_complex(kind: str, element: ElementType) -> Array | None:
    part = _of_floats(kind, element.real.dtype)
    if part is None:
        return None
    array = np.zeros((), element.dtype)
    array.real, array.imag = part, 0 if kind == "multiply" else part
    return array
