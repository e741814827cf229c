"""Gathers and dynamic slices. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    Dimension,
    ascending,
    compatible_dims,
    dims,
    equal,
    equal_elements,
    in_range,
    listed,
    shape_text,
    tensors,
    unique,
)
from spmd.dialects.core import Check, OpDef, Trait, attribute, define, operand, result
from spmd.dialects.forms import TYPED
from spmd.dialects.result_types import keeps_element_type, keeps_type
from spmd.dialects.shapes import bounds_of, tensor
from spmd.dialects.structs import GatherDimensionNumbersAttr
from spmd.ir import Op
from spmd.types import TensorType, Type

DYNAMIC_SLICE = define(
    "stablehlo.dynamic_slice",
    operands=[operand("operand"), operand("start_indices", type_sets.INTEGER_SCALAR, variadic=True)],
    attributes=[attribute("slice_sizes", kinds.I64_ARRAY)],
    results=[result("result")],
    assembly="$operand `,` custom<VariadicOperandWithAttribute>($start_indices) `sizes` `=` $slice_sizes " + TYPED,
    traits=[Trait.PURE],
)

DYNAMIC_SLICE.constraint("C2", "size(start_indices) = size(slice_sizes) = rank(operand)")(
    lambda op: equal(len(op.operands) - 1, len(op["slice_sizes"]), op.operands[0].tensor.rank)
)
DYNAMIC_SLICE.constraint("C3", "same(type(start_indices...))")(
    lambda op: equal_elements(*op.operand_types[1:]) if op.operands[1:] else None
)


def fitting(sizes: Sequence[Dimension], shape: Sequence[Dimension]) -> str | None:
    """Check that 0 <= sizes <= shape."""
    for size, most in zip(sizes, shape, strict=True):
        if size is not None and (size < 0 or (most is not None and size > most)):
            return f"{dims(sizes)} and {shape_text(shape)}"
    return None


DYNAMIC_SLICE.constraint("C4", "0 <= slice_sizes <= shape(operand)")(
    lambda op: fitting(op["slice_sizes"], op.operands[0].tensor.shape)
)
keeps_element_type(DYNAMIC_SLICE, "C1")
DYNAMIC_SLICE.infers("C5", "shape(result) = slice_sizes")(
    lambda op: [tensor(op["slice_sizes"], op.operands[0].tensor.element_type)]
)

DYNAMIC_UPDATE_SLICE = define(
    "stablehlo.dynamic_update_slice",
    operands=[
        operand("operand"),
        operand("update"),
        operand("start_indices", type_sets.INTEGER_SCALAR, variadic=True),
    ],
    results=[result("result")],
    assembly="operands " + TYPED,
    traits=[Trait.PURE],
)

DYNAMIC_UPDATE_SLICE.constraint("C2", "element_type(update) = element_type(operand)")(
    lambda op: equal_elements(op.operands[1].type, op.operands[0].type)
)
DYNAMIC_UPDATE_SLICE.constraint("C3", "rank(update) = rank(operand)")(
    lambda op: equal(op.operands[1].tensor.rank, op.operands[0].tensor.rank)
)
DYNAMIC_UPDATE_SLICE.constraint("C4", "size(start_indices) = rank(operand)")(
    lambda op: equal(len(op.operands) - 2, op.operands[0].tensor.rank)
)
DYNAMIC_UPDATE_SLICE.constraint("C5", "same(type(start_indices...))")(
    lambda op: equal_elements(*op.operand_types[2:]) if op.operands[2:] else None
)
DYNAMIC_UPDATE_SLICE.constraint("C6", "0 <= shape(update) <= shape(operand)")(
    lambda op: fitting(op.operands[1].tensor.shape, op.operands[0].tensor.shape)
)
keeps_type(DYNAMIC_UPDATE_SLICE, "C1")


def size_or_one(shape: Sequence[Dimension], dimension: int) -> Dimension:
    """Return the size along index_vector_dim, which is 1 one past the last dimension."""
    return shape[dimension] if dimension < len(shape) else 1


def component_count(dimensions: Sequence[int], indices: Sequence[Dimension], vector: int) -> str | None:
    """Check that start indices have one component, along index_vector_dim `vector`, per indexed dimension."""
    sizes = len(dimensions), size_or_one(indices, vector)
    return None if compatible_dims(*sizes) else listed(sizes)


def matching_batches(
    operand: Sequence[Dimension], dimensions: Sequence[int], indices: Sequence[Dimension], others: Sequence[int]
) -> str | None:
    """Check that batching dimensions of operand and indices have the same sizes."""
    left, right = [operand[d] for d in dimensions], [indices[d] for d in others]
    return None if all(map(compatible_dims, left, right)) else f"{dims(left)} and {dims(right)}"


#: Checks a gather's dimension numbers, the operand's shape and that of start_indices.
_GatherCheck = Callable[[GatherDimensionNumbersAttr, tuple[Dimension, ...], tuple[Dimension, ...]], str | None]


#: The constraints that gather and dynamic_gather share, by gather's labels.
_OF_GATHERS: tuple[tuple[str, str, _GatherCheck], ...] = (
    (
        "C1",
        "rank(operand) = size(offset_dims) + size(collapsed_slice_dims) + size(operand_batching_dims)",
        lambda d, x, i: equal(len(x), len(d.offset_dims) + len(d.collapsed_slice_dims) + len(d.operand_batching_dims)),
    ),
    ("C2", "0 <= index_vector_dim <= rank(start_indices)", lambda d, x, i: in_range([d.index_vector_dim], len(i) + 1)),
    (
        "C3",
        "size(start_index_map) is the size of start_indices along index_vector_dim",
        lambda d, x, i: component_count(d.start_index_map, i, d.index_vector_dim),
    ),
    (
        "C4",
        "is_unique(offset_dims) and is_sorted(offset_dims)",
        lambda d, x, i: unique(d.offset_dims) or ascending(d.offset_dims),
    ),
    (
        "C5",
        "0 <= offset_dims < rank(result)",
        lambda d, x, i: in_range(d.offset_dims, len(d.offset_dims) + max(len(i), d.index_vector_dim + 1) - 1),
    ),
    (
        "C6",
        "is_unique(collapsed_slice_dims + operand_batching_dims)",
        lambda d, x, i: unique((*d.collapsed_slice_dims, *d.operand_batching_dims)),
    ),
    ("C7", "is_sorted(collapsed_slice_dims)", lambda d, x, i: ascending(d.collapsed_slice_dims)),
    (
        "C8",
        "0 <= collapsed_slice_dims < rank(operand)",
        lambda d, x, i: in_range(d.collapsed_slice_dims, len(x)),
    ),
    ("C10", "is_sorted(operand_batching_dims)", lambda d, x, i: ascending(d.operand_batching_dims)),
    (
        "C11",
        "0 <= operand_batching_dims < rank(operand)",
        lambda d, x, i: in_range(d.operand_batching_dims, len(x)),
    ),
    ("C13", "is_unique(start_indices_batching_dims)", lambda d, x, i: unique(d.start_indices_batching_dims)),
    (
        "C14",
        "0 <= start_indices_batching_dims < rank(start_indices)",
        lambda d, x, i: in_range(d.start_indices_batching_dims, len(i)),
    ),
    (
        "C15",
        "index_vector_dim is not in start_indices_batching_dims",
        lambda d, x, i: (
            f"{d.index_vector_dim} and {dims(d.start_indices_batching_dims)}"
            if d.index_vector_dim in d.start_indices_batching_dims
            else None
        ),
    ),
    (
        "C16",
        "size(operand_batching_dims) = size(start_indices_batching_dims)",
        lambda d, x, i: equal(len(d.operand_batching_dims), len(d.start_indices_batching_dims)),
    ),
    (
        "C17",
        "dim(operand, operand_batching_dims...) = dim(start_indices, start_indices_batching_dims...)",
        lambda d, x, i: matching_batches(x, d.operand_batching_dims, i, d.start_indices_batching_dims),
    ),
    (
        "C18",
        "is_unique(start_index_map + operand_batching_dims)",
        lambda d, x, i: unique((*d.start_index_map, *d.operand_batching_dims)),
    ),
    ("C19", "0 <= start_index_map < rank(operand)", lambda d, x, i: in_range(d.start_index_map, len(x))),
)


def check_gather(declared: OpDef, labels: dict[str, str]) -> None:
    """Declare the constraints that gather and dynamic_gather share; `labels` maps gather's labels to those here."""
    for label, text, check in _OF_GATHERS:
        declared.constraint(labels.get(label, ""), text)(partial(_checked_gather, check))


def _checked_gather(check: _GatherCheck, op: Op) -> str | None:
    return check(op["dimension_numbers"], op.operands[0].tensor.shape, op.operands[1].tensor.shape)


#: Returns the slice sizes of a gather, None where unknown at compile time.
_SliceSizes = Callable[[Op], Sequence[Dimension] | None]


def check_slice_sizes(declared: OpDef, sizes: _SliceSizes, labels: dict[str, str]) -> None:
    """Declare the constraints on slice_sizes that gather and dynamic_gather share."""

    def known(check: Callable[[GatherDimensionNumbersAttr, Sequence[Dimension], Op], str | None]) -> Check:
        def checked(op: Op) -> str | None:
            slice_sizes = sizes(op)
            return None if slice_sizes is None else check(op["dimension_numbers"], slice_sizes, op)

        return checked

    def at_most_one(values: Sequence[Dimension], dimensions: Sequence[int]) -> str | None:
        chosen = [values[d] for d in dimensions]
        return None if all(size is None or size <= 1 for size in chosen) else dims(chosen)

    declared.constraint(labels.get("C20", ""), "size(slice_sizes) = rank(operand)")(
        known(lambda d, sizes, op: equal(len(sizes), op.operands[0].tensor.rank))
    )
    declared.constraint(labels.get("C9", ""), "slice_sizes[collapsed_slice_dims...] <= 1")(
        known(lambda d, sizes, op: at_most_one(sizes, d.collapsed_slice_dims))
    )
    declared.constraint(labels.get("C12", ""), "slice_sizes[operand_batching_dims...] <= 1")(
        known(lambda d, sizes, op: at_most_one(sizes, d.operand_batching_dims))
    )
    declared.constraint(labels.get("C21", ""), "0 <= slice_sizes <= shape(operand)")(
        known(lambda d, sizes, op: fitting(sizes, op.operands[0].tensor.shape))
    )

    def nothing(numbers: GatherDimensionNumbersAttr, sizes: Sequence[Dimension], op: Op) -> str | None:
        dropped = [sizes[d] for d in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
        return dims(dropped) if 0 in dropped and 0 not in gathered(op, sizes).shape else None

    declared.constraint("", "a slice must have an element for each of the result", meaningless=True)(known(nothing))


def gathered(op: Op, sizes: Sequence[Dimension]) -> TensorType:
    """Return the result type of a gather of slices of `sizes`."""
    numbers: GatherDimensionNumbersAttr = op["dimension_numbers"]
    operand, indices = op.operands[0].tensor, op.operands[1].tensor
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = iter([size for dimension, size in enumerate(sizes) if dimension not in dropped])
    batches = iter(
        pair
        for dimension, pair in enumerate(zip(indices.shape, bounds_of(indices), strict=True))
        if dimension != numbers.index_vector_dim
    )
    rank = len(numbers.offset_dims) + indices.rank - (numbers.index_vector_dim < indices.rank)
    dimensions = [(next(offsets), None) if d in numbers.offset_dims else next(batches) for d in range(rank)]
    return tensor([size for size, _ in dimensions], operand.element_type, [bound for _, bound in dimensions])


GATHER = define(
    "stablehlo.gather",
    operands=[operand("operand"), operand("start_indices", type_sets.INTEGER)],
    attributes=[
        attribute("dimension_numbers", kinds.struct(GatherDimensionNumbersAttr)),
        attribute("slice_sizes", kinds.I64_ARRAY),
        attribute("indices_are_sorted", kinds.BOOL, default=False),
    ],
    results=[result("result")],
    traits=[Trait.PURE],
)

_GATHER_LABELS = {f"C{number}": f"C{number}" for number in range(1, 22)}
check_gather(GATHER, _GATHER_LABELS)
check_slice_sizes(GATHER, lambda op: op["slice_sizes"], _GATHER_LABELS)
keeps_element_type(GATHER, "C23")
GATHER.infers("C22", "shape(result) = combine(batch_dim_sizes, offset_dim_sizes)")(
    lambda op: [gathered(op, op["slice_sizes"])]
)

TORCH_INDEX_SELECT = define(
    "stablehlo.torch_index_select",
    operands=[operand("operand"), operand("index")],
    attributes=[attribute("dim", kinds.I64), attribute("batch_dims", kinds.I64)],
    results=[result("result")],
    traits=[Trait.PURE],
)

TORCH_INDEX_SELECT.constraint("", "0 <= batch_dims <= dim < rank(operand) and batch_dims <= rank(index)")(
    lambda op: (
        None
        if 0 <= op["batch_dims"] <= op["dim"] < op.operands[0].tensor.rank
        and op["batch_dims"] <= op.operands[1].tensor.rank
        else f"{op['batch_dims']} and {op['dim']} for {listed(op.operand_types)}"
    )
)


@TORCH_INDEX_SELECT.infer
def _(op: Op) -> list[Type]:
    operand, index = tensors(op.operands)
    dimension, batches = op["dim"], op["batch_dims"]
    shape = (*operand.shape[:dimension], *index.shape[batches:], *operand.shape[dimension + 1 :])
    return [tensor(shape, operand.element_type)]
