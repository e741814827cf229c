"""Products and convolutions in the forms that native code has.

Narrow floats are multiplied and summed in f32, and rounded once. A convolution's padding, dilation and reversed or
oddly ordered operands become ops of their own, which loop nests take in; what is left has neither, its kernel's output
features lie side by side, and so do those of its result. Convolutions with groups stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import ConvDimensionNumbersAttr, DotDimensionNumbersAttr
from spmd.ir import Block, Op, Value
from spmd.types import F32, ElementType, TensorType

CONVOLUTION = "stablehlo.convolution"
DOTS = ("stablehlo.dot_general", "stablehlo.dot")


def legalize_products(block: Block) -> None:
    """Rewrites the products and convolutions of `block` and of the regions inside it; in place."""
    builder = OpBuilder()
    replaced: dict[Value, Value] = {}
    for op in block.ops:
        for inner in op.walk() if replaced else ():
            inner.replace_operands(replaced)
        for region in op.regions:
            for nested in region.blocks:
                legalize_products(nested)
        builder.location = op.location
        made = _legal(op, builder)
        if made is None:
            builder.ops.append(op)
        else:
            replaced[op.result] = made
    block.ops[:] = builder.ops


def _legal(op: Op, builder: OpBuilder) -> Value | None:
    """What takes the place of `op`, written with `builder`; None where it stays."""
    if op.name not in (CONVOLUTION, *DOTS):
        return None
    elements = [_element(value) for value in (*op.operands, op.result)]
    if None in elements or not all(value.tensor.is_static for value in (*op.operands, op.result)):
        return None
    if op.name in DOTS:
        return _wide_product(op, builder, elements)
    return _plain_convolution(op, builder, elements)


def _element(value: Value) -> ElementType | None:
    type = value.type
    if isinstance(type, TensorType) and isinstance(type.element_type, ElementType) and type.element_type.is_float:
        return type.element_type
    return None


def _wide(elements: Sequence[ElementType | None]) -> ElementType | None:
    """The element type to compute in: f32 of narrow ones, their own of f32 and f64; None of a mixture with f64."""
    if all(element is not None and element.bits <= 32 for element in elements):
        return F32
    first = elements[0]
    return first if all(element is first for element in elements) else None


def _converted(builder: OpBuilder, value: Value, element: ElementType) -> Value:
    return builder.convert(value, TensorType(value.tensor.shape, element))


def _wide_product(op: Op, builder: OpBuilder, elements: Sequence[ElementType | None]) -> Value | None:
    if _wide(elements) is not F32 or all(element is F32 for element in elements):
        return None
    if op.name != "stablehlo.dot" and op["algorithm"] is not None:
        return None
    operands = [_converted(builder, value, F32) for value in op.operands]
    type = TensorType(op.result.tensor.shape, F32)
    made = builder.op(op.name, operands, [type], dict(op.attributes)).results[0]
    return builder.convert(made, op.result.tensor)


def _plain_convolution(op: Op, builder: OpBuilder, elements: Sequence[ElementType | None]) -> Value | None:
    wide = _wide(elements)
    shapes = [value.tensor.static_shape for value in (*op.operands, op.result)]
    if wide is None or op["feature_group_count"] != 1 or op["batch_group_count"] != 1 or not all(map(all, shapes)):
        return None
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    spatial = len(numbers.input_spatial_dimensions)
    strides, reach = op["window_strides"] or (1,) * spatial, op["rhs_dilation"] or (1,) * spatial
    lhs = _padded(op, builder, _converted(builder, op.operands[0], wide), numbers)
    rhs = _converted(builder, op.operands[1], wide)
    reversal = op["window_reversal"] or (False,) * spatial
    turned = tuple(
        axis
        for axis, flag in zip(numbers.kernel_spatial_dimensions, reversal, strict=True)
        if flag and rhs.tensor.static_shape[axis] > 1
    )
    if turned:
        rhs = builder.one("reverse", [rhs], rhs.tensor, dimensions=turned)
    kernel = (
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
    )
    rhs = _transposed(builder, rhs, kernel)
    order = (numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension)
    result = TensorType(tuple(op.result.tensor.static_shape[axis] for axis in order), wide)
    made = _as_product(builder, lhs, rhs, numbers, strides, result)
    if made is None:
        inner = range(1, spatial + 1)
        plain = ConvDimensionNumbersAttr(
            numbers.input_batch_dimension,
            numbers.input_feature_dimension,
            numbers.input_spatial_dimensions,
            spatial,
            spatial + 1,
            tuple(range(spatial)),
            0,
            spatial + 1,
            tuple(inner),
        )
        attributes: dict[str, Any] = {
            "window_strides": tuple(strides),
            "rhs_dilation": tuple(reach),
            "dimension_numbers": plain,
            "feature_group_count": 1,
            "batch_group_count": 1,
        }
        made = builder.op(CONVOLUTION, [lhs, rhs], [result], attributes).results[0]
    made = _transposed(builder, made, tuple(order.index(axis) for axis in range(spatial + 2)))
    return builder.convert(made, op.result.tensor)


def _as_product(
    builder: OpBuilder,
    lhs: Value,
    rhs: Value,
    numbers: ConvDimensionNumbersAttr,
    strides: Sequence[int],
    result: TensorType,
) -> Value | None:
    """A convolution whose windows are single elements, all of them, as a product; None of any other."""
    spatial = len(strides)
    window = rhs.tensor.static_shape[:spatial]
    order = (numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension)
    if any(size != 1 for size in (*window, *strides)) or order != tuple(range(spatial + 2)):
        return None
    matrix = builder.one("reshape", [rhs], TensorType(rhs.tensor.static_shape[spatial:], result.element_type))
    attributes = {"dot_dimension_numbers": DotDimensionNumbersAttr((), (), (spatial + 1,), (0,))}
    return builder.op("stablehlo.dot_general", [lhs, matrix], [result], attributes).results[0]


def _padded(op: Op, builder: OpBuilder, lhs: Value, numbers: ConvDimensionNumbersAttr) -> Value:
    """The operand with its padding around and its dilation between its elements, as zeros."""
    spatial = numbers.input_spatial_dimensions
    rank = lhs.tensor.rank
    padding = np.zeros((len(spatial), 2), np.int64) if op["padding"] is None else np.asarray(op["padding"])
    low, high, interior = [0] * rank, [0] * rank, [0] * rank
    for place, axis in enumerate(spatial):
        low[axis], high[axis] = (int(size) for size in padding.reshape(-1, 2)[place])
        interior[axis] = (op["lhs_dilation"][place] if op["lhs_dilation"] else 1) - 1
    if not any((*low, *high, *interior)):
        return lhs
    zero = builder.splat(0, TensorType((), lhs.tensor.element_type))
    attributes = {
        "edge_padding_low": tuple(low),
        "edge_padding_high": tuple(high),
        "interior_padding": tuple(interior),
    }
    return builder.op("stablehlo.pad", [lhs, zero], None, attributes).results[0]


def _transposed(builder: OpBuilder, value: Value, permutation: tuple[int, ...]) -> Value:
    if permutation == tuple(range(len(permutation))):
        return value
    shape = value.tensor.static_shape
    type = TensorType(tuple(shape[axis] for axis in permutation), value.tensor.element_type)
    return builder.one("transpose", [value], type, permutation=permutation)
