"""Lowers sdy's ops: constraints reshard, collectives reduce partial values."""

from __future__ import annotations

from dataclasses import replace

from partitioner.lowering.assign import project
from partitioner.lowering.core import Lowering, lowers
from partitioner.rules.core import REDUCE, local_rule
from partitioner.sharding import Sharding
from spmd.ir import Op, Value
from spmd.types import TensorType


@lowers("sdy.sharding_constraint", "sdy.reshard")
def constraint(lowering: Lowering, op: Op) -> None:
    """Reshard the operand to the layout of the result."""
    value = op.operands[0]
    if not isinstance(value.type, TensorType):
        lowering.set(op.result, lowering.replicated(value), None)
        return
    layout = lowering.target_sharding(op.result)
    lowering.set(op.result, lowering.get(value, layout), layout)


@lowers("sdy.propagation_barrier")
def barrier(lowering: Lowering, op: Op) -> None:
    """Forward the operand in its current layout; only propagation is restricted."""
    layout = lowering.current_sharding(op.operands[0])
    lowering.set(op.result, lowering.get(op.operands[0], layout), layout)


@lowers("sdy.all_reduce", "sdy.reduce_scatter")
def reduction(lowering: Lowering, op: Op) -> None:
    """Lower a reduction over the op's axes.

    Along some of them processes hold partial values, which their reduction completes; along others copies, which are
    registered as partial values to be reduced when the result is used.
    """
    value = op.operands[0]
    layout = lowering.target_sharding(op.result)
    axes = lowering.reader.collective_axes(op)
    kind = {"max": "stablehlo.maximum", "min": "stablehlo.minimum"}.get(op["reduction_op"], "stablehlo.add")
    copies = tuple(sorted(axes - _held_partial(lowering, value)))
    dimensions = tuple(tuple(axis for axis in cut if axis not in axes) for cut in layout.dimensions)
    whole = Sharding(lowering.mesh, dimensions, layout.partial, layout.reduction)
    local = lowering.get(value, whole)
    partial = replace(
        whole, partial=tuple(sorted((*layout.partial, *copies))), reduction=kind if copies else whole.reduction
    )
    lowering.set(op.result, local, partial)


def _held_partial(lowering: Lowering, value: Value) -> frozenset[int]:
    """Return the sub-axes over which processes hold partial values of `value`, by its layout and its operands'."""
    partial = frozenset(lowering.target_sharding(value).partial)
    op = value.defining_op
    if op is None:
        return partial
    rule = local_rule(op)
    folded = set(rule.of_kind(REDUCE))
    for operand, mapping in zip(op.operands, rule.operands, strict=True):
        if isinstance(operand.type, TensorType):
            cut = project(lowering.mesh, rule, mapping, lowering.target_sharding(operand).dimensions)
            partial |= {axis for factor, axes in cut.items() if factor in folded for axis in axes}
    return partial
