"""Constraints on the quantization dimension of ops that move elements. Source: StableHLO specification.

Each check takes an op with one operand and one result, or their types, and returns the violation or None.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from spmd.dialects.checks import dims, equal_elements, listed, per_axis, per_tensor, same_elements, shape_text
from spmd.ir import Op
from spmd.types import Type


def same_but_axis(operand: Type, result: Type) -> str | None:
    """Check for equal element types, up to per-axis parameters."""
    if per_tensor(operand) and per_tensor(result):
        return equal_elements(operand, result)
    return same_elements(operand, result)


def stretched_axis(op: Op) -> str | None:
    """Check that the quantization dimension follows the operand's, with broadcast parameters where it is expanded."""
    operand, result, mapping = op.operands[0].tensor, op.result.tensor, op["broadcast_dimensions"]
    operand_axis, result_axis = per_axis(operand), per_axis(result)
    if operand_axis is None or result_axis is None:
        return None
    axis = operand_axis.quantization_dimension
    assert axis is not None
    if result_axis.quantization_dimension != mapping[axis]:
        return f"{result_axis.quantization_dimension} and {mapping[axis]}"
    if operand.shape[axis] == 1:
        expected = {(operand_axis.scales[0], operand_axis.zero_points[0])}
        actual = set(zip(result_axis.scales, result_axis.zero_points, strict=True))
        if actual - expected:
            return f"scales {dims(result_axis.scales)} and zero points {dims(result_axis.zero_points)}"
    return None


def reshaped_elements(op: Op) -> str | None:
    """Check for equal element types, up to the quantization dimension."""
    operand, result = op.operands[0].type, op.result.type
    operand_axis, result_axis = per_axis(operand), per_axis(result)
    if operand_axis is None or result_axis is None:
        return same_but_axis(operand, result)
    moved = replace(operand_axis, quantization_dimension=result_axis.quantization_dimension)
    return None if moved is result_axis else listed((operand_axis, result_axis))


def reshaped_axis(op: Op) -> str | None:
    """Check that the quantization dimension keeps its size and the number of elements before it."""
    parts = []
    for type in (op.operands[0].tensor, op.result.tensor):
        quantized = per_axis(type)
        if quantized is None or not type.is_static:
            return None
        axis = quantized.quantization_dimension
        assert axis is not None
        shape = type.static_shape
        parts.append((prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])))
    return None if parts[0] == parts[1] else listed(map(shape_text, parts))
