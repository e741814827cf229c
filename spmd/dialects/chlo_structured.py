"""CHLO ops on whole tensors: ragged products, the largest elements, scans. Source: StableHLO's CHLO dialect."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    Dimension,
    all_compatible,
    compatible_dims,
    dims,
    in_range,
    listed,
    non_negative,
    parameters,
    returned,
    shape_text,
    signature,
    tensors,
    unique,
)
from spmd.dialects.contraction import check_dot, contraction_element, few_precisions, free_sizes
from spmd.dialects.core import Trait, attribute, define, operand, operands_of, region, result
from spmd.dialects.shapes import bounds_of, tensor
from spmd.dialects.structs import RaggedDotDimensionNumbersAttr
from spmd.ir import Op
from spmd.types import I32, TensorType, Type, UnrankedTensorType

_PRECISION_CONFIG = kinds.array_of(kinds.enum("chlo", "precision", "DEFAULT", "HIGH", "HIGHEST"))

RAGGED_DOT = define(
    "chlo.ragged_dot",
    operands=[*operands_of(type_sets.ANY_TENSOR, "lhs", "rhs"), operand("group_sizes", type_sets.INTEGER)],
    attributes=[
        attribute("ragged_dot_dimension_numbers", kinds.struct(RaggedDotDimensionNumbersAttr)),
        attribute("precision_config", _PRECISION_CONFIG, optional=True),
    ],
    results=[result("result", type_sets.TENSOR_OR_PER_AXIS)],
    traits=[Trait.PURE],
)

RAGGED_DOT.constraint("", "lhs and rhs are ranked")(
    lambda op: None if all(isinstance(type, TensorType) for type in op.operand_types) else listed(op.operand_types)
)
RAGGED_DOT.constraint("", "size(precision_config) <= 2")(few_precisions)
check_dot(RAGGED_DOT, "ragged_dot_dimension_numbers", [""] * 10)


def _ragged(op: Op) -> RaggedDotDimensionNumbersAttr:
    numbers: RaggedDotDimensionNumbersAttr = op["ragged_dot_dimension_numbers"]
    return numbers


@RAGGED_DOT.constraint("", "there is one ragged dimension, 0 <= lhs_ragged_dimensions < rank(lhs)")
def _(op: Op) -> str | None:
    ragged = _ragged(op).lhs_ragged_dimensions
    return dims(ragged) if len(ragged) != 1 else in_range(ragged, op.operands[0].tensor.rank)


@RAGGED_DOT.constraint("", "group_sizes has a group for each index of the dimensions before the ragged one, or rank 1")
def _(op: Op) -> str | None:
    numbers, lhs, groups = _ragged(op), op.operands[0].tensor, op.operands[2].tensor
    ragged = numbers.lhs_ragged_dimensions[0]
    batching, contracting = numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions
    if ragged in batching:
        before = batching[: batching.index(ragged)]
    elif ragged in contracting:
        before = (*batching, *contracting[: contracting.index(ragged)])
    else:
        before = (*batching, *(d for d in range(ragged) if d not in batching and d not in contracting))
    expected = [lhs.shape[dimension] for dimension in before]
    sound = groups.rank == 1 or (groups.rank == len(expected) + 1 and list(groups.shape[:-1]) == expected)
    return None if sound else f"{shape_text(groups.shape)} for {dims(expected)}"


RAGGED_DOT.constraint("", "0 <= rhs_group_dimensions < rank(rhs)")(
    lambda op: in_range(_ragged(op).rhs_group_dimensions, op.operands[1].tensor.rank)
)


@RAGGED_DOT.constraint("", "rhs_group_dimensions neither batch nor contract")
def _(op: Op) -> str | None:
    numbers = _ragged(op)
    return unique(
        (*numbers.rhs_group_dimensions, *numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions)
    )


@RAGGED_DOT.constraint("", "one group dimension if the ragged one is neither batched nor contracted, else none")
def _(op: Op) -> str | None:
    numbers, rhs, groups = _ragged(op), op.operands[1].tensor, op.operands[2].tensor
    ragged = numbers.lhs_ragged_dimensions[0]
    free = ragged not in numbers.lhs_batching_dimensions and ragged not in numbers.lhs_contracting_dimensions
    dimensions = numbers.rhs_group_dimensions
    sound = len(dimensions) == int(free) and (not free or compatible_dims(groups.shape[-1], rhs.shape[dimensions[0]]))
    return None if sound else f"{dims(dimensions)} with group_sizes of {shape_text(groups.shape)}"


@RAGGED_DOT.infers("", "batching sizes, then what remains of lhs and of rhs, groups first if contracted")
def _(op: Op) -> list[Type]:
    numbers = _ragged(op)
    lhs, rhs, groups = tensors(op.operands)
    contracted = numbers.lhs_ragged_dimensions[0] in numbers.lhs_contracting_dimensions
    shape: list[Dimension] = [groups.shape[-1]] if contracted else []
    shape += [lhs.shape[dimension] for dimension in numbers.lhs_batching_dimensions]
    shape += free_sizes(lhs.shape, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    rest = (numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions, numbers.rhs_group_dimensions)
    shape += free_sizes(rhs.shape, *rest)
    return [tensor(shape, contraction_element(op))]


TOP_K = define(
    "chlo.top_k",
    operands=[operand("operand", type_sets.ANY_TENSOR)],
    attributes=[attribute("k", kinds.I64), attribute("is_stable", kinds.BOOL, default=True)],
    results=[result("values", type_sets.ANY_TENSOR), result("indices", type_sets.ANY_TENSOR)],
    assembly="`(` $operand `,` `k` `=` $k (`,` `is_stable` `=` $is_stable^)? `)` attr-dict `:` "
    "type($operand) `->` `(` type($values) `,` type($indices) `)`",
    traits=[Trait.PURE],
)


@TOP_K.constraint("", "0 <= k <= dim(operand, -1)")
def _(op: Op) -> str | None:
    operand, count = op.operands[0].type, op["k"]
    if not isinstance(operand, TensorType):
        return non_negative([count])
    last = operand.shape[-1] if operand.rank else 0
    return None if operand.rank and count >= 0 and (last is None or count <= last) else f"{count} for {operand}"


@TOP_K.constraint("", "dim(operand, -1) is at most 2^31, so that an i32 holds each place")
def _(op: Op) -> str | None:
    operand = op.operands[0].type
    last = operand.shape[-1] if isinstance(operand, TensorType) and operand.rank else None
    return None if last is None or last <= 2**31 else str(last)


@TOP_K.infers("", "results have the operand's shape with k along the last dimension")
def _(op: Op) -> list[Type]:
    operand = op.operands[0].type
    if not isinstance(operand, TensorType):
        return [operand, UnrankedTensorType(I32)]
    shape, bounds = (*operand.shape[:-1], op["k"]), (*bounds_of(operand)[:-1], None)
    return [tensor(shape, operand.element_type, bounds), tensor(shape, I32, bounds)]


SCAN = define(
    "chlo.scan",
    operands=[
        operand("inputs", type_sets.ANY_TENSOR, variadic=True),
        operand("inits", type_sets.ANY_TENSOR, variadic=True),
    ],
    attributes=[
        attribute("dimension", kinds.I64),
        attribute("scan_dim_size", kinds.I64, optional=True),
        attribute("is_reverse", kinds.BOOL, default=False),
        attribute("is_associative", kinds.BOOL, optional=True),
        attribute("operandSegmentSizes", kinds.I32_ARRAY),
        attribute("resultSegmentSizes", kinds.I32_ARRAY),
    ],
    results=[
        result("outputs", type_sets.ANY_TENSOR, variadic=True),
        result("carries", type_sets.ANY_TENSOR, variadic=True),
    ],
    regions=[region("body")],
    assembly="custom<Scan>",
    traits=[Trait.ISOLATED, Trait.RECURSIVE],
)


def _without(shape: Sequence[Dimension], dimension: int) -> tuple[Dimension, ...]:
    return (*shape[:dimension], *shape[dimension + 1 :])


@SCAN.constraint("", "there are inputs or outputs")
def _(op: Op) -> str | None:
    outputs = len(op.results) - len(op.operand_group("inits")) if op.results else 1
    return None if op.operand_group("inputs") or outputs > 0 else "neither"


@SCAN.constraint("", "all operands are ranked, and 0 <= dimension < rank(inputs...)")
def _(op: Op) -> str | None:
    if not all(isinstance(type, TensorType) for type in op.operand_types):
        return listed(op.operand_types)
    dimension = op["dimension"]
    faults = [in_range([dimension], type.rank) for type in tensors(op.operand_group("inputs"))]
    return next(filter(None, faults), non_negative([dimension]))


@SCAN.constraint("", "dim(inputs..., dimension) = scan_dim_size, one size for all inputs")
def _(op: Op) -> str | None:
    sizes = [type.shape[op["dimension"]] for type in tensors(op.operand_group("inputs"))]
    known = [size for size in (op["scan_dim_size"], *sizes) if size is not None]
    return None if len(set(known)) <= 1 else listed(known)


@SCAN.constraint("", "body takes a slice of each input and the inits")
def _(op: Op) -> str | None:
    slices = [
        tensor(_without(type.shape, op["dimension"]), type.element_type) for type in tensors(op.operand_group("inputs"))
    ]
    expected: list[Type] = [*slices, *(value.type for value in op.operand_group("inits"))]
    if all_compatible(expected, parameters(op.regions[0])):
        return None
    return f"{signature(op.regions[0])} for {listed(expected)}"


@SCAN.constraint("", "body returns a slice of each output and the carries, all ranked")
def _(op: Op) -> str | None:
    types = returned(op.regions[0])
    ranked = all(isinstance(type, TensorType) for type in types)
    return None if ranked and len(types) >= len(op.operand_group("inits")) else signature(op.regions[0])


@SCAN.infers("", "outputs have the slices that body returns laid along dimension, carries what it returns")
def _(op: Op) -> list[Type]:
    types = [type for type in returned(op.regions[0]) if isinstance(type, TensorType)]
    dimension, outputs = op["dimension"], len(types) - len(op.operand_group("inits"))
    sizes = [op["scan_dim_size"], *(type.shape[dimension] for type in tensors(op.operand_group("inputs")))]
    size = next((size for size in sizes if size is not None), None)
    result_types: list[Type] = []
    for index, type in enumerate(types):
        shape = (*type.shape[:dimension], size, *type.shape[dimension:]) if index < outputs else type.shape
        result_types.append(tensor(shape, type.element_type))
    return result_types
