"""Ops that create, move and rearrange elements. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from dataclasses import replace

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    Dimension,
    at_least,
    compatible_dims,
    dims,
    equal,
    equal_elements,
    in_range,
    is_quantized,
    listed,
    non_negative,
    per_axis,
    positive,
    shape_text,
    tensors,
    unique,
)
from spmd.dialects.core import Trait, attribute, define, operand, result
from spmd.dialects.declarations import define_constant, define_unary
from spmd.dialects.forms import TYPED, one_type
from spmd.dialects.quantized_axes import reshaped_axis, reshaped_elements, same_but_axis, stretched_axis
from spmd.dialects.result_types import keeps_element_type, keeps_type
from spmd.dialects.shapes import Size, bounds_of, most_specific_size, tensor
from spmd.dialects.type_sets import tensor_of_kinds
from spmd.ir import Op
from spmd.types import QuantizedType, Type

CONSTANT = define_constant("stablehlo.constant")


@CONSTANT.constraint("C1", "type(value) = type(output)", on_results=True)
def _(op: Op) -> str | None:
    value_type, output = op["value"].type, op.result.tensor
    element = output.element_type
    stored = output.with_element_type(element.storage) if isinstance(element, QuantizedType) else output
    return None if value_type in (output, stored) else listed((value_type, output))


@CONSTANT.infer
def _(op: Op) -> list[Type]:
    quantized = bool(op.results) and is_quantized(op.results[0].type)  # then the value has the storage type
    return [op.results[0].type if quantized else op["value"].type]


IOTA = define(
    "stablehlo.iota",
    attributes=[attribute("iota_dimension", kinds.I64)],
    results=[result("output", tensor_of_kinds("signed", "unsigned", "float", "complex", "quantized", static=True))],
    assembly="`dim` `=` $iota_dimension attr-dict `:` type($output)",
    traits=[Trait.PURE],
)


@IOTA.constraint("C1", "0 <= iota_dimension < rank(output)", on_results=True)
def _(op: Op) -> str | None:
    return in_range([op["iota_dimension"]], op.result.tensor.rank)


BROADCAST = define_unary(
    "stablehlo.broadcast",
    "$operand `,` `sizes` `=` $broadcast_sizes " + TYPED,
    attribute("broadcast_sizes", kinds.I64_ARRAY),
    results=type_sets.TENSOR_OR_PER_AXIS,
    traits=[Trait.MOVES],
)

BROADCAST.constraint("", "0 <= broadcast_sizes")(lambda op: non_negative(op["broadcast_sizes"]))


@BROADCAST.infers("", "shape(result) = broadcast_sizes + shape(operand)")
def _(op: Op) -> list[Type]:
    operand, sizes = op.operands[0].tensor, op["broadcast_sizes"]
    bounds = (*(None for _ in sizes), *bounds_of(operand))
    return [tensor((*sizes, *operand.shape), operand.element_type, bounds)]


BROADCAST_IN_DIM = define_unary(
    "stablehlo.broadcast_in_dim",
    "$operand `,` `dims` `=` $broadcast_dimensions " + TYPED,
    attribute("broadcast_dimensions", kinds.I64_ARRAY),
    types=type_sets.TENSOR_OR_PER_AXIS,
    results=type_sets.STATIC_OR_BOUNDED,
    traits=[Trait.MOVES],
)


BROADCAST_IN_DIM.constraint("C2", "size(broadcast_dimensions) = rank(operand)")(
    lambda op: equal(len(op["broadcast_dimensions"]), op.operands[0].tensor.rank)
)
BROADCAST_IN_DIM.constraint("C4", "is_unique(broadcast_dimensions)")(lambda op: unique(op["broadcast_dimensions"]))
BROADCAST_IN_DIM.constraint("C1", "element_type(result) is the operand's", on_results=True)(
    lambda op: same_but_axis(op.operands[0].type, op.result.type)
)
BROADCAST_IN_DIM.constraint("C3", "0 <= broadcast_dimensions < rank(result)", on_results=True)(
    lambda op: in_range(op["broadcast_dimensions"], op.result.tensor.rank)
)


@BROADCAST_IN_DIM.constraint(
    "C5", "each dim(operand, d) must be 1 or dim(result, broadcast_dimensions[d])", on_results=True
)
def _(op: Op) -> str | None:
    operand, result, mapping = op.operands[0].tensor, op.result.tensor, op["broadcast_dimensions"]
    for size, target in zip(operand.shape, mapping, strict=True):
        if size not in (None, 1, result.shape[target]):
            return f"{shape_text(operand.shape)} and {shape_text(result.shape)} with dims = {dims(mapping)}"
    return None


BROADCAST_IN_DIM.constraint(
    "C6",
    "quantization_dimension(result) = broadcast_dimensions[quantization_dimension(operand)], and the parameters of a "
    "stretched dimension are repeated",
    on_results=True,
)(stretched_axis)

CONCATENATE = define(
    "stablehlo.concatenate",
    operands=[operand("inputs", variadic=True)],
    attributes=[attribute("dimension", kinds.I64)],
    results=[result("result")],
    assembly="custom<VariadicOperandWithAttribute>($inputs) `dim` `=` $dimension " + TYPED,
    traits=[Trait.PURE],
)

CONCATENATE.constraint("C3", "0 < size(inputs)")(lambda op: at_least(len(op.operands), 1))
CONCATENATE.constraint("C1", "same(element_type(inputs...))")(lambda op: equal_elements(*op.operand_types))
CONCATENATE.constraint("C4", "0 <= dimension < rank(inputs[0])")(
    lambda op: in_range([op["dimension"]], op.operands[0].tensor.rank)
)


@CONCATENATE.constraint("C2", "all inputs must have the same shape except along `dimension`")
def _(op: Op) -> str | None:
    dimension, shapes = op["dimension"], [type.shape for type in tensors(op.operands)]
    first = shapes[0]
    for shape in shapes:
        sizes = enumerate(zip(first, shape, strict=False))
        if len(shape) != len(first) or not all(compatible_dims(*pair) for d, pair in sizes if d != dimension):
            return f"{listed(map(shape_text, shapes))} with dimension = {dimension}"
    return None


keeps_element_type(CONCATENATE, "C5", "element_type(result) = element_type(inputs[0])")


def _joined(left: Size, right: Size) -> Size:
    """Return the (size, bound) of two concatenated dimensions."""
    if left[0] is not None and right[0] is not None:
        return left[0] + right[0], None
    left_most, right_most = (size if size is not None else bound for size, bound in (left, right))
    return None, left_most + right_most if left_most is not None and right_most is not None else None


@CONCATENATE.infers("C6", "shape(result) is the inputs', their sizes along `dimension` added up")
def _(op: Op) -> list[Type]:
    dimension, types = op["dimension"], tensors(op.operands)
    sizes: list[Size] = list(zip(types[0].shape, bounds_of(types[0]), strict=True))
    for type in types[1:]:
        for index, size in enumerate(zip(type.shape, bounds_of(type), strict=True)):
            along = index == dimension
            sizes[index] = _joined(sizes[index], size) if along else most_specific_size(index, sizes[index], size)
    return [tensor([size for size, _ in sizes], types[0].element_type, [bound for _, bound in sizes])]


PAD = define(
    "stablehlo.pad",
    operands=[operand("operand"), operand("padding_value", type_sets.SCALAR)],
    attributes=[
        attribute("edge_padding_low", kinds.I64_ARRAY),
        attribute("edge_padding_high", kinds.I64_ARRAY),
        attribute("interior_padding", kinds.I64_ARRAY),
    ],
    results=[result("result")],
    assembly="$operand `,` $padding_value `,` `low` `=` $edge_padding_low `,` `high` `=` $edge_padding_high `,` "
    "`interior` `=` $interior_padding " + TYPED,
    traits=[Trait.PURE],
)


def _paddings(op: Op) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return op["edge_padding_low"], op["edge_padding_high"], op["interior_padding"]


PAD.constraint("C1", "element_type(operand) = element_type(padding_value) = element_type(result)")(
    lambda op: equal_elements(*op.operand_types, *op.result_types)
)
PAD.constraint("C2", "size(edge_padding_low) = size(edge_padding_high) = size(interior_padding) = rank(operand)")(
    lambda op: equal(*map(len, _paddings(op)), op.operands[0].tensor.rank)
)
PAD.constraint("C3", "0 <= interior_padding")(lambda op: non_negative(op["interior_padding"]))


def padded_size(size: int, low: int, high: int, interior: int) -> int:
    return size + low + max(size - 1, 0) * interior + high


def _padded(op: Op) -> list[Size]:
    operand = op.operands[0].tensor

    def padded(size: Dimension, padding: tuple[int, int, int]) -> Dimension:
        return None if size is None else padded_size(size, *padding)

    paddings = zip(*_paddings(op), strict=True)
    sizes = zip(operand.shape, bounds_of(operand), paddings, strict=True)
    return [(padded(size, padding), padded(bound, padding)) for size, bound, padding in sizes]


@PAD.constraint("C4", "no dimension may be padded to a negative size")
def _(op: Op) -> str | None:
    sizes = [size if size is not None else bound for size, bound in _padded(op)]
    return None if all(size is None or size >= 0 for size in sizes) else shape_text(sizes)


@PAD.infers(
    "C4",
    "shape(result) = shape(operand) + edge_padding_low + max(shape(operand) - 1, 0) * interior_padding + "
    "edge_padding_high",
)
def _(op: Op) -> list[Type]:
    sizes = _padded(op)
    return [tensor([s for s, _ in sizes], op.operands[0].tensor.element_type, [bound for _, bound in sizes])]


RESHAPE = define_unary(
    "stablehlo.reshape",
    "operands " + TYPED,
    types=type_sets.TENSOR_OR_PER_AXIS,
    results=type_sets.STATIC_OR_BOUNDED,
    traits=[Trait.MOVES, Trait.VIEW],
)


def reshaped_size(op: Op) -> str | None:
    """Check that static shapes have equally many elements."""
    operand, result = op.operands[0].tensor, op.result.tensor
    if operand.is_static and result.is_static and operand.size != result.size:
        return f"{shape_text(operand.shape)} and {shape_text(result.shape)}"
    return None


_SAME_BUT_AXIS = "element_type(result) is the operand's but for the quantization_dimension"
RESHAPE.constraint("C1", _SAME_BUT_AXIS, on_results=True)(reshaped_elements)
RESHAPE.constraint("C2", "size(operand) = size(result)", on_results=True)(reshaped_size)
RESHAPE.constraint("C3", "sizes before, at and after the quantization_dimension must be kept", on_results=True)(
    reshaped_axis
)

REVERSE = define_unary(
    "stablehlo.reverse",
    "$operand `,` `dims` `=` $dimensions " + one_type("operand", "result"),
    attribute("dimensions", kinds.I64_ARRAY),
    traits=[Trait.MOVES],
)

REVERSE.constraint("C2", "is_unique(dimensions)")(lambda op: unique(op["dimensions"]))
REVERSE.constraint("C3", "0 <= dimensions < rank(result)")(
    lambda op: in_range(op["dimensions"], op.operands[0].tensor.rank)
)
keeps_type(REVERSE, "C1")

SLICE = define(
    "stablehlo.slice",
    operands=[operand("operand")],
    attributes=[
        attribute("start_indices", kinds.I64_ARRAY),
        attribute("limit_indices", kinds.I64_ARRAY),
        attribute("strides", kinds.I64_ARRAY),
    ],
    results=[result("result")],
    assembly="$operand custom<SliceRanges>($start_indices, $limit_indices, $strides) " + TYPED,
    traits=[Trait.PURE, Trait.MOVES],
)


def _slices(op: Op) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return op["start_indices"], op["limit_indices"], op["strides"]


SLICE.constraint("C2", "size(start_indices) = size(limit_indices) = size(strides) = rank(operand)")(
    lambda op: equal(*map(len, _slices(op)), op.operands[0].tensor.rank)
)


@SLICE.constraint("C3", "0 <= start_indices <= limit_indices <= shape(operand)")
def _(op: Op) -> str | None:
    operand, (starts, limits, _) = op.operands[0].tensor, _slices(op)
    for start, limit, size, bound in zip(starts, limits, operand.shape, bounds_of(operand), strict=True):
        most = size if size is not None else bound
        if not 0 <= start <= limit or (most is not None and limit > most):
            return f"{dims(starts)} and {dims(limits)} for {shape_text(operand.shape)}"
    return None


SLICE.constraint("C4", "0 < strides")(lambda op: positive(op["strides"]))
keeps_element_type(SLICE, "C1")


@SLICE.infers("C5", "shape(result) = ceil((limit_indices - start_indices) / strides)")
def _(op: Op) -> list[Type]:
    shape = [-((start - limit) // stride) for start, limit, stride in zip(*_slices(op), strict=True)]
    return [tensor(shape, op.operands[0].tensor.element_type)]


TRANSPOSE = define_unary(
    "stablehlo.transpose",
    "$operand `,` `dims` `=` $permutation " + TYPED,
    attribute("permutation", kinds.I64_ARRAY),
    types=type_sets.TENSOR_OR_PER_AXIS,
    traits=[Trait.MOVES],
)


@TRANSPOSE.constraint("C2", "permutation must be a permutation of range(rank(operand))")
def _(op: Op) -> str | None:
    rank = op.operands[0].tensor.rank
    return None if sorted(op["permutation"]) == list(range(rank)) else f"{dims(op['permutation'])} for rank {rank}"


TRANSPOSE.constraint("C1", _SAME_BUT_AXIS, on_results=True)(reshaped_elements)


@TRANSPOSE.constraint(
    "C4", "quantization_dimension(operand) = permutation[quantization_dimension(result)]", on_results=True
)
def _(op: Op) -> str | None:
    operand_axis, result_axis, permutation = per_axis(op.operands[0].type), per_axis(op.result.type), op["permutation"]
    if operand_axis is None or result_axis is None:
        return None
    axis = result_axis.quantization_dimension
    return equal(operand_axis.quantization_dimension, permutation[axis]) if axis in range(len(permutation)) else None


@TRANSPOSE.infers("C3", "shape(result) = dim(operand, permutation...)")
def _(op: Op) -> list[Type]:
    operand, permutation = op.operands[0].tensor, op["permutation"]
    element = operand.element_type
    if isinstance(element, QuantizedType) and element.quantization_dimension is not None:
        element = replace(element, quantization_dimension=permutation.index(element.quantization_dimension))
    bounds = bounds_of(operand)
    return [tensor([operand.shape[d] for d in permutation], element, [bounds[d] for d in permutation])]
