"""Partial sums that ops forward: ops that are linear in them, if reducing later costs nothing.

A partial value stays partial through its only user if that makes it no larger; otherwise, or with several users, it is
reduced first.
"""

from __future__ import annotations

from math import prod

from partitioner.lowering.core import Lowering
from partitioner.mesh import Axes
from spmd.ir import Op, Value
from spmd.types import ElementType, TensorType

#: Ops that only move elements, and so commute with any reduction.
_PLACING = frozenset("stablehlo." + name for name in ("reshape", "transpose", "broadcast_in_dim", "reverse"))
_ADD = "stablehlo.add"

#: Axes, the indices of operands that stay partial, and the reduction.
Pending = tuple[Axes, frozenset[int], str]


def forwarded_partial(lowering: Lowering, op: Op) -> Pending | None:
    """Return how `op` forwards partial operands; None if it needs them reduced."""
    if len(op.results) != 1 or not op.operands:
        return None
    partial = {index for index, value in enumerate(op.operands) if _partial(lowering, value)}
    if not partial:
        return None
    first = lowering.current_sharding(op.operands[min(partial)])
    sums = {
        (lowering.current_sharding(op.operands[index]).partial, lowering.current_sharding(op.operands[index]).reduction)
        for index in partial
    }
    if len(sums) > 1:
        return None
    if any(lowering.uses.get(op.operands[index], 0) > 1 for index in partial):
        return None
    if prod(op.result.tensor.static_shape) > prod(op.operands[min(partial)].tensor.static_shape):
        return None
    if not _is_linear(op, partial, first.reduction) or _cut_along(lowering, op, partial, first.partial):
        return None
    return first.partial, frozenset(partial), first.reduction


def _partial(lowering: Lowering, value: Value) -> bool:
    if not isinstance(value.type, TensorType):
        return False
    layouts = lowering.layouts_of(value)
    return len(layouts) == 1 and bool(layouts[0].partial)


def _cut_along(lowering: Lowering, op: Op, partial: set[int], axes: Axes) -> bool:
    """Return whether an operand that is not partial is sharded along the sub-axes of the partial ones."""
    others = [value for index, value in enumerate(op.operands) if index not in partial]
    return any(
        not lowering.current_sharding(value).used.isdisjoint(axes)
        for value in others
        if isinstance(value.type, TensorType)
    )


def _is_linear(op: Op, partial: set[int], reduction: str) -> bool:
    if op.name in _PLACING:
        return True
    element = op.result.tensor.element_type
    if reduction != _ADD or not isinstance(element, ElementType) or element.is_boolean:
        return False
    if op.name in ("stablehlo.negate", "stablehlo.real", "stablehlo.imag"):
        return True
    if op.name in ("stablehlo.add", "stablehlo.subtract"):
        return partial == {0, 1}
    if op.name == "stablehlo.multiply":
        return len(partial) == 1 and op.operands[0] is not op.operands[1]
    return op.name == "stablehlo.divide" and partial == {0} and (element.is_float or element.is_complex)
