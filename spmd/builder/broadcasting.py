"""Broadcasting of two operands, exactly as XLA's broadcasting semantics say: nothing is guessed.

1. A scalar goes with any array.
2. Ranks that differ need broadcast_dimensions: for each dimension of the lower-rank operand, the dimension of the
   higher-rank one that it matches; strictly increasing; matched sizes are equal, or one of them is 1.
3. Ranks that agree broadcast along degenerate dimensions: where sizes differ, one of them is 1.
2 and 3 compose: the dimensions that 2 leaves unmatched have size 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spmd import types as t
from spmd.builder import checks
from spmd.builder.bounded import moved
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.ir import Value

Sizes = tuple[int, ...]


def broadcast_pair(
    builder: XlaBuilder, lhs: Value, rhs: Value, broadcast_dimensions: Sequence[int] = ()
) -> tuple[Value, Value]:
    """Both operands at the shape of the result. Raises ArgumentError, which names the rule that is broken."""
    dimensions = tuple(int(d) for d in broadcast_dimensions)
    ranks = lhs.tensor.rank, rhs.tensor.rank
    if ranks[0] == ranks[1]:
        if dimensions and dimensions != tuple(range(ranks[0])):
            raise ArgumentError(
                "broadcast_dimensions",
                f"{list(dimensions)} given for operands of one rank {ranks[0]}: they match operands of different ranks "
                f"(for equal ranks only {list(range(ranks[0]))}, which changes nothing, is allowed)",
            )
        left, right = _own(lhs), _own(rhs)
    elif ranks[0] < ranks[1]:
        left, right = _matched(lhs, rhs, dimensions, "lhs"), _own(rhs)
    else:
        left, right = _own(lhs), _matched(rhs, lhs, dimensions, "rhs")
    result = _degenerate(left, right, lhs, rhs)
    return _to(builder, lhs, left, result), _to(builder, rhs, right, result)


class _Placed:
    """An operand raised to the result's rank: its sizes there, and where its own dimensions went."""

    def __init__(self, sizes: Sizes, dimensions: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.dimensions = dimensions


def _own(value: Value) -> _Placed:
    return _Placed(checks.sizes(value), tuple(range(value.tensor.rank)))


def _matched(low: Value, high: Value, dimensions: tuple[int, ...], argument: str) -> _Placed:
    """Rules 1 and 2: `low` raised to the rank of `high`."""
    low_sizes, high_sizes = checks.sizes(low), checks.sizes(high)
    if low.tensor.rank == 0 and not dimensions:
        return _Placed((1,) * len(high_sizes), ())
    if not dimensions:
        raise ArgumentError(
            "broadcast_dimensions",
            f"operands of different ranks, {list(low_sizes)} and {list(high_sizes)}, need broadcast_dimensions that "
            f"say which dimensions {argument} matches (only a scalar is broadcast without)",
        )
    if len(dimensions) != len(low_sizes):
        raise ArgumentError(
            "broadcast_dimensions",
            f"{len(dimensions)} entries for {argument} of rank {len(low_sizes)}: one a dimension of the lower rank",
        )
    for number in dimensions:
        if not 0 <= number < len(high_sizes):
            raise ArgumentError(
                "broadcast_dimensions", f"{number} is no dimension of an operand of rank {len(high_sizes)}"
            )
    if any(a >= b for a, b in pairwise(dimensions)):
        raise ArgumentError("broadcast_dimensions", f"{list(dimensions)} must be strictly increasing")
    sizes: list[int] = [1] * len(high_sizes)
    for own, number in enumerate(dimensions):
        if low_sizes[own] != high_sizes[number] and 1 not in (low_sizes[own], high_sizes[number]):
            raise ArgumentError(
                "broadcast_dimensions",
                f"dimension {own} of {argument} has size {low_sizes[own]}, dimension {number} that it matches has size "
                f"{high_sizes[number]}: matched sizes must be equal, or one of them 1",
            )
        sizes[number] = low_sizes[own]
    return _Placed(tuple(sizes), dimensions)


def _degenerate(left: _Placed, right: _Placed, lhs: Value, rhs: Value) -> Sizes:
    """Rule 3: the larger of both sizes in every dimension."""
    result: list[int] = []
    for number, (one, two) in enumerate(zip(left.sizes, right.sizes, strict=True)):
        if one != two and 1 not in (one, two):
            shapes = f"{list(checks.sizes(lhs))} and {list(checks.sizes(rhs))}"
            raise ArgumentError(
                "rhs",
                f"shapes {shapes} are incompatible in dimension {number}: sizes {one} and {two} differ, neither is 1",
            )
        result.append(two if one == 1 else one)
    return tuple(result)


def _to(builder: XlaBuilder, value: Value, placed: _Placed, sizes: Sizes) -> Value:
    """Return `value` broadcast to `sizes`."""
    if checks.sizes(value) == sizes:
        return value
    target = t.TensorType(sizes, value.tensor.element_type)
    return moved(builder, "stablehlo.broadcast_in_dim", value, {"broadcast_dimensions": placed.dimensions}, target)
