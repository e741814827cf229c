"""Products. An operand that alone differs has one more free dimension: one large product instead of many small ones.

The size of a product may change its order of summation, so `reproducible` compilations keep separate products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.compiler.stack.data_movement import after
from spmd.compiler.stack.one_by_one import one_by_one
from spmd.dialects.make import make_op
from spmd.dialects.structs import ConvDimensionNumbersAttr, DotDimensionNumbersAttr
from spmd.ir import AttributeValue, Op, Value
from spmd.types import QuantizedType, TensorType, Type


@rule("stablehlo.dot_general")
def dot_general(stacker: Stacker, op: Op) -> Sequence[Tree]:
    lhs, rhs = (stacker.leaf(value) for value in op.operands)
    if stacker.options.reproducible:
        lhs, rhs = (StackedValue(stacker.stack(side), True) for side in (lhs, rhs))
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    both = lhs.stacked and rhs.stacked
    moved = DotDimensionNumbersAttr(
        _batching(numbers.lhs_batching_dimensions, lhs, both),
        _batching(numbers.rhs_batching_dimensions, rhs, both),
        _behind(numbers.lhs_contracting_dimensions, lhs),
        _behind(numbers.rhs_contracting_dimensions, rhs),
    )
    attributes = {"dot_dimension_numbers": moved}
    if both:
        return stacker.lifted(op, [lhs.value, rhs.value], attributes)
    batches = len(numbers.lhs_batching_dimensions)
    position = batches if lhs.stacked else batches + lhs.rank - batches - len(numbers.lhs_contracting_dimensions)
    return [_product(stacker, op, [lhs.value, rhs.value], {**op.attributes, **attributes}, position)]


def _batching(dimensions: Sequence[int], side: StackedValue, both: bool) -> tuple[int, ...]:
    return (0, *after(dimensions)) if both else _behind(dimensions, side)


def _behind(dimensions: Sequence[int], side: StackedValue) -> tuple[int, ...]:
    return after(dimensions) if side.stacked else tuple(dimensions)


def _product(
    stacker: Stacker, op: Op, operands: Sequence[Value], attributes: Mapping[str, AttributeValue], position: int
) -> StackedValue:
    """Return a product whose result has the leading axis at dimension `position`, moved to the front."""
    final = stacker.tensor_of(op.result.type)
    rank = final.rank
    order = [*range(1, position + 1), 0, *range(position + 1, rank)]
    type = TensorType(tuple(final.shape[d] for d in order), _shifted_element(op.result.tensor, position))
    product = op.clone(operands, [type], attributes=attributes)
    stacker.ops.append(product)
    if position == 0:
        return StackedValue(product.result, True)
    back = (position, *range(position), *range(position + 1, rank))
    return StackedValue(stacker.one("transpose", [product.result], final, permutation=back), True)


def _shifted_element(type: TensorType, position: int) -> Type:
    """Return the element type with its quantized dimension shifted by an axis at `position`."""
    element = type.element_type
    if not isinstance(element, QuantizedType):
        return element
    axis = element.quantization_dimension
    return replace(element, quantization_dimension=axis + 1) if axis is not None and axis >= position else element


@rule("stablehlo.dot")
def dot(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Rewrite as dot_general: contract the last dimension of the left operand with the first of the right one."""
    rank = op.operands[0].tensor.rank
    numbers = DotDimensionNumbersAttr((), (), (rank - 1,), (0,))
    attributes = {"dot_dimension_numbers": numbers, "precision_config": op["precision_config"]}
    general = make_op("stablehlo.dot_general", op.operands, op.result_types, attributes, location=op.location)
    return dot_general(stacker, general)


@rule("stablehlo.einsum", "stablehlo.unary_einsum")
def einsum(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Add a letter for the leading axis to the operands that differ and to the result."""
    operands = [stacker.leaf(value) for value in op.operands]
    inputs, _, result = op["einsum_config"].partition("->")
    letter = next(letter for letter in "PQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if letter not in op["einsum_config"])
    terms = [(letter if leaf.stacked else "") + term for leaf, term in zip(operands, inputs.split(","), strict=True)]
    config = f"{','.join(terms)}->{letter}{result}"
    return stacker.lifted(op, [leaf.value for leaf in operands], {"einsum_config": config})


@rule("stablehlo.convolution")
def convolution(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Merge the leading axis with the batch, the output features, or feature groups."""
    lhs, rhs = (stacker.leaf(value) for value in op.operands)
    groups = op["batch_group_count"]
    quantized = any(value.tensor.is_quantized for value in (*op.operands, op.result))
    grouped = op["feature_group_count"] > 1 and not lhs.stacked
    if quantized or groups > 1 or grouped or stacker.options.reproducible:
        return one_by_one(stacker, op)
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    inputs, kernel = numbers.input_batch_dimension, numbers.kernel_output_feature_dimension
    attributes = dict(op.attributes)
    position = numbers.output_feature_dimension
    if lhs.stacked and rhs.stacked:
        inputs = numbers.input_feature_dimension
        attributes["feature_group_count"] = op["feature_group_count"] * stacker.size
    elif lhs.stacked:
        position = numbers.output_batch_dimension
    operands = [
        merge(stacker, lhs.value, inputs) if lhs.stacked else lhs.value,
        merge(stacker, rhs.value, kernel) if rhs.stacked else rhs.value,
    ]
    shape = list(op.result.tensor.static_shape)
    shape[position] *= stacker.size
    convolved = op.clone(operands, [op.result.tensor.with_shape(tuple(shape))], attributes=attributes)
    stacker.ops.append(convolved)
    return [StackedValue(part(stacker, convolved.result, position), True)]


def merge(stacker: Stacker, value: Value, dimension: int) -> Value:
    """Return `value` with the leading axis moved before `dimension` (of one process's value) and merged with it."""
    shape = value.tensor.static_shape
    order = [*range(1, dimension + 1), 0, *range(dimension + 1, len(shape))]
    moved = value if dimension == 0 else stacker.transpose(value, order)
    joined = (*shape[1 : dimension + 1], shape[0] * shape[dimension + 1], *shape[dimension + 2 :])
    return stacker.reshape(moved, joined)


def part(stacker: Stacker, value: Value, dimension: int) -> Value:
    """Undo `merge`."""
    shape, size = value.tensor.static_shape, stacker.size
    split = (*shape[:dimension], size, shape[dimension] // size, *shape[dimension + 1 :])
    parted = stacker.reshape(value, split)
    if dimension == 0:
        return parted
    return stacker.transpose(parted, [dimension, *range(dimension), *range(dimension + 1, len(split))])
