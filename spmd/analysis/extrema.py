"""Reductions of pairs (value, index) to the largest or smallest value and its index: argmax, argmin and the like.

The region of such a reduction only compares its arguments and selects among them, so its result depends only on how
its two values and its two indices compare. The ops are evaluated symbolically for each of these few cases; the
resulting table of selected arguments identifies the reduction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from spmd.analysis.constants import constant_array, constant_scalar
from spmd.analysis.expressions import returns_operand
from spmd.analysis.reducers import identity
from spmd.ir import Block, Op, Region, Value
from spmd.types import ElementType, storage_range


@dataclass(frozen=True)
class Extremum:
    """A reduction of (value, index) pairs to the largest or smallest value and its index.

    kind             "maximum" or "minimum"
    total            values are compared as TOTALORDER: -NaN, -inf, ..., -0, +0, ..., inf, NaN
    tie              index of equal values: "low" is the lowest, "first" or "last" that of the first or last argument
    propagates_nan   the first NaN wins; otherwise results with NaN depend on the order. Always true of integers
                     and in total order

    Zeros of different signs are equal unless `total`: `tie` selects the index, but which zero is returned depends on
    the region (see `keeps_first`).
    """

    kind: str
    total: bool
    tie: str
    propagates_nan: bool

    def commutes(self, element: ElementType) -> bool:
        """Return whether the result for values of type `element` is independent of the order of pairs.

        It is not for floats without total order: which of two NaNs or zeros is returned depends on the order.
        """
        return self.tie == "low" and (self.total or not element.is_float)


class _Case(NamedTuple):
    """How two values and two indices compare: -1, 0 or 1 if the first is less, equal or greater."""

    value: int  # comparison of floats, if neither is NaN
    total: int  # comparison in total order
    first_nan: bool
    second_nan: bool
    order: int


#: An element of a pair: ("value" or "index", 0 or 1); booleans are plain bools.
_Symbol = tuple[str, int]

_NUMBERS = ((-1, -1, False, False), (0, 0, False, False), (1, 1, False, False))
#: Zeros of different signs, then NaNs of either sign.
_OF_FLOATS = (
    *((0, total, False, False) for total in (-1, 1)),
    *((0, total, first, not first) for total in (-1, 1) for first in (True, False)),
    *((0, total, True, True) for total in (-1, 0, 1)),
)
_DIRECTIONS = {
    "EQ": (0,),
    "NE": (-1, 1),
    "LT": (-1,),
    "LE": (-1, 0),
    "GT": (1,),
    "GE": (0, 1),
}


def extremum_of(region: Region) -> Extremum | None:
    """Return the extremum that `region`, on (value, index, value, index), computes; None for any other region."""
    if len(region.blocks) != 1 or len(region.block.arguments) != 4 or len(region.block.terminator.operands) != 2:
        return None
    block = region.block
    value, index, other_value, other_index = (argument.tensor.element_type for argument in block.arguments)
    if value is not other_value or index is not other_index:
        return None
    if not isinstance(value, ElementType) or not isinstance(index, ElementType):
        return None
    if not (value.is_float or value.is_integer) or not index.is_integer:
        return None
    ways = (*_NUMBERS, *_OF_FLOATS) if value.is_float else _NUMBERS
    table = {}
    for way, order in product(ways, (-1, 0, 1)):
        case = _Case(*way, order)
        outcome = _outcome(block, case)
        if outcome is None:
            return None
        table[case] = outcome
    return _matching(table, value.is_float)


def keeps_first(op: Op, extremum: Extremum) -> bool:
    """Return whether `op`, a reduce by `extremum`, returns the first of equal floats, NaNs included, with its index.

    This holds if its indices count up along the single reduced dimension and its initial pair loses against every
    other, or ties with it at the same index. Combining then always selects one of the two pairs, by value and then
    by lower index, so the result is one of the operands' pairs in whichever order they are combined.
    """
    if op.name != "stablehlo.reduce" or len(op["dimensions"]) != 1 or extremum.tie != "low" or extremum.total:
        return False
    value, index, initial_value, initial_index = op.operands
    element = value.tensor.element_type
    if not isinstance(element, ElementType) or not element.is_float or element != _element_of_region(op):
        return False
    if not extremum.propagates_nan:
        return False
    worst = identity(extremum.kind, element)
    starts = constant_scalar(initial_value), constant_scalar(initial_index)
    if worst is None or starts[0] is None or starts[1] is None or starts[0] != worst or starts[1] != 0:
        return False
    return counts_along(index, op["dimensions"])


def counts_along(indices: Value, axes: tuple[int, ...]) -> bool:
    """Return whether `indices` count up from 0 along the single dimension in `axes`."""
    type = indices.tensor
    if len(axes) != 1 or not isinstance(type.element_type, ElementType) or not type.element_type.is_integer:
        return False
    if not type.is_static or type.static_shape[axes[0]] - 1 > storage_range(type.element_type)[1]:
        return False
    op = indices.defining_op
    while op is not None and op.name == "stablehlo.broadcast_in_dim":
        if axes[0] not in op["broadcast_dimensions"]:
            return False
        axes = (op["broadcast_dimensions"].index(axes[0]),)
        op = op.operands[0].defining_op
    return op is not None and op.name == "stablehlo.iota" and (op["iota_dimension"],) == axes


def _element_of_region(op: Op) -> object:
    return op.regions[0].block.arguments[0].tensor.element_type


# --- symbolic evaluation ----------------------------------------------------------------------------------------------


def _outcome(block: Block, case: _Case) -> tuple[int, int] | None:
    """Return from which pair the block takes its value and its index; None if unknown."""
    known: dict[Value, Any] = {
        argument: ("value" if k % 2 == 0 else "index", k // 2) for k, argument in enumerate(block.arguments)
    }
    for op in block.ops[:-1]:
        if len(op.results) != 1:
            return None
        operands = [known.get(operand, _boolean(operand)) for operand in op.operands]
        outcome = _boolean(op.result) if not operands else _result(op, operands, case)
        if outcome is None:
            return None
        known[op.result] = outcome
    value, index = (known.get(returned) for returned in block.terminator.operands)
    if not isinstance(value, tuple) or not isinstance(index, tuple) or (value[0], index[0]) != ("value", "index"):
        return None
    return value[1], index[1]


def _boolean(value: Value) -> bool | None:
    """Return the value of a constant of type i1; None for any other value."""
    array = constant_array(value.defining_op)
    return bool(array) if array is not None and array.ndim == 0 and array.dtype.kind == "b" else None


def _result(op: Op, operands: list[Any], case: _Case) -> Any:
    """Return the result of `op`: a boolean, or an element of a pair; None if unknown."""
    if any(operand is None for operand in operands):
        return None
    if returns_operand(op):
        return operands[0]
    name = op.name.removeprefix("stablehlo.")
    if all(isinstance(operand, bool) for operand in operands):
        return _logic(name, operands)
    if name == "select" and isinstance(operands[0], bool):
        return operands[1] if operands[0] else operands[2]
    if name not in ("compare", "maximum", "minimum") or not all(isinstance(operand, tuple) for operand in operands):
        return None
    left, right = operands
    if left[0] != right[0]:
        return None  # compares a value with an index
    if name == "compare":
        return _compared(op, left, right, case)
    return _larger(left, right, case, 1 if name == "maximum" else -1)


def _logic(name: str, operands: list[bool]) -> bool | None:
    if name == "not":
        return not operands[0]
    if name == "select":
        return operands[1] if operands[0] else operands[2]
    if name in ("and", "or", "xor"):
        left, right = operands
        return {"and": left and right, "or": left or right, "xor": left != right}[name]
    return None


def _is_nan(symbol: _Symbol, case: _Case) -> bool:
    return symbol[0] == "value" and (case.first_nan, case.second_nan)[symbol[1]]


def _relation(left: _Symbol, right: _Symbol, case: _Case, *, total: bool) -> int:
    """Return -1, 0 or 1. Neither is NaN unless `total`."""
    if left[1] == right[1]:
        return 0
    relation = case.order if left[0] == "index" else (case.total if total else case.value)
    return relation if left[1] == 0 else -relation


def _compared(op: Op, left: _Symbol, right: _Symbol, case: _Case) -> bool:
    direction, total = op["comparison_direction"], op["compare_type"] == "TOTALORDER"
    if not total and (_is_nan(left, case) or _is_nan(right, case)):
        return bool(direction == "NE")
    return _relation(left, right, case, total=total) in _DIRECTIONS[direction]


def _larger(left: _Symbol, right: _Symbol, case: _Case, sign: int) -> _Symbol:
    """Return the larger of the two (the smaller for sign -1): NaN wins, and zeros are ordered by sign."""
    if _is_nan(left, case) or _is_nan(right, case):
        return left if _is_nan(left, case) else right
    return left if sign * _relation(left, right, case, total=True) >= 0 else right


# --- identification ---------------------------------------------------------------------------------------------------


def _matching(table: dict[_Case, tuple[int, int]], is_float: bool) -> Extremum | None:
    for kind, total, tie in product(("maximum", "minimum"), (False, True), ("low", "first", "last")):
        ordered = [case for case in table if total or not (case.first_nan or case.second_nan)]
        if all(_agrees(table[case], case, kind, tie, total=total) for case in ordered):
            strange = [case for case in table if case not in set(ordered)]
            return Extremum(kind, total and is_float, tie, _propagates(table, strange))
    return None


def _agrees(outcome: tuple[int, int], case: _Case, kind: str, tie: str, *, total: bool) -> bool:
    relation = case.total if total else case.value
    if relation:
        winner = int((relation > 0) != (kind == "maximum"))
        return outcome == (winner, winner)
    # The values are equal: either may be returned (zeros: see Extremum), and so may either of two equal indices.
    index_kept = {"low": int(case.order > 0), "first": 0, "last": 1}[tie]
    return outcome[1] == index_kept or case.order == 0


def _propagates(table: dict[_Case, tuple[int, int]], strange: Iterable[_Case]) -> bool:
    """Return whether the first NaN wins with its own index."""
    for case in strange:
        winner = 0 if case.first_nan else 1
        value, index = table[case]
        one_nan = case.first_nan != case.second_nan
        if (index != winner and case.order) or (one_nan and value != winner):
            return False
    return True
