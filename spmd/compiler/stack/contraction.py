"""Products. What differs on one side only is one more free dimension: one large product, not many small ones.

How large a product is may decide in which order it sums. `reproducible` compilations multiply as each process does.
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
    place = batches if lhs.stacked else batches + lhs.rank - batches - len(numbers.lhs_contracting_dimensions)
    return [_product(stacker, op, [lhs.value, rhs.value], {**op.attributes, **attributes}, place)]


def _batching(dimensions: Sequence[int], side: StackedValue, both: bool) -> tuple[int, ...]:
    return (0, *after(dimensions)) if both else _behind(dimensions, side)


def _behind(dimensions: Sequence[int], side: StackedValue) -> tuple[int, ...]:
    return after(dimensions) if side.stacked else tuple(dimensions)


def _product(
    stacker: Stacker, op: Op, operands: Sequence[Value], attributes: Mapping[str, AttributeValue], place: int
) -> StackedValue:
    """A product whose result has the processes at dimension `place`, whence they are brought to the front."""
    final = stacker.tensor_of(op.result.type)
    rank = final.rank
    order = [*range(1, place + 1), 0, *range(place + 1, rank)]
    type = TensorType(tuple(final.shape[d] for d in order), _turned(op.result.tensor, place))
    product = op.clone(operands, [type], attributes=attributes)
    stacker.ops.append(product)
    if place == 0:
        return StackedValue(product.result, True)
    back = (place, *range(place), *range(place + 1, rank))
    return StackedValue(stacker.one("transpose", [product.result], final, permutation=back), True)


def _turned(type: TensorType, place: int) -> Type:
    """The element type, its quantized dimension counted with the processes at `place`."""
    element = type.element_type
    if not isinstance(element, QuantizedType):
        return element
    axis = element.quantization_dimension
    return replace(element, quantization_dimension=axis + 1) if axis is not None and axis >= place else element


@rule("stablehlo.dot")
def dot(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """The last dimension of the left side and the first of the right one."""
    rank = op.operands[0].tensor.rank
    numbers = DotDimensionNumbersAttr((), (), (rank - 1,), (0,))
    attributes = {"dot_dimension_numbers": numbers, "precision_config": op["precision_config"]}
    general = make_op("stablehlo.dot_general", op.operands, op.result_types, attributes, location=op.location)
    return dot_general(stacker, general)


@rule("stablehlo.einsum", "stablehlo.unary_einsum")
def einsum(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """The processes are one more letter of what differs and of the result."""
    operands = [stacker.leaf(value) for value in op.operands]
    inputs, _, result = op["einsum_config"].partition("->")
    letter = next(letter for letter in "PQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if letter not in op["einsum_config"])
    terms = [(letter if leaf.stacked else "") + term for leaf, term in zip(operands, inputs.split(","), strict=True)]
    config = f"{','.join(terms)}->{letter}{result}"
    return stacker.lifted(op, [leaf.value for leaf in operands], {"einsum_config": config})


@rule("stablehlo.convolution")
def convolution(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Processes join the batch, the output features, or both features as groups of their own."""
    lhs, rhs = (stacker.leaf(value) for value in op.operands)
    groups = op["batch_group_count"]
    quantized = any(value.tensor.is_quantized for value in (*op.operands, op.result))
    grouped = op["feature_group_count"] > 1 and not lhs.stacked
    if quantized or groups > 1 or grouped or stacker.options.reproducible:
        return one_by_one(stacker, op)
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    inputs, kernel = numbers.input_batch_dimension, numbers.kernel_output_feature_dimension
    attributes = dict(op.attributes)
    place = numbers.output_feature_dimension
    if lhs.stacked and rhs.stacked:
        inputs = numbers.input_feature_dimension
        attributes["feature_group_count"] = op["feature_group_count"] * stacker.size
    elif lhs.stacked:
        place = numbers.output_batch_dimension
    operands = [
        merge(stacker, lhs.value, inputs) if lhs.stacked else lhs.value,
        merge(stacker, rhs.value, kernel) if rhs.stacked else rhs.value,
    ]
    shape = list(op.result.tensor.static_shape)
    shape[place] *= stacker.size
    convolved = op.clone(operands, [op.result.tensor.with_shape(tuple(shape))], attributes=attributes)
    stacker.ops.append(convolved)
    return [StackedValue(part(stacker, convolved.result, place), True)]


def merge(stacker: Stacker, value: Value, dimension: int) -> Value:
    """The leading axis moved before `dimension` (of one process's value) and joined with it."""
    shape = value.tensor.static_shape
    order = [*range(1, dimension + 1), 0, *range(dimension + 1, len(shape))]
    moved = value if dimension == 0 else stacker.transpose(value, order)
    joined = (*shape[1 : dimension + 1], shape[0] * shape[dimension + 1], *shape[dimension + 2 :])
    return stacker.reshape(moved, joined)


def part(stacker: Stacker, value: Value, dimension: int) -> Value:
    """Undoes `merge`."""
    shape, size = value.tensor.static_shape, stacker.size
    split = (*shape[:dimension], size, shape[dimension] // size, *shape[dimension + 1 :])
    parted = stacker.reshape(value, split)
    if dimension == 0:
        return parted
    return stacker.transpose(parted, [dimension, *range(dimension), *range(dimension + 1, len(split))])
