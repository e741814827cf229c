"""Elementwise ops, and scalar regions on whole arrays: the same op with one more dimension."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.compiler.stack.one_by_one import one_by_one
from spmd.ir import Op, Value


@rule("elementwise", "stablehlo.bitcast_convert")
def elementwise(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Lift the op; a uniform scalar operand stays a scalar."""
    return stacker.lifted(op, aligned(stacker, op))


def aligned(stacker: Stacker, op: Op) -> list[Value]:
    """Return the operands with the leading axis."""
    operands = [stacker.leaf(value) for value in op.operands]
    shape = max((leaf.shape for leaf in operands), key=len)
    return [_operand(stacker, leaf, shape) for leaf in operands]


def _operand(stacker: Stacker, leaf: StackedValue, shape: tuple[int, ...]) -> Value:
    if leaf.rank == len(shape):
        return stacker.stack(leaf)
    return stacker.along(leaf, shape) if leaf.stacked else leaf.value


@rule("stablehlo.map")
def map_(stacker: Stacker, op: Op) -> Sequence[Tree]:
    if stacker.captures_differ(op):
        return one_by_one(stacker, op)
    operands = aligned(stacker, op)
    return stacker.lifted(op, operands, {"dimensions": tuple(range(operands[0].tensor.rank))})
