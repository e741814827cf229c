"""Ops that create and rearrange elements: dimension numbers are shifted by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.dialects.make import make_op
from spmd.ir import Op
from spmd.types import I1


def after(dimensions: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions shifted by the leading axis."""
    return tuple([dimension + 1 for dimension in dimensions])


@rule("stablehlo.reshape")
def reshape(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return stacker.lifted(op, [stacker.leaf(op.operands[0]).value])


#: Attributes with a dimension mapping.
_PLACES = {"stablehlo.broadcast_in_dim": "broadcast_dimensions", "stablehlo.transpose": "permutation"}


@rule(*_PLACES)
def placed(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Shift the dimension mapping; the leading axis stays in front."""
    name = _PLACES[op.name]
    return stacker.lifted(op, [stacker.leaf(op.operands[0]).value], {name: (0, *after(op[name]))})


@rule("stablehlo.broadcast")
def broadcast(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Insert new dimensions after the leading axis."""
    value, new = stacker.leaf(op.operands[0]).value, len(op["broadcast_sizes"])
    dimensions = (0, *range(new + 1, new + value.tensor.rank))
    type = stacker.tensor_of(op.result.type)
    return [StackedValue(stacker.one("broadcast_in_dim", [value], type, broadcast_dimensions=dimensions), True)]


@rule("stablehlo.reverse")
def reverse(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return stacker.lifted(op, [stacker.leaf(op.operands[0]).value], {"dimensions": after(op["dimensions"])})


@rule("stablehlo.slice")
def slice_(stacker: Stacker, op: Op) -> Sequence[Tree]:
    attributes = {
        "start_indices": (0, *op["start_indices"]),
        "limit_indices": (stacker.size, *op["limit_indices"]),
        "strides": (1, *op["strides"]),
    }
    return stacker.lifted(op, [stacker.leaf(op.operands[0]).value], attributes)


@rule("stablehlo.concatenate")
def concatenate(stacker: Stacker, op: Op) -> Sequence[Tree]:
    operands = [stacker.stack(stacker.leaf(value)) for value in op.operands]
    return stacker.lifted(op, operands, {"dimension": op["dimension"] + 1})


@rule("stablehlo.pad")
def pad(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Pad; a padding value that differs is selected afterwards, by a padded mask."""
    operand, fill = (stacker.leaf(value) for value in op.operands)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    if not fill.stacked:
        return stacker.lifted(op, [operand.value, fill.value], {name: (0, *op[name]) for name in names})
    shape = op.result.tensor.static_shape
    filled = StackedValue(stacker.along(fill, shape), True)
    type = op.operands[0].tensor
    present = stacker.constant(np.broadcast_to(np.True_, type.static_shape))
    flag = type.with_shape(()).with_element_type(I1)
    attributes = {name: op[name] for name in names}
    mask = make_op(op.name, [present, stacker.splat(False, flag)], [flag.with_shape(shape)], attributes)
    stacker.ops.append(mask)
    zero = stacker.splat(0, fill.value.tensor.with_shape(()))
    if operand.stacked:
        padded = stacker.lifted(op, [operand.value, zero], {name: (0, *op[name]) for name in names})[0]
    else:
        padded_op = op.clone([operand.value, zero])
        stacker.ops.append(padded_op)
        padded = StackedValue(padded_op.result)
    assert isinstance(padded, StackedValue)
    where = stacker.stack(StackedValue(mask.result))
    return [StackedValue(stacker.select(where, stacker.stack(padded), filled.value), True)]


@rule("stablehlo.get_dimension_size")
def get_dimension_size(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Return a constant: shapes do not differ."""
    return [StackedValue(stacker.constant(np.array(op.operands[0].tensor.static_shape[op["dimension"]], np.int32)))]


@rule("stablehlo.tuple", always=True)
def tuple_(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return [tuple([stacker.trees[value] for value in op.operands])]


@rule("stablehlo.get_tuple_element", always=True)
def get_tuple_element(stacker: Stacker, op: Op) -> Sequence[Tree]:
    tree = stacker.trees[op.operands[0]]
    assert isinstance(tree, tuple)
    return [tree[op["index"]]]


@rule("stablehlo.optimization_barrier", always=True)
def optimization_barrier(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Return all values unchanged through one barrier."""
    leaves_of = stacker.all_leaves(op.operands)
    values = [leaf.value for leaf in leaves_of]
    barrier = stacker.op(op.name, values, [value.type for value in values])
    return [StackedValue(value, leaf.stacked) for value, leaf in zip(barrier.results, leaves_of, strict=True)]
