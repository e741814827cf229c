"""Bounded dimensions: how ops propagate dimensions whose size is known at run time, up to a bound.

An op works on the actual elements, as on arrays of the actual sizes. Where it pairs a bounded dimension with a static
one of another operand, only the corresponding part of the latter takes part: the rest is paired with padding, which
is ignored. Source: XLA operation semantics, "SetDimensionSize"; XLA's shape inference and its propagation of dynamic
dimensions; StableHLO, "Bounded dynamism".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from spmd.dialects.core import Trait, has_trait
from spmd.dialects.shapes import bounds_of, common_groups
from spmd.ir import NumberedValue, Op
from spmd.support.registry import filed
from spmd.types import TensorType, Type

#: A dimension of an operand or result: (index of the operand or result, index of the dimension).
Place = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """Dimensions of `operands` that have the same size, and dimensions of `results` whose size depends on it.

    `spreads`: an operand with one element there is broadcast.
    """

    operands: tuple[Place, ...]
    results: tuple[Place, ...] = ()
    spreads: bool = False


_Rule = Callable[[Op], Iterator[Axis]]
_RULES: dict[str, _Rule] = {}


def is_bounded(type: Type) -> bool:
    """Return whether `type` is a tensor type with a bounded dimension."""
    return isinstance(type, TensorType) and any(
        size is None and bound is not None for size, bound in zip(type.shape, bounds_of(type), strict=True)
    )


def takes_bounded(op: Op) -> bool:
    """Return whether `op` has a bounded operand, and a rule for bounded dimensions."""
    return _rule(op) is not None and any(is_bounded(value.type) for value in op.operands)


def bound_shape(type: TensorType) -> tuple[int | None, ...]:
    """Return the shape of `type` with bounded dimensions at their bounds."""
    return tuple(bound if size is None else size for size, bound in zip(type.shape, bounds_of(type), strict=True))


def at_bounds(op: Op) -> Op:
    """Return `op` with the types of operands and results at their bounds."""
    operands = [
        NumberedValue(_at_bound(value.type), value.owner, value.index, value.name_hint) for value in op.operands
    ]
    return op.clone(operands, result_types=[_at_bound(type) for type in op.result_types])


def _at_bound(type: Type) -> Type:
    if not isinstance(type, TensorType) or type.is_static:
        return type
    return TensorType(bound_shape(type), type.element_type)


def axes(op: Op) -> list[Axis]:
    """Return how dimensions of operands and results of `op`, at its bounds, are related."""
    rule = _rule(op)
    return [] if rule is None else list(rule(op))


def bounded_results(op: Op, full: Op) -> list[Type]:
    """Return the result types of `op`, given `full`, which is `op` at its bounds: dependent dimensions are bounded.

    Dimensions that are bounded in the declared result types stay so.
    """
    marked = {
        (index, dimension)
        for index, type in enumerate(op.result_types)
        if isinstance(type, TensorType)
        for dimension, size in enumerate(type.shape)
        if size is None
    }
    for axis in axes(full):
        if any(op.operands[index].tensor.shape[dimension] is None for index, dimension in axis.operands):
            marked.update(axis.results)
    types: list[Type] = []
    for index, type in enumerate(full.result_types):
        if isinstance(type, TensorType) and any((index, dimension) in marked for dimension in range(type.rank)):
            dynamic = [(index, dimension) in marked for dimension in range(type.rank)]
            type = with_bounds(type, dynamic)
        types.append(type)
    return types


def with_bounds(type: TensorType, dynamic: Sequence[bool]) -> TensorType:
    """Return the static `type` with bounds instead of sizes for the `dynamic` dimensions."""
    if not any(dynamic):
        return type
    shape = tuple(None if flag else size for size, flag in zip(type.shape, dynamic, strict=True))
    return TensorType(
        shape, type.element_type, tuple(s if f else None for s, f in zip(type.shape, dynamic, strict=True))
    )


def _rule(op: Op) -> _Rule | None:
    known = _RULES.get(op.name)
    return _alike if known is None and has_trait(op, Trait.ELEMENTWISE) else known


def _rules(*names: str) -> Callable[[_Rule], _Rule]:
    """Return a decorator that registers the rule of the ops `names` of StableHLO or CHLO."""
    return filed(_RULES, [name if "." in name else f"stablehlo.{name}" for name in names], "rule of bounded dimensions")


def _shape(op: Op, index: int) -> tuple[int, ...]:
    return op.operands[index].tensor.static_shape


def _ranked(op: Op, rank: int) -> list[int]:
    """Return the indices of the operands of that rank."""
    return [
        index
        for index, value in enumerate(op.operands)
        if isinstance(value.type, TensorType) and value.type.rank == rank
    ]


@_rules("select", "clamp", "compare", "convert", "reduce_precision", "map", "sort", "reverse", "is_finite")
def _alike(op: Op) -> Iterator[Axis]:
    """Relate all results and operands, except scalars, which have the same shape."""
    rank = op.results[0].tensor.rank
    spreads = op.name not in ("stablehlo.sort", "stablehlo.reverse")
    for dimension in range(rank):
        operands = tuple((index, dimension) for index in _ranked(op, rank))
        yield Axis(operands, tuple((index, dimension) for index in range(len(op.results))), spreads)


@_rules("optimization_barrier", "all_reduce", "collective_permute", "collective_broadcast")
def _each(op: Op) -> Iterator[Axis]:
    """Relate each result to its operand, of the same shape."""
    for index, value in enumerate(op.operands):
        for dimension in range(value.tensor.rank if isinstance(value.type, TensorType) else 0):
            yield Axis(((index, dimension),), ((index, dimension),))


@_rules("slice", "dynamic_slice")
def _slice(op: Op) -> Iterator[Axis]:
    """Relate dimensions of a slice; a slice of one element is not dynamic there (XLA, InferSliceShape)."""
    for dimension, size in enumerate(op.result.tensor.static_shape):
        yield Axis(((0, dimension),), ((0, dimension),) if size != 1 else ())


@_rules("dynamic_update_slice", "pad", "bitcast_convert", "fft", "cholesky", "select_and_scatter", "real", "imag")
def _first(op: Op) -> Iterator[Axis]:
    """Relate the result's dimensions to those of the first operand, which determine them."""
    for dimension in range(min(op.operands[0].tensor.rank, op.result.tensor.rank)):
        yield Axis(((0, dimension),), ((0, dimension),))


@_rules("triangular_solve")
def _solve(op: Op) -> Iterator[Axis]:
    """Relate batch dimensions, and the side of `a` with that of `b`."""
    rank = op.result.tensor.rank
    for dimension in range(rank - 2):
        yield Axis(((0, dimension), (1, dimension)), ((0, dimension),))
    side, other = (rank - 2, rank - 1) if op["left_side"] else (rank - 1, rank - 2)
    yield Axis(((0, rank - 2), (0, rank - 1), (1, side)), ((0, side),))
    yield Axis(((1, other),), ((0, other),))


@_rules("transpose")
def _transpose(op: Op) -> Iterator[Axis]:
    for place, dimension in enumerate(op["permutation"]):
        yield Axis(((0, dimension),), ((0, place),))


@_rules("broadcast_in_dim")
def _broadcast_in_dim(op: Op) -> Iterator[Axis]:
    result = op.result.tensor.static_shape
    for dimension, (place, size) in enumerate(zip(op["broadcast_dimensions"], _shape(op, 0), strict=True)):
        if size == result[place]:
            yield Axis(((0, dimension),), ((0, place),))


@_rules("concatenate")
def _concatenate(op: Op) -> Iterator[Axis]:
    for dimension in range(op.result.tensor.rank):
        places = [(index, dimension) for index in range(len(op.operands))]
        apart = dimension == op["dimension"]
        for operands in [(place,) for place in places] if apart else [tuple(places)]:
            yield Axis(operands, ((0, dimension),))


@_rules("reduce", "reduce_window")
def _reduce(op: Op) -> Iterator[Axis]:
    """Relate the operands, of one shape, to the results: a reduction removes dimensions, windows keep all."""
    count = len(op.operands) // 2
    gone = set(op["dimensions"]) if op.name == "stablehlo.reduce" else set()
    kept = [dimension for dimension in range(op.operands[0].tensor.rank) if dimension not in gone]
    for dimension in range(op.operands[0].tensor.rank):
        results = tuple((index, kept.index(dimension)) for index in range(len(op.results))) if dimension in kept else ()
        yield Axis(tuple((index, dimension) for index in range(count)), results)


@_rules("chlo.top_k")
def _top_k(op: Op) -> Iterator[Axis]:
    """Relate all dimensions but the last, whose size in the results is an attribute."""
    last = op.operands[0].tensor.rank - 1
    for dimension in range(last + 1):
        yield Axis(((0, dimension),), () if dimension == last else ((0, dimension), (1, dimension)))


@_rules("dot_general")
def _dot_general(op: Op) -> Iterator[Axis]:
    numbers = op["dot_dimension_numbers"]
    batches = list(zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True))
    for place, (left, right) in enumerate(batches):
        yield Axis(((0, left), (1, right)), ((0, place),))
    contracting = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
    for left, right in zip(*contracting, strict=True):
        yield Axis(((0, left), (1, right)))
    place = len(batches)
    for index, taken in enumerate(
        zip((numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions), contracting, strict=True)
    ):
        for dimension in range(op.operands[index].tensor.rank):
            if not any(dimension in numbers_of for numbers_of in taken):
                yield Axis(((index, dimension),), ((0, place),))
                place += 1


@_rules("dot")
def _dot(op: Op) -> Iterator[Axis]:
    left, right = (value.tensor.rank for value in op.operands)
    yield Axis(((0, left - 1), (1, 0)))
    if left > 1:
        yield Axis(((0, 0),), ((0, 0),))
    for dimension in range(1, right):
        yield Axis(((1, dimension),), ((0, left - 2 + dimension),))


@_rules("convolution")
def _convolution(op: Op) -> Iterator[Axis]:
    """Relate dimensions of a convolution; features only if there is a single group."""
    numbers = op["dimension_numbers"]
    outputs = (numbers.output_batch_dimension, numbers.output_feature_dimension)
    features = ((0, numbers.input_feature_dimension), (1, numbers.kernel_input_feature_dimension))
    yield Axis(((0, numbers.input_batch_dimension),), ((0, outputs[0]),))
    yield from [Axis(features)] if op["feature_group_count"] == 1 else map(Axis, zip(features, strict=True))
    yield Axis(((1, numbers.kernel_output_feature_dimension),), ((0, outputs[1]),))
    for image, kernel, place in zip(
        numbers.input_spatial_dimensions, numbers.kernel_spatial_dimensions, numbers.output_spatial_dimensions,
        strict=True,
    ):  # fmt: skip
        yield Axis(((0, image),), ((0, place),))
        yield Axis(((1, kernel),), ((0, place),))


@_rules("gather")
def _gather(op: Op) -> Iterator[Axis]:
    """Relate windows of full extent to the operand, and the indices' batch dimensions to the result's."""
    numbers, sizes, shape = op["dimension_numbers"], op["slice_sizes"], _shape(op, 0)
    batching = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    offsets = iter(numbers.offset_dims)
    for dimension in range(len(shape)):
        if dimension in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims):
            continue
        place = next(offsets)
        yield Axis(((0, dimension),), ((0, place),) if sizes[dimension] == shape[dimension] else ())
    batch = [place for place in range(op.result.tensor.rank) if place not in numbers.offset_dims]
    of_indices = [d for d in range(op.operands[1].tensor.rank) if d != numbers.index_vector_dim]
    for place, dimension in zip(batch, of_indices, strict=True):
        beside = ((0, batching[dimension]),) if dimension in batching else ()
        yield Axis(((1, dimension), *beside), ((0, place),))


@_rules("scatter")
def _scatter(op: Op) -> Iterator[Axis]:
    """Relate inputs to results, updates to indices, and windows of full extent to inputs.

    Source: XLA operation semantics, "Scatter".
    """
    count = len(op.operands) // 2
    numbers, shape = op["scatter_dimension_numbers"], _shape(op, 0)
    window = [d for d in range(len(shape)) if d not in (*numbers.inserted_window_dims, *numbers.input_batching_dims)]
    whole = {
        dimension: place
        for dimension, place in zip(window, numbers.update_window_dims, strict=True)
        if _shape(op, count + 1)[place] == shape[dimension]
    }
    batching = dict(zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    of_indices = [d for d in range(op.operands[count].tensor.rank) if d != numbers.index_vector_dim]
    of_updates = [d for d in range(op.operands[count + 1].tensor.rank) if d not in numbers.update_window_dims]
    updates = dict(zip(of_indices, of_updates, strict=True))
    for dimension in range(len(shape)):
        operands = [(index, dimension) for index in range(count)]
        if dimension in whole:
            operands += [(count + 1 + index, whole[dimension]) for index in range(count)]
        if dimension in batching:
            operands += [(count, batching[dimension])]
            operands += [(count + 1 + index, updates[batching[dimension]]) for index in range(count)]
        yield Axis(tuple(operands), tuple((index, dimension) for index in range(count)))
    for dimension, place in updates.items():
        if dimension not in batching.values():
            yield Axis(((count, dimension), *((count + 1 + index, place) for index in range(count))))


# --- reshape ---------------------------------------------------------------------------------------------------------


@_rules("reshape")
def _reshape(op: Op) -> Iterator[Axis]:
    """Relate a bounded dimension to one of the dimensions that it becomes.

    It is the first that is filled evenly at any size, else the first with several elements.
    """
    shape, result = _shape(op, 0), op.result.tensor.static_shape
    for taken, given in common_groups(shape, result):
        for dimension in taken:
            others = prod(shape[other] for other in taken if other != dimension)
            several = [place for place in given if result[place] != 1] or list(given)
            total = prod(result[place] for place in given)
            even = [p for p in several if total and others % (total // result[p]) == 0]
            place = next(iter(even or several), None)
            yield Axis(((0, dimension),), () if place is None else ((0, place),))
