"""Scatter. Source: StableHLO specification, scatter.

Updates that are partly out of bounds: spmd.dialects.scatters.
"""

from __future__ import annotations

from collections.abc import Callable

from spmd.dialects import kinds
from spmd.dialects.checks import (
    Dimension,
    ascending,
    at_least,
    compatible_dims,
    dims,
    equal,
    in_range,
    listed,
    same_shape,
    shape_text,
    tensors,
    unique,
)
from spmd.dialects.core import Trait, attribute, define, operand, region, result
from spmd.dialects.indexing import component_count, matching_batches
from spmd.dialects.reducers import accumulated, check_reducer
from spmd.dialects.structs import ScatterDimensionNumbersAttr
from spmd.dialects.type_sets import tensor_of_kinds
from spmd.ir import Op
from spmd.types import TensorType

SCATTER = define(
    "stablehlo.scatter",
    operands=[
        operand("inputs", variadic=True),
        operand("scatter_indices", tensor_of_kinds("i1", "signed", "unsigned", "index")),
        operand("updates", variadic=True),
    ],
    attributes=[
        attribute("scatter_dimension_numbers", kinds.struct(ScatterDimensionNumbersAttr)),
        attribute("indices_are_sorted", kinds.BOOL, default=False),
        attribute("unique_indices", kinds.BOOL, default=False),
    ],
    results=[result("results", variadic=True)],
    regions=[region("update_computation")],
    traits=[Trait.RECURSIVE],
)

#: Checks a scatter's dimension numbers and the shapes of inputs, scatter_indices and updates.
_ScatterCheck = Callable[
    [ScatterDimensionNumbersAttr, tuple[Dimension, ...], tuple[Dimension, ...], tuple[Dimension, ...]], str | None
]


def _groups(op: Op) -> tuple[list[TensorType], TensorType, list[TensorType]]:
    count = len(op.operands) // 2
    types = tensors(op.operands)
    return types[:count], types[count], types[count + 1 :]


def _scatter(label: str, text: str, check: _ScatterCheck) -> None:
    def checked(op: Op) -> str | None:
        inputs, indices, updates = _groups(op)
        return check(op["scatter_dimension_numbers"], inputs[0].shape, indices.shape, updates[0].shape)

    SCATTER.constraint(label, text)(checked)


SCATTER.constraint("C5", "0 < size(inputs) = size(updates)")(lambda op: at_least(len(op.operands) // 2, 1))
SCATTER.constraint("C1", "same(shape(inputs...))")(lambda op: same_shape(*_groups(op)[0]))
SCATTER.constraint("C3", "same(shape(updates...))")(lambda op: same_shape(*_groups(op)[2]))
_scatter(
    "C22",
    "0 <= index_vector_dim <= rank(scatter_indices)",
    lambda d, x, i, u: in_range([d.index_vector_dim], len(i) + 1),
)
check_reducer(
    SCATTER,
    "C23",
    lambda op: _groups(op)[0],
    initial=(
        "C6",
        "updates have the element types of inputs",
        lambda op: [TensorType((), type.element_type) for type in _groups(op)[2]],
    ),
)
_scatter(
    "C4",
    "rank(updates[0]) is that of scatter_indices without index_vector_dim plus size(update_window_dims)",
    lambda d, x, i, u: equal(len(u), len(d.update_window_dims) + max(len(i), d.index_vector_dim + 1) - 1),
)
_scatter(
    "C2",
    "rank(inputs[0]) = size(update_window_dims) + size(inserted_window_dims) + size(input_batching_dims)",
    lambda d, x, i, u: equal(
        len(x), len(d.update_window_dims) + len(d.inserted_window_dims) + len(d.input_batching_dims)
    ),
)
_scatter(
    "C7",
    "is_unique(update_window_dims) and is_sorted(update_window_dims)",
    lambda d, x, i, u: unique(d.update_window_dims) or ascending(d.update_window_dims),
)
_scatter("C8", "0 <= update_window_dims < rank(updates[0])", lambda d, x, i, u: in_range(d.update_window_dims, len(u)))
_scatter(
    "C9",
    "is_unique(inserted_window_dims + input_batching_dims)",
    lambda d, x, i, u: unique((*d.inserted_window_dims, *d.input_batching_dims)),
)
_scatter("C10", "is_sorted(inserted_window_dims)", lambda d, x, i, u: ascending(d.inserted_window_dims))
_scatter(
    "C11", "0 <= inserted_window_dims < rank(inputs[0])", lambda d, x, i, u: in_range(d.inserted_window_dims, len(x))
)
_scatter("C12", "is_sorted(input_batching_dims)", lambda d, x, i, u: ascending(d.input_batching_dims))
_scatter(
    "C13", "0 <= input_batching_dims < rank(inputs[0])", lambda d, x, i, u: in_range(d.input_batching_dims, len(x))
)
_scatter("C14", "is_unique(scatter_indices_batching_dims)", lambda d, x, i, u: unique(d.scatter_indices_batching_dims))
_scatter(
    "C15",
    "0 <= scatter_indices_batching_dims < rank(scatter_indices)",
    lambda d, x, i, u: in_range(d.scatter_indices_batching_dims, len(i)),
)
_scatter(
    "C16",
    "index_vector_dim is not in scatter_indices_batching_dims",
    lambda d, x, i, u: (
        f"{d.index_vector_dim} and {dims(d.scatter_indices_batching_dims)}"
        if d.index_vector_dim in d.scatter_indices_batching_dims
        else None
    ),
)
_scatter(
    "C17",
    "size(input_batching_dims) = size(scatter_indices_batching_dims)",
    lambda d, x, i, u: equal(len(d.input_batching_dims), len(d.scatter_indices_batching_dims)),
)
_scatter(
    "C18",
    "dim(inputs[0], input_batching_dims...) = dim(scatter_indices, scatter_indices_batching_dims...)",
    lambda d, x, i, u: matching_batches(x, d.input_batching_dims, i, d.scatter_indices_batching_dims),
)
_scatter(
    "C19",
    "size(scatter_dims_to_operand_dims) is the size of scatter_indices along index_vector_dim",
    lambda d, x, i, u: component_count(d.scatter_dims_to_operand_dims, i, d.index_vector_dim),
)
_scatter(
    "C20",
    "is_unique(scatter_dims_to_operand_dims + input_batching_dims)",
    lambda d, x, i, u: unique((*d.scatter_dims_to_operand_dims, *d.input_batching_dims)),
)
_scatter(
    "C21",
    "0 <= scatter_dims_to_operand_dims < rank(inputs[0])",
    lambda d, x, i, u: in_range(d.scatter_dims_to_operand_dims, len(x)),
)


@SCATTER.constraint("C4", "shape(updates[0]) = combine(update_scatter_dim_sizes, update_window_dim_sizes)")
def _(op: Op) -> str | None:
    numbers: ScatterDimensionNumbersAttr = op["scatter_dimension_numbers"]
    inputs, indices, updates = _groups(op)
    dropped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    for scattered, update in zip(inputs, updates, strict=True):
        windows = iter([size for d, size in enumerate(scattered.shape) if d not in dropped])
        scatters = iter([size for d, size in enumerate(indices.shape) if d != numbers.index_vector_dim])
        for dimension, size in enumerate(update.shape):
            if dimension in numbers.update_window_dims:
                most = next(windows)
                sound = size is None or most is None or size <= most
            else:
                sound = compatible_dims(size, next(scatters))
            if not sound:
                shapes = map(shape_text, (update.shape, scattered.shape, indices.shape))
                return f"updates, inputs and scatter_indices {listed(shapes)}"
    return None


SCATTER.infers("C24, C25", "results have the shapes of inputs and the element types of update_computation")(
    lambda op: accumulated(op.regions[0], _groups(op)[0])
)
