"""Broadcasting of two operands, exactly as in XLA's broadcasting semantics: nothing is inferred from ranks.

1. A scalar is compatible with any array.
2. Operands of different ranks need broadcast_dimensions: for each dimension of the lower-rank operand, the dimension
   of the higher-rank one that it matches; strictly increasing; matched sizes are equal, or one of them is 1.
3. Operands of equal rank are broadcast along degenerate dimensions: if sizes differ, one of them is 1.
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
    """Return both operands broadcast to the result's shape. Raise ArgumentError, naming the violated rule."""
    dimensions = tuple(int(d) for d in broadcast_dimensions)
    ranks = lhs.tensor.rank, rhs.tensor.rank
    if ranks[0] == ranks[1]:
        if dimensions and dimensions != tuple(range(ranks[0])):
            raise ArgumentError(
                "broadcast_dimensions",
                f"must be empty or {list(range(ranks[0]))} for operands of equal rank, got {list(dimensions)}",
            )
        left, right = _unaligned(lhs), _unaligned(rhs)
    elif ranks[0] < ranks[1]:
        left, right = _matched(lhs, rhs, dimensions, "lhs"), _unaligned(rhs)
    else:
        left, right = _unaligned(lhs), _matched(rhs, lhs, dimensions, "rhs")
    result = _degenerate(left, right, lhs, rhs)
    return _to(builder, lhs, left, result), _to(builder, rhs, right, result)


class _Aligned:
    """An operand at the result's rank: its sizes there, and the dimensions that its own map to."""

    def __init__(self, sizes: Sizes, dimensions: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.dimensions = dimensions


def _unaligned(value: Value) -> _Aligned:
    return _Aligned(checks.sizes(value), tuple(range(value.tensor.rank)))


def _matched(low: Value, high: Value, dimensions: tuple[int, ...], argument: str) -> _Aligned:
    """Apply rules 1 and 2: return `low` at the rank of `high`."""
    low_sizes, high_sizes = checks.sizes(low), checks.sizes(high)
    if low.tensor.rank == 0 and not dimensions:
        return _Aligned((1,) * len(high_sizes), ())
    if not dimensions:
        raise ArgumentError(
            "broadcast_dimensions",
            f"must map the dimensions of {argument} for operands of different ranks, got none for {list(low_sizes)} "
            f"and {list(high_sizes)} (only a scalar is broadcast without)",
        )
    if len(dimensions) != len(low_sizes):
        raise ArgumentError(
            "broadcast_dimensions",
            f"must have one entry per dimension of {argument}, of rank {len(low_sizes)}, got {len(dimensions)}",
        )
    for number in dimensions:
        if not 0 <= number < len(high_sizes):
            raise ArgumentError("broadcast_dimensions", f"must be in [0, {len(high_sizes)}), got {number}")
    if any(a >= b for a, b in pairwise(dimensions)):
        raise ArgumentError("broadcast_dimensions", f"must be strictly increasing, got {list(dimensions)}")
    sizes: list[int] = [1] * len(high_sizes)
    for own, number in enumerate(dimensions):
        if low_sizes[own] != high_sizes[number] and 1 not in (low_sizes[own], high_sizes[number]):
            raise ArgumentError(
                "broadcast_dimensions",
                f"matched sizes must be equal, or one of them 1, got {low_sizes[own]} and {high_sizes[number]} for "
                f"dimension {own} of {argument} and dimension {number}",
            )
        sizes[number] = low_sizes[own]
    return _Aligned(tuple(sizes), dimensions)


def _degenerate(left: _Aligned, right: _Aligned, lhs: Value, rhs: Value) -> Sizes:
    """Apply rule 3: return the larger size in every dimension."""
    result: list[int] = []
    for number, (one, two) in enumerate(zip(left.sizes, right.sizes, strict=True)):
        if one != two and 1 not in (one, two):
            shapes = f"{list(checks.sizes(lhs))} and {list(checks.sizes(rhs))}"
            raise ArgumentError(
                "rhs",
                f"sizes of dimension {number} must be equal, or one of them 1, got {one} and {two} in shapes {shapes}",
            )
        result.append(two if one == 1 else one)
    return tuple(result)


def _to(builder: XlaBuilder, value: Value, aligned: _Aligned, sizes: Sizes) -> Value:
    """Return `value` broadcast to `sizes`."""
    if checks.sizes(value) == sizes:
        return value
    target = t.TensorType(sizes, value.tensor.element_type)
    return moved(builder, "stablehlo.broadcast_in_dim", value, {"broadcast_dimensions": aligned.dimensions}, target)
