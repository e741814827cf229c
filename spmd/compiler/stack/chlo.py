"""CHLO: elementwise ops with broadcasting, and top_k."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.compiler.stack.elementwise import elementwise
from spmd.dialects.core import OPS
from spmd.ir import Op, Value

_BROADCASTING = [name for name in OPS if name.startswith("chlo.broadcast_")]


@rule(*_BROADCASTING)
def broadcasting(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Pad operands with dimensions of size 1, so that none is aligned with the leading axis."""
    rank = op.result.tensor.rank
    dimensions = op.attributes.get("broadcast_dimensions")
    operands = [_widened(stacker, stacker.leaf(value), rank, dimensions) for value in op.operands]
    attributes = {name: value for name, value in op.attributes.items() if name != "broadcast_dimensions"}
    broadcast = op.clone(operands, [stacker.type_of(op.result.type)], attributes=attributes)
    stacker.ops.append(broadcast)
    return [StackedValue(broadcast.result, True)]


def _widened(stacker: Stacker, leaf: StackedValue, rank: int, dimensions: Sequence[int] | None) -> Value:
    places = dimensions if dimensions is not None and leaf.rank < rank else range(rank - leaf.rank, rank)
    shape = [1] * rank
    for place, size in zip(places, leaf.shape, strict=True):
        shape[place] = size
    if not leaf.stacked:
        return stacker.reshape(leaf.value, shape)
    return stacker.reshape(leaf.value, (stacker.size, *shape))


@rule("chlo.top_k")
def top_k(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return elementwise(stacker, op)
