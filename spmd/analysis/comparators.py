"""Recognizes comparators of sorts: their keys, with the direction and order of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spmd.analysis.expressions import COMMUTATIVE, Expression, Expressions
from spmd.ir import Block, Op, Region, Value
from spmd.types import TensorType

#: Bounds of the row length, in elements, for which an unstable sort breaks ties as XLA's quicksort does; shorter and
#: longer rows are sorted stably (spmd/backends/numpy/sort_unstable.py).
LEAST, MOST = 17, 256


@dataclass(frozen=True)
class SortKey:
    """One sort key: the compared value, its direction and its order.

    `value` is the key of the left side in the comparator's block. `operand` is the index of the sort operand that is
    the key, None if the key is computed. `canonical`: all NaNs are equal, and so are zeros (as in JAX's comparators).
    """

    value: Value
    operand: int | None
    descending: bool
    total_order: bool
    canonical: bool


def sort_keys(region: Region) -> tuple[SortKey, ...] | None:
    """Return a comparator's keys, the most significant first; None if it is not a lexicographic order of keys."""
    block = region.block
    return _Comparator(block).keys(block.terminator.operands[0])


class _Comparator:
    def __init__(self, block: Block) -> None:
        self._expressions = Expressions(block)

    def keys(self, value: Value) -> tuple[SortKey, ...] | None:
        op = value.defining_op
        if op is None:
            return None
        if op.name == "stablehlo.compare":
            key = self._key(op)
            return None if key is None else (key,)
        if op.name == "stablehlo.or":
            for strict, rest in (op.operands, op.operands[::-1]):
                inner = rest.defining_op
                if inner is None or inner.name != "stablehlo.and":
                    continue
                for equal, tail in (inner.operands, inner.operands[::-1]):
                    joined = self._joined(strict, equal, "EQ", tail)
                    if joined is not None:
                        return joined
        if op.name == "stablehlo.select":
            condition, yes, no = op.operands
            return self._joined(no, condition, "EQ", yes) or self._joined(yes, condition, "NE", no)
        return None

    def _joined(self, strict: Value, equal: Value, direction: str, tail: Value) -> tuple[SortKey, ...] | None:
        """Return the keys of `strict or (equal and tail)`."""
        first, same = strict.defining_op, equal.defining_op
        if first is None or same is None or first.name != "stablehlo.compare" or same.name != "stablehlo.compare":
            return None
        if same["comparison_direction"] != direction:
            return None
        sides = {repr(self._expressions[side]) for side in first.operands}
        if sides != {repr(self._expressions[side]) for side in same.operands}:
            return None
        key = self._key(first)
        rest = self.keys(tail)
        return None if key is None or rest is None else (key, *rest)

    def _key(self, compare: Op) -> SortKey | None:
        direction = compare["comparison_direction"]
        if direction in ("EQ", "NE"):
            return None
        left, right = compare.operands
        descending = direction in ("GT", "GE")
        expression, other = self._expressions[left], self._expressions[right]
        if expression is None or other is None or _swapped(expression) != other:
            return None
        arguments = _arguments(expression)
        if arguments and all(index % 2 for index in arguments):
            left, expression, descending = right, other, not descending
        elif not arguments or any(index % 2 for index in arguments):
            return None
        plain, canonical = _without_canonicalization(expression)
        operand = plain[1] // 2 if plain[0] == "argument" else None
        return SortKey(left, operand, descending, compare["compare_type"] == "TOTALORDER", canonical)


def _without_canonicalization(expression: Expression) -> tuple[Expression, bool]:
    """Return (x, True) for select(x != x, NaN, select(x == 0, 0, x)), else (`expression`, False)."""
    match expression:
        case ("select", _, ("compare", (_, _, differs), x, same), ("constant", nan_type, nan),
              ("select", _, ("compare", (_, _, equals), *compared), ("constant", zero_type, zero), kept)):  # fmt: skip
            is_nan = x == same == kept and "'NE'" in repr(differs) and _is_nan(nan_type, nan)
            is_zero = "'EQ'" in repr(equals) and x in compared and not any(zero)
            if is_nan and is_zero and ("constant", zero_type, zero) in compared:
                return x, True
    return expression, False


def _is_nan(type: TensorType, data: bytes) -> bool:
    value = np.frombuffer(data, type.dtype)
    return value.size == 1 and bool(value[0] != value[0]) and not bool(np.signbit(value[0].astype(np.float64)))


def _swapped(expression: Expression) -> Expression:
    """Return the expression with the comparator's sides exchanged: arguments 2k and 2k+1."""
    if expression[0] == "argument":
        return ("argument", expression[1] ^ 1)
    if expression[0] in ("constant", "captured"):
        return expression
    name, head, *operands = expression
    swapped = [_swapped(operand) for operand in operands]
    if name in COMMUTATIVE or (name == "compare" and ("'EQ'" in repr(head) or "'NE'" in repr(head))):
        swapped.sort(key=repr)
    return (name, head, *swapped)


def _arguments(expression: Expression) -> set[int]:
    if expression[0] == "argument":
        return {expression[1]}
    if expression[0] in ("constant", "captured"):
        return set()
    return set[int]().union(*(_arguments(operand) for operand in expression[2:]))
