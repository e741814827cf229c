"""Ops whose result shape is a run-time value. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    Dimension,
    compatible_dims,
    compatible_shapes,
    constant_ints,
    dims,
    equal,
    equal_elements,
    in_range,
    listed,
    non_negative,
    positive,
    same_types,
    shape_text,
    unique,
)
from spmd.dialects.convolution import CONVOLUTION_ATTRIBUTES, check_convolution, check_convolution_results, convolved
from spmd.dialects.core import OpDef, Trait, attribute, define, operand, operands_of, result
from spmd.dialects.data_movement import padded_size, reshaped_size
from spmd.dialects.declarations import define_unary
from spmd.dialects.forms import TYPED
from spmd.dialects.indexing import check_gather, check_slice_sizes, gathered
from spmd.dialects.quantized_axes import reshaped_axis, reshaped_elements, same_but_axis, stretched_axis
from spmd.dialects.result_types import keeps_element_type
from spmd.dialects.shape import INDEX_ONLY, WITNESS
from spmd.dialects.shapes import bounds_of, tensor
from spmd.dialects.structs import GatherDimensionNumbersAttr
from spmd.dialects.type_sets import tensor_of_types
from spmd.ir import Op, Value
from spmd.types import I32, TensorType, Type


def _static_integers(rank: int) -> type_sets.TypeSet:
    """Return the set of integer tensors with static shape."""
    return type_sets.tensor_of_kinds("signed", "unsigned", rank=rank, static=True)


def constant_list(value: Value) -> list[int] | None:
    """Return the elements of a constant 1-dimensional tensor; None if `value` is not one."""
    constant = constant_ints(value)
    return None if constant is None else constant.ravel().tolist()


def _shape_operand(declared: OpDef, label: str, name: str, *, meaningless: bool = False) -> None:
    """Declare `name` as the result's shape: its size is the rank, and a constant must match the declared type.

    `meaningless`: the reference accepts another rank if `name` is not constant.
    """

    def check_rank(op: Op) -> str | None:
        size, rank = op.operand(name).tensor.shape[0], op.result.tensor.rank
        return f"{size} and {rank}" if size is not None and size != rank else None

    def check_constant(op: Op) -> str | None:
        shape, output = constant_list(op.operand(name)), op.result.tensor
        if shape is None:
            return None
        bounded = all(bound is None or size <= bound for size, bound in zip(shape, bounds_of(output), strict=False))
        if min(shape, default=0) >= 0 and compatible_shapes(shape, output.shape) and bounded:
            return None
        return f"{dims(shape)} for {output}"

    rank = declared.constraint(label, f"size({name}) = rank(result)", on_results=True, meaningless=meaningless)
    rank(check_rank)
    declared.constraint(label, f"a constant {name} must be the result's shape", on_results=True)(check_constant)


def shaped_by(value: Value) -> Sequence[Dimension]:
    """Return the shape that a shape operand gives, dynamic if it is not constant."""
    constant = constant_list(value)
    return (None,) * (value.tensor.shape[0] or 0) if constant is None else constant


def _inferred_shape(op: Op, shape: Value, element: Type) -> list[Type]:
    """Return the declared type if there is one, else the type that the shape operand gives."""
    return [op.results[0].type if op.results else tensor(shaped_by(shape), element)]


DYNAMIC_BROADCAST_IN_DIM = define(
    "stablehlo.dynamic_broadcast_in_dim",
    operands=[
        operand("operand", type_sets.TENSOR_OR_PER_AXIS),
        operand("output_dimensions", type_sets.STATIC_DIMENSIONS),
    ],
    attributes=[
        attribute("broadcast_dimensions", kinds.I64_ARRAY),
        attribute("known_expanding_dimensions", kinds.I64_ARRAY, optional=True),
        attribute("known_nonexpanding_dimensions", kinds.I64_ARRAY, optional=True),
    ],
    results=[result("result", type_sets.TENSOR_OR_PER_AXIS)],
    assembly="$operand `,` $output_dimensions `,` `dims` `=` $broadcast_dimensions " + TYPED,
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)

DYNAMIC_BROADCAST_IN_DIM.constraint("C2", "size(broadcast_dimensions) = rank(operand)")(
    lambda op: equal(len(op["broadcast_dimensions"]), op.operands[0].tensor.rank)
)
DYNAMIC_BROADCAST_IN_DIM.constraint("C4", "is_unique(broadcast_dimensions)")(
    lambda op: unique(op["broadcast_dimensions"])
)
DYNAMIC_BROADCAST_IN_DIM.constraint("C8", "is_unique(known_expanding_dimensions + known_nonexpanding_dimensions)")(
    lambda op: unique((*(op["known_expanding_dimensions"] or ()), *(op["known_nonexpanding_dimensions"] or ())))
)
for _label, _name in (("C9", "known_expanding_dimensions"), ("C10", "known_nonexpanding_dimensions")):

    def _known(op: Op, name: str = _name) -> str | None:
        return in_range(op[name] or (), op.operands[0].tensor.rank)

    DYNAMIC_BROADCAST_IN_DIM.constraint(_label, f"0 <= {_name} < rank(operand)")(_known)
DYNAMIC_BROADCAST_IN_DIM.constraint("C1", "element_type(result) is the operand's", on_results=True)(
    lambda op: same_but_axis(op.operands[0].type, op.result.type)
)
DYNAMIC_BROADCAST_IN_DIM.constraint("C3", "0 <= broadcast_dimensions < rank(result)", on_results=True)(
    lambda op: in_range(op["broadcast_dimensions"], op.result.tensor.rank)
)
_shape_operand(DYNAMIC_BROADCAST_IN_DIM, "C7", "output_dimensions", meaningless=True)


@DYNAMIC_BROADCAST_IN_DIM.constraint(
    "C5", "each dim(operand, d) must be 1 or dim(result, broadcast_dimensions[d])", on_results=True
)
def _(op: Op) -> str | None:
    operand, result, mapping = op.operands[0].tensor, op.result.tensor, op["broadcast_dimensions"]
    shapes = [result.shape, constant_list(op.operands[1]) or result.shape]
    for size, target in zip(operand.shape, mapping, strict=True):
        if size != 1 and not all(compatible_dims(size, shape[target]) for shape in shapes):
            return f"{listed(map(shape_text, (operand.shape, *shapes)))} with dims = {dims(mapping)}"
    return None


DYNAMIC_BROADCAST_IN_DIM.constraint(
    "C6",
    "quantization_dimension(result) = broadcast_dimensions[quantization_dimension(operand)], and the parameters of a "
    "stretched dimension are repeated",
    on_results=True,
)(stretched_axis)
DYNAMIC_BROADCAST_IN_DIM.infer(lambda op: _inferred_shape(op, op.operands[1], op.operands[0].tensor.element_type))

DYNAMIC_CONV = define(
    "stablehlo.dynamic_conv",
    operands=[operand("lhs"), operand("rhs", type_sets.TENSOR_OR_PER_AXIS), operand("padding", _static_integers(2))],
    attributes=CONVOLUTION_ATTRIBUTES,
    results=[result("result", type_sets.TENSOR_OR_PER_AXIS)],
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)

check_convolution(DYNAMIC_CONV)
DYNAMIC_CONV.constraint("C4", "shape(padding) = [N - 2, 2]")(
    lambda op: equal(op.operands[2].tensor.shape, (op.operands[0].tensor.rank - 2, 2))
)


@DYNAMIC_CONV.infers("C25, C26", "the result has the sizes of batch, output features and num_windows", advisory=True)
def _(op: Op) -> list[Type]:
    padding = constant_ints(op.operands[2])
    return convolved(op, None if padding is None else padding.tolist())


check_convolution_results(DYNAMIC_CONV)

DYNAMIC_GATHER = define(
    "stablehlo.dynamic_gather",
    operands=[
        operand("operand"),
        operand("start_indices", type_sets.INTEGER),
        operand("slice_sizes", _static_integers(1)),
    ],
    attributes=[
        attribute("dimension_numbers", kinds.struct(GatherDimensionNumbersAttr)),
        attribute("indices_are_sorted", kinds.BOOL, default=False),
    ],
    results=[result("result")],
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)

#: Labels of dynamic_gather by those of gather, which also has batching dimensions.
_GATHER_LABELS = {
    "C1": "C1", "C2": "C2", "C3": "C3", "C4": "C4", "C5": "C5", "C6": "C6", "C7": "C6", "C8": "C7", "C9": "C8",
    "C18": "C9", "C19": "C10", "C20": "C11", "C21": "C12",
}  # fmt: skip
check_gather(DYNAMIC_GATHER, _GATHER_LABELS)


def _slice_sizes(op: Op) -> Sequence[Dimension]:
    return shaped_by(op.operands[2])


check_slice_sizes(DYNAMIC_GATHER, _slice_sizes, _GATHER_LABELS)
keeps_element_type(DYNAMIC_GATHER, "C14")
DYNAMIC_GATHER.infers("C13", "shape(result) = combine(batch_dim_sizes, offset_dim_sizes)")(
    lambda op: [gathered(op, _slice_sizes(op))]
)

DYNAMIC_IOTA = define(
    "stablehlo.dynamic_iota",
    operands=[operand("output_shape", type_sets.STATIC_DIMENSIONS)],
    attributes=[attribute("iota_dimension", kinds.I64)],
    results=[result("result")],
    assembly="$output_shape `,` `dim` `=` $iota_dimension " + TYPED,
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)

DYNAMIC_IOTA.constraint("C1", "0 <= iota_dimension < size(output_shape)")(
    lambda op: in_range([op["iota_dimension"]], op.operands[0].tensor.shape[0] or 0)
)
_shape_operand(DYNAMIC_IOTA, "C2", "output_shape", meaningless=True)

DYNAMIC_PAD = define(
    "stablehlo.dynamic_pad",
    operands=[
        operand("operand"),
        operand("padding_value", type_sets.SCALAR),
        *operands_of(type_sets.STATIC_DIMENSIONS, "edge_padding_low", "edge_padding_high", "interior_padding"),
    ],
    results=[result("result")],
    assembly="operands " + TYPED,
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)

DYNAMIC_PAD.constraint("C1", "element_type(operand) = element_type(padding_value) = element_type(result)")(
    lambda op: equal_elements(*op.operand_types[:2], *op.result_types)
)
DYNAMIC_PAD.constraint(
    "C2", "size(edge_padding_low) = size(edge_padding_high) = size(interior_padding) = rank(operand)"
)(
    lambda op: (
        equal(*(value.tensor.shape[0] for value in op.operands[2:]), op.operands[0].tensor.rank)
        or equal_elements(*op.operand_types[2:])
    )
)
DYNAMIC_PAD.constraint("C3", "0 <= interior_padding")(lambda op: non_negative(constant_list(op.operands[4]) or ()))


@DYNAMIC_PAD.infers(
    "C4",
    "shape(result) = shape(operand) + edge_padding_low + max(shape(operand) - 1, 0) * interior_padding + "
    "edge_padding_high",
)
def _(op: Op) -> list[Type]:
    operand = op.operands[0].tensor
    paddings = [constant_list(value) for value in op.operands[2:]]
    shape: list[Dimension] = [None] * operand.rank
    for dimension, size in enumerate(operand.shape):
        padding = [values[dimension] for values in paddings if values is not None]
        if size is not None and len(padding) == 3:
            shape[dimension] = padded_size(size, *padding)
    return [tensor(shape, operand.element_type)]


DYNAMIC_RESHAPE = define(
    "stablehlo.dynamic_reshape",
    operands=[operand("operand", type_sets.TENSOR_OR_PER_AXIS), operand("output_shape", type_sets.STATIC_DIMENSIONS)],
    results=[result("result", type_sets.TENSOR_OR_PER_AXIS)],
    assembly="operands " + TYPED,
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)

DYNAMIC_RESHAPE.constraint(
    "C1", "element_type(result) is the operand's but for the quantization_dimension", on_results=True
)(reshaped_elements)


@DYNAMIC_RESHAPE.constraint("C2", "size(operand) = size(result)", on_results=True)
def _(op: Op) -> str | None:
    operand, shape = op.operands[0].tensor, constant_list(op.operands[1])
    if shape is not None and operand.is_static and min(shape, default=0) >= 0 and prod(shape) != operand.size:
        return f"{shape_text(operand.shape)} and {shape_text(shape)}"
    return reshaped_size(op)


_shape_operand(DYNAMIC_RESHAPE, "C4", "output_shape")
DYNAMIC_RESHAPE.constraint("C3", "sizes before, at and after the quantization_dimension must be kept", on_results=True)(
    reshaped_axis
)
DYNAMIC_RESHAPE.infer(lambda op: _inferred_shape(op, op.operands[1], op.operands[0].tensor.element_type))

REAL_DYNAMIC_SLICE = define(
    "stablehlo.real_dynamic_slice",
    operands=[operand("operand"), *operands_of(type_sets.DIMENSIONS, "start_indices", "limit_indices", "strides")],
    results=[result("result")],
    assembly="operands " + TYPED,
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)


@REAL_DYNAMIC_SLICE.constraint(
    "", "start_indices, limit_indices and strides must have rank(operand) entries of one type"
)
def _(op: Op) -> str | None:
    types = op.operand_types[1:]
    rank = op.operands[0].tensor.rank
    sound = all(isinstance(type, TensorType) and type is types[0] and type.shape == (rank,) for type in types)
    return None if sound else f"{listed(types)} for rank {rank}"


REAL_DYNAMIC_SLICE.constraint("", "0 < strides")(lambda op: positive(constant_list(op.operands[3]) or ()))
keeps_element_type(REAL_DYNAMIC_SLICE, "")


@REAL_DYNAMIC_SLICE.infers("", "shape(result) = ceil((limit_indices - start_indices) / strides)")
def _(op: Op) -> list[Type]:
    operand = op.operands[0].tensor
    starts, limits, strides = (constant_list(value) for value in op.operands[1:])
    if starts is None or limits is None or strides is None:
        return [tensor((None,) * operand.rank, operand.element_type)]
    shape = [-((start - limit) // stride) for start, limit, stride in zip(starts, limits, strides, strict=True)]
    return [tensor(shape, operand.element_type)]


GET_DIMENSION_SIZE = define_unary(
    "stablehlo.get_dimension_size",
    "$operand `,` `dim` `=` $dimension " + TYPED,
    attribute("dimension", kinds.I64),
    types=type_sets.TENSOR_OR_PER_AXIS,
    results=tensor_of_types(I32),
)

GET_DIMENSION_SIZE.constraint("C1", "0 <= dimension < rank(operand)")(
    lambda op: in_range([op["dimension"]], op.operands[0].tensor.rank)
)


@GET_DIMENSION_SIZE.constraint("", "dim(operand, dimension) must be at most 2^31 - 1, which fits into the result's i32")
def _(op: Op) -> str | None:
    """Check the size as XLA's shape inference does."""
    size = op.operands[0].tensor.shape[op["dimension"]]
    return None if size is None or size < 2**31 else str(size)


GET_DIMENSION_SIZE.infer(lambda op: [TensorType((), I32)])

SET_DIMENSION_SIZE = define(
    "stablehlo.set_dimension_size",
    operands=[operand("operand"), operand("size", tensor_of_types(I32))],
    attributes=[attribute("dimension", kinds.I64)],
    results=[result("result")],
    assembly="$operand `,` $size `,` `dim` `=` $dimension " + TYPED,
    traits=[Trait.PURE, Trait.READS_CONTEXT],
)

SET_DIMENSION_SIZE.constraint("", "size must be a scalar")(
    lambda op: None if op.operands[1].tensor.rank == 0 else str(op.operands[1].type)
)
SET_DIMENSION_SIZE.constraint("", "0 <= dimension < rank(operand)")(
    lambda op: in_range([op["dimension"]], op.operands[0].tensor.rank)
)


@SET_DIMENSION_SIZE.infers("", "`dimension` of the result is bounded by its size in the operand")
def _(op: Op) -> list[Type]:
    operand, dimension = op.operands[0].tensor, op["dimension"]
    shape, bounds = list(operand.shape), list(bounds_of(operand))
    size = constant_list(op.operands[1])
    if shape[dimension] is not None:
        bounds[dimension] = shape[dimension]
    shape[dimension] = None
    if size is not None and size[0] == bounds[dimension]:
        shape[dimension], bounds[dimension] = size[0], None
    return [tensor(shape, operand.element_type, bounds)]


# --- from MHLO, without a section in the specification ---------------------------------------------------------------

define(
    "stablehlo.compute_reshape_shape",
    operands=[operand("num_elements", INDEX_ONLY), operand("dynamic_shape", type_sets.DIMENSIONS)],
    results=[result("result", type_sets.DIMENSIONS)],
    assembly=f"$num_elements `,` $dynamic_shape {TYPED}",
    traits=[Trait.PURE],
).constraint("", "the result must have the type of dynamic_shape", on_results=True)(
    lambda op: same_types(op.operands[1].type, op.result.type)
)

define(
    "stablehlo.cstr_reshapable",
    operands=[operand("num_elements", INDEX_ONLY), operand("dynamic_shape", type_sets.DIMENSIONS)],
    results=[result("result", WITNESS)],
    assembly=f"$num_elements `,` $dynamic_shape {TYPED}",
    traits=[Trait.PURE],
)
