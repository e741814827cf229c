"""Values that are known before the program runs."""

from __future__ import annotations

import numpy as np

from spmd.ir import Op, Value
from spmd.ir.attributes import DenseAttr, is_splat
from spmd.support.arrays import Array

CONSTANT = "stablehlo.constant"

#: Ops whose result has no elements but their operand's.
MOVES = frozenset(
    (
        "stablehlo.broadcast_in_dim",
        "stablehlo.broadcast",
        "stablehlo.reshape",
        "stablehlo.transpose",
        "sdy.sharding_constraint",
    )
)


def constant_array(op: Op | None) -> Array | None:
    """Return the array that `op` gives when it is a constant of plain elements; None for any other op."""
    if op is None or op.name != CONSTANT:
        return None
    attribute = op.attributes["value"]
    return attribute.array if isinstance(attribute, DenseAttr) else None


def constant_elements(value: Value) -> Array | None:
    """Return the elements of the constant that `value` is made of by broadcasting or moving; a splat's once, of shape
    [1].

    None where `value` is made of anything else. The array has neither the shape of `value` nor its order.
    """
    op = value.defining_op
    while op is not None and op.name in MOVES:
        op = op.operands[0].defining_op
    array = constant_array(op)
    if array is None:
        return None
    return array[(0,) * array.ndim].reshape(1) if is_splat(array) else array


def constant_scalar(value: Value) -> Array | None:
    """Return the one element, of shape [], that `value` is known to hold at every place; else None."""
    elements = constant_elements(value)
    if elements is None or not elements.size:
        return None
    flat = np.ascontiguousarray(elements).reshape(-1)
    if flat.size > 1 and len(np.unique(flat.view(np.uint8).reshape(flat.size, -1), axis=0)) > 1:
        return None
    return flat[0:1].reshape(())


def constant_integer(value: Value) -> int | None:
    """Return the integer that `value` is, when it is a constant of rank 0; else None."""
    array = constant_array(value.defining_op)
    if array is None or array.ndim or array.dtype.kind not in "iu":
        return None
    return int(array)
