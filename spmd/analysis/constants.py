"""Values known at compile time."""

from __future__ import annotations

import numpy as np

from spmd.ir import Op, Value
from spmd.ir.attributes import DenseAttr, is_splat
from spmd.support.arrays import Array

CONSTANT = "stablehlo.constant"

#: Ops whose result holds elements of their operand only.
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
    """Return the elements of `op` if it is a constant of plain elements; None for any other op."""
    if op is None or op.name != CONSTANT:
        return None
    attribute = op.attributes["value"]
    return attribute.array if isinstance(attribute, DenseAttr) else None


def constant_elements(value: Value) -> Array | None:
    """Return the elements of the constant that `value` is broadcast or moved from, a splat as shape [1].

    None if `value` is computed otherwise. The array has neither the shape nor the element order of `value`.
    """
    op = value.defining_op
    while op is not None and op.name in MOVES:
        op = op.operands[0].defining_op
    array = constant_array(op)
    if array is None:
        return None
    return array[(0,) * array.ndim].reshape(1) if is_splat(array) else array


def constant_scalar(value: Value) -> Array | None:
    """Return the element, of shape [], that `value` holds everywhere; None if it is not known to be a splat."""
    elements = constant_elements(value)
    if elements is None or not elements.size:
        return None
    flat = np.ascontiguousarray(elements).reshape(-1)
    if flat.size > 1 and len(np.unique(flat.view(np.uint8).reshape(flat.size, -1), axis=0)) > 1:
        return None
    return flat[0:1].reshape(())


def constant_integer(value: Value) -> int | None:
    """Return the integer value of `value` if it is a constant of rank 0; else None."""
    array = constant_array(value.defining_op)
    if array is None or array.ndim or array.dtype.kind not in "iu":
        return None
    return int(array)
