"""Reductions with a region, and sorts: the leading axis is a parallel dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.compiler.stack.core import Stacker, Tree, rule
from spmd.compiler.stack.data_movement import after
from spmd.compiler.stack.one_by_one import one_by_one
from spmd.ir import AttributeValue, Op


@rule("stablehlo.reduce")
def reduce(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return _folded(stacker, op, {"dimensions": after(op["dimensions"])})


@rule("stablehlo.reduce_window")
def reduce_window(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return _folded(
        stacker, op, _window(op, ("window_dimensions", "window_strides", "base_dilations", "window_dilations"))
    )


def _folded(stacker: Stacker, op: Op, attributes: dict[str, AttributeValue]) -> Sequence[Tree]:
    """Lift a reduction; initial values must be uniform scalars, else processes run one by one."""
    count = len(op.results)
    inits = [stacker.leaf(value) for value in op.operands[count:]]
    if stacker.captures_differ(op) or any(init.stacked for init in inits):
        return one_by_one(stacker, op)
    inputs = [stacker.stack(stacker.leaf(value)) for value in op.operands[:count]]
    return stacker.lifted(op, [*inputs, *(init.value for init in inits)], attributes)


def _window(op: Op, names: Sequence[str]) -> dict[str, AttributeValue]:
    """Return window attributes with a window of size 1 along the leading axis."""
    attributes: dict[str, AttributeValue] = {name: (1, *op[name]) for name in names if op[name]}
    if op["padding"] is not None:
        attributes["padding"] = np.concatenate([[[0, 0]], op["padding"]])
    return attributes


@rule("stablehlo.select_and_scatter")
def select_and_scatter(stacker: Stacker, op: Op) -> Sequence[Tree]:
    operand, source, init = (stacker.leaf(value) for value in op.operands)
    if stacker.captures_differ(op) or init.stacked:
        return one_by_one(stacker, op)
    operands = [stacker.stack(operand), stacker.stack(source), init.value]
    return stacker.lifted(op, operands, _window(op, ("window_dimensions", "window_strides")))


@rule("stablehlo.sort")
def sort(stacker: Stacker, op: Op) -> Sequence[Tree]:
    if stacker.captures_differ(op):
        return one_by_one(stacker, op)
    operands = [stacker.stack(stacker.leaf(value)) for value in op.operands]
    return stacker.lifted(op, operands, {"dimension": op["dimension"] % op.operands[0].tensor.rank + 1})
