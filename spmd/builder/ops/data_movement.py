"""Operations that move elements unchanged, and Sort and TopK, which compare them.

Source: XlaBuilder operation semantics, the sections of the operations' names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spmd import types as t
from spmd.builder import checks
from spmd.builder.bounded import moved
from spmd.builder.broadcasting import Sizes
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation, region_of
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation, synonym
from spmd.builder.options import PaddingConfig
from spmd.builder.shape import Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp
from spmd.dialects.bounded import with_bounds
from spmd.ir import Value


@operation
def Broadcast(builder: XlaBuilder, operand: XlaOp, broadcast_sizes: Sequence[int]) -> XlaOp:
    """Return copies of `operand` along new major dimensions of `broadcast_sizes`. Source: "Broadcast"."""
    value = checks.array(builder, operand, "operand")
    sizes = checks.integers(broadcast_sizes, "broadcast_sizes", least=0)
    kind = value.tensor.with_shape((*sizes, *checks.sizes(value)))
    dimensions = tuple(range(len(sizes), kind.rank))
    attributes = {"broadcast_dimensions": dimensions}
    return XlaOp(builder, moved(builder, "stablehlo.broadcast_in_dim", value, attributes, kind))


@operation
def BroadcastInDim(
    builder: XlaBuilder, operand: XlaOp, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]
) -> XlaOp:
    """Return `operand` broadcast to `out_dim_size`; its dimension i is dimension broadcast_dimensions[i] there.

    A dimension of the operand has size 1 or the size of the one it matches. Source: "BroadcastInDim".
    """
    value = checks.array(builder, operand, "operand")
    sizes = checks.integers(out_dim_size, "out_dim_size", least=0)
    numbers = checks.dimensions(broadcast_dimensions, len(sizes), "broadcast_dimensions")
    if len(numbers) != value.tensor.rank:
        raise ArgumentError("broadcast_dimensions", f"must have {value.tensor.rank} entries, got {len(numbers)}")
    for own, number in enumerate(numbers):
        size = checks.sizes(value)[own]
        if size not in (1, sizes[number]):
            message = f"dimension {own} must have size 1 or {sizes[number]}, that of dimension {number}, got {size}"
            raise ArgumentError("operand", message)
    kind = value.tensor.with_shape(sizes)
    attributes = {"broadcast_dimensions": numbers}
    return XlaOp(builder, moved(builder, "stablehlo.broadcast_in_dim", value, attributes, kind))


@operation
def Collapse(builder: XlaBuilder, operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Return `operand` with the consecutive `dimensions` merged into one. Source: "Collapse"."""
    value = checks.array(builder, operand, "operand")
    numbers = checks.dimensions(dimensions, value.tensor.rank, "dimensions")
    if list(numbers) != list(range(numbers[0], numbers[0] + len(numbers)) if numbers else ()):
        raise ArgumentError("dimensions", f"must be consecutive and in order, got {list(numbers)}")
    if not numbers:
        return XlaOp(builder, value)
    sizes = checks.sizes(value)
    first, last = numbers[0], numbers[-1] + 1
    return _reshape(builder, value, (*sizes[:first], math.prod(sizes[first:last]), *sizes[last:]))


def _reshape(builder: XlaBuilder, value: Value, sizes: Sizes) -> XlaOp:
    return XlaOp(builder, moved(builder, "stablehlo.reshape", value, {}, value.tensor.with_shape(sizes)))


@operation
def Reshape(
    builder: XlaBuilder,
    operand: XlaOp,
    dimensions: Sequence[int] | None = None,
    new_sizes: Sequence[int] | None = None,
    inferred_dimension: int = -1,
) -> XlaOp:
    """Return the elements of `operand` in a shape of the same size. Source: "Reshape".

    Reshape(operand, new_sizes), or Reshape(operand, dimensions, new_sizes), where `dimensions` is the order, from the
    slowest varying dimension to the fastest, in which the operand is flattened first. For an operand with a dynamic
    dimension, `inferred_dimension` of the result is dynamic; if -1, it is the dimension that the operand's becomes.
    """
    value = checks.array(builder, operand, "operand")
    order = None if new_sizes is None else dimensions
    sizes = checks.integers(dimensions if new_sizes is None else new_sizes, "new_sizes", least=0)
    if math.prod(sizes) != math.prod(checks.sizes(value)):
        count, elements = math.prod(checks.sizes(value)), math.prod(sizes)
        raise ArgumentError(
            "new_sizes",
            f"must have {count} elements as {Shape.of(value.type).brief} has, got {elements}: {list(sizes)}",
        )
    if order is not None:
        numbers = _permutation(order, value.tensor.rank, "dimensions")
        value = _transpose(builder, value, numbers)
    result = _reshape(builder, value, sizes)
    if inferred_dimension != -1 and sum(result.shape.dynamic) == 1:
        number = checks.dimension(inferred_dimension, len(sizes), "inferred_dimension")
        kind = value.tensor.with_shape(sizes)
        builder.value(result, "operand").type = with_bounds(kind, [d == number for d in range(len(sizes))])
    return result


def _permutation(values: object, rank: int, argument: str) -> tuple[int, ...]:
    numbers = checks.dimensions(values, rank, argument)
    if len(numbers) != rank:
        raise ArgumentError(argument, f"must be a permutation of {rank} dimensions, got {list(numbers)}")
    return numbers


def _transpose(builder: XlaBuilder, value: Value, numbers: tuple[int, ...]) -> Value:
    if numbers == tuple(range(len(numbers))):
        return value
    (transposed,) = builder.emit("stablehlo.transpose", [value], {"permutation": numbers})
    return transposed


@operation
def Transpose(builder: XlaBuilder, operand: XlaOp, permutation: Sequence[int] | None = None) -> XlaOp:
    """Return `operand` with dimension permutation[i] as dimension i; in reversed order if None.

    Source: "Transpose".
    """
    value = checks.array(builder, operand, "operand")
    order = range(value.tensor.rank)[::-1] if permutation is None else permutation
    return XlaOp(builder, _transpose(builder, value, _permutation(order, value.tensor.rank, "permutation")))


@operation
def Trans(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """Return the transpose of a matrix. Source: "Trans"."""
    value = checks.array(builder, operand, "operand")
    if value.tensor.rank != 2:
        raise ArgumentError("operand", f"must have rank 2, got {Shape.of(value.type).brief}")
    return XlaOp(builder, _transpose(builder, value, (1, 0)))


@operation
def Rev(builder: XlaBuilder, operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Return `operand` with elements in reverse order along `dimensions`. Source: "Rev"."""
    value = checks.array(builder, operand, "operand")
    numbers = checks.dimensions(dimensions, value.tensor.rank, "dimensions")
    return builder.emit_one("stablehlo.reverse", [value], {"dimensions": numbers})


@operation
def Concatenate(builder: XlaBuilder, operands: Sequence[XlaOp], dimension: int) -> XlaOp:
    """Return the concatenation of arrays equal in all other dimensions along `dimension`. Source: "Concatenate"."""
    values = checks.arrays(builder, operands, "operands")
    first = values[0]
    if first.tensor.rank == 0:
        raise ArgumentError("operands", "scalars cannot be concatenated: they have no dimension to name")
    number = checks.dimension(dimension, first.tensor.rank, "dimension")
    for index, value in enumerate(values):
        checks.same_element_type(value, first, f"operands[{index}]")
        pairs = zip(checks.sizes(value), checks.sizes(first), strict=False)
        differ = any(one != two for d, (one, two) in enumerate(pairs) if d != number)
        if value.tensor.rank != first.tensor.rank or differ:
            shapes = f"{Shape.of(value.type).brief} beside {Shape.of(first.type).brief}"
            raise ArgumentError(f"operands[{index}]", f"all dimensions but {number} must match, got {shapes}")
    return builder.emit_one("stablehlo.concatenate", values, {"dimension": number})


ConcatInDim = synonym("ConcatInDim", Concatenate, "Concatenate under its name in the builder.", '"Concatenate"')


@operation
def Pad(
    builder: XlaBuilder, operand: XlaOp, padding_value: XlaOp, padding_config: PaddingConfig | Sequence[Sequence[int]]
) -> XlaOp:
    """Return `operand` with `padding_value` around and between its elements. Source: "Pad".

    `padding_config`: a PaddingConfig, or a (low, high, interior) triple for each dimension. Negative edge padding
    crops, after the interior padding, which must not be negative.
    """
    value = checks.array(builder, operand, "operand")
    filler = checks.scalar(builder, padding_value, "padding_value", value)
    config = padding_config if isinstance(padding_config, PaddingConfig) else _padding_config(padding_config)
    if len(config.dimensions) != value.tensor.rank:
        raise ArgumentError("padding_config", f"must have {value.tensor.rank} entries, got {len(config.dimensions)}")
    triples = [(d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in config.dimensions]
    for number, (size, (low, high, interior)) in enumerate(zip(checks.sizes(value), triples, strict=True)):
        if interior < 0:
            raise ArgumentError(
                "padding_config", f"interior padding must not be negative, got {interior} in dimension {number}"
            )
        if size + max(size - 1, 0) * interior + low + high < 0:
            raise ArgumentError("padding_config", f"dimension {number} of size {size} must not become negative")
    columns = [tuple(column) for column in zip(*triples, strict=True)] or [(), (), ()]
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return builder.emit_one("stablehlo.pad", [value, filler], dict(zip(names, columns, strict=True)))


def _padding_config(config: Sequence[Sequence[int]]) -> PaddingConfig:
    return PaddingConfig([checks.integers(entry, "padding_config", 3) for entry in config])


@operation
def PadInDim(builder: XlaBuilder, operand: XlaOp, padding_value: XlaOp, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
    """Return Pad of dimension `dimno` alone. Source: "Pad"."""
    rank = checks.array(builder, operand, "operand").tensor.rank
    number = checks.dimension(dimno, rank, "dimno")
    config = PaddingConfig([(pad_lo, pad_hi, 0) if d == number else (0, 0, 0) for d in range(rank)])
    return OPERATIONS["Pad"](builder, operand, padding_value, config)


@operation
def Slice(
    builder: XlaBuilder,
    operand: XlaOp,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> XlaOp:
    """Return elements [start, limit) of each dimension, with a stride. Source: "Slice"."""
    value = checks.array(builder, operand, "operand")
    sizes = checks.sizes(value)
    starts = checks.integers(start_indices, "start_indices", len(sizes), 0)
    limits = checks.integers(limit_indices, "limit_indices", len(sizes))
    steps = checks.per_dimension(strides, len(sizes), "strides")
    for number, (start, limit, size) in enumerate(zip(starts, limits, sizes, strict=True)):
        if not start <= limit <= size:
            raise ArgumentError("limit_indices", f"must be in [{start}, {size}] in dimension {number}, got {limit}")
    attributes = {"start_indices": starts, "limit_indices": limits, "strides": steps}
    return builder.emit_one("stablehlo.slice", [value], attributes)


@operation
def SliceInDim(
    builder: XlaBuilder, operand: XlaOp, start_index: int, limit_index: int, stride: int = 1, dimno: int = 0
) -> XlaOp:
    """Return Slice of dimension `dimno` alone. Source: "Slice"."""
    value = checks.array(builder, operand, "operand")
    number = checks.dimension(dimno, value.tensor.rank, "dimno")
    starts, limits, steps = [0] * value.tensor.rank, list(checks.sizes(value)), [1] * value.tensor.rank
    starts[number], limits[number], steps[number] = start_index, limit_index, stride
    return OPERATIONS["Slice"](builder, operand, starts, limits, steps)


@operation
def Index(builder: XlaBuilder, operand: XlaOp, key: object) -> XlaOp:
    """Return `operand[key]`: an element of a tuple, or a static slice with integers, slices, `...` and None as in
    NumPy."""
    value = builder.value(operand, "operand")
    if isinstance(value.type, t.TupleType):
        number = checks.integer(key, "key")
        wrapped = number + len(value.type.types) if number < 0 else number
        return OPERATIONS["GetTupleElement"](builder, operand, wrapped)
    sizes = checks.sizes(checks.array(builder, operand, "operand"))
    keys = list(key) if isinstance(key, tuple) else [key]
    named = sum(k is not None and k is not Ellipsis for k in keys)
    if named > len(sizes):
        raise ArgumentError("key", f"must have at most {len(sizes)} indices, got {named}")
    if Ellipsis not in keys:
        keys.append(Ellipsis)
    at = next(i for i, k in enumerate(keys) if k is Ellipsis)
    keys[at : at + 1] = [slice(None)] * (len(sizes) - named)
    ranges: list[tuple[int, int, int]] = []
    shape: list[int] = []
    for entry in keys:
        if entry is None:
            shape.append(1)
            continue
        size = sizes[len(ranges)]
        if isinstance(entry, slice):
            start, stop, step = entry.indices(size)
            if step < 0:
                raise ArgumentError("key", f"steps must not be negative, got {step}; use Rev")
            ranges.append((start, max(start, stop), step))
            shape.append(len(range(start, stop, step)))
            continue
        number = checks.integer(entry, "key")
        if not -size <= number < size:
            raise ArgumentError("key", f"index must be in a dimension of size {size}, got {number}")
        ranges.append((number % size, number % size + 1, 1))
    starts, limits, steps = zip(*ranges, strict=True) if ranges else ((), (), ())
    attributes = {"start_indices": starts, "limit_indices": limits, "strides": steps}
    (part,) = builder.emit("stablehlo.slice", [value], attributes)
    return _reshape(builder, part, tuple(shape)) if tuple(shape) != checks.sizes(part) else XlaOp(builder, part)


# --- order -----------------------------------------------------------------------------------------------------------


@operation
def Sort(
    builder: XlaBuilder,
    operands: XlaOp | Sequence[XlaOp],
    comparator: XlaComputation | None = None,
    dimension: int = -1,
    is_stable: bool = False,
) -> XlaOp:
    """Return arrays of one shape, sorted together along `dimension` (the last one if -1). Source: "Sort".

    `comparator` takes two candidates of each operand, operand by operand, as scalars, and returns a PRED scalar:
    whether the first sorts first. Without one, the first operand is sorted in increasing order (floats in total order).
    Several operands return a tuple.
    """
    values = checks.arrays(builder, operands, "operands")
    checks.same_dimensions(values, "operands")
    rank = values[0].tensor.rank
    if rank == 0:
        raise ArgumentError("operands", "a scalar has no dimension to sort along")
    number = rank - 1 if dimension == -1 else checks.dimension(dimension, rank, "dimension")
    scalars = [t.TensorType((), value.tensor.element_type) for value in values for _ in range(2)]
    ordering = _increasing(values) if comparator is None else comparator
    used = checks.signature(builder, ordering, "comparator", scalars, [t.TensorType((), t.I1)])
    attributes = {"dimension": number, "is_stable": bool(is_stable)}
    types = [value.type for value in values]
    results = builder.emit("stablehlo.sort", values, attributes, types, [region_of(used, scalars)])
    return builder.collate(results)


def _increasing(values: Sequence[Value]) -> XlaComputation:
    """Return a comparator of the first operand alone."""
    inner = XlaBuilder("compare_less_than")
    parameters = [
        OPERATIONS["Parameter"](inner, number, Shape.of(values[number // 2].tensor.with_shape(())), f"p{number}")
        for number in range(2 * len(values))
    ]
    OPERATIONS["LtTotalOrder"](parameters[0], parameters[1])
    return inner.Build()


@operation
def TopK(builder: XlaBuilder, operand: XlaOp, k: int, largest: bool = True) -> XlaOp:
    """Return the `k` largest (or smallest) entries along the last dimension, and their indices: a tuple (values, S32
    indices).

    Sorted, equal entries by index. The last dimension must have at least `k` entries. Source: "TopK".
    """
    value = checks.array(builder, operand, "operand")
    if value.tensor.rank == 0:
        raise ArgumentError("operand", "must have at least 1 dimension")
    count = checks.integer(k, "k", 0)
    shape = checks.sizes(value)
    if count > shape[-1]:
        raise ArgumentError("k", f"must be at most the last dimension's size {shape[-1]}, got {count}")
    if largest:
        kind = value.tensor.with_shape((*shape[:-1], count))
        types = [kind, kind.with_element_type(t.I32)]
        return builder.tuple(builder.emit("chlo.top_k", [value], {"k": count}, types))
    last = {"iota_dimension": len(shape) - 1}
    (places,) = builder.emit("stablehlo.iota", [], last, [value.tensor.with_element_type(t.I32)])
    ordered = OPERATIONS["Sort"](builder, [operand, XlaOp(builder, places)], None, -1, True)
    parts = [_first(builder, ordered, i, count) for i in range(2)]
    return builder.tuple(parts)


def _first(builder: XlaBuilder, ordered: XlaOp, index: int, count: int) -> Value:
    part = OPERATIONS["GetTupleElement"](builder, ordered, index)
    return builder.value(OPERATIONS["Index"](builder, part, (..., slice(0, count))), "operand")


@operation
def GetDimensionSize(builder: XlaBuilder, operand: XlaOp, dimension: int) -> XlaOp:
    """Return the size of a dimension as an S32 scalar; for a dynamic one, its actual size. Source:
    "GetDimensionSize"."""
    value = checks.array(builder, operand, "operand")
    number = checks.dimension(dimension, value.tensor.rank, "dimension")
    return builder.emit_one("stablehlo.get_dimension_size", [value], {"dimension": number})


@operation
def SetDimensionSize(builder: XlaBuilder, operand: XlaOp, size: XlaOp, dimension: int) -> XlaOp:
    """Return `operand` with `dimension` dynamic, of actual size `size` (an S32 scalar).

    The bound of the dimension is its former size. Source: "SetDimensionSize".
    """
    value = checks.array(builder, operand, "operand")
    number = checks.dimension(dimension, value.tensor.rank, "dimension")
    count = checks.scalar(builder, size, "size")
    if count.tensor.element_type is not t.I32:
        raise ArgumentError("size", f"must be s32[], got {Shape.of(count.type).brief}")
    shape = Shape.of(value.type)
    dynamic = [flag or d == number for d, flag in enumerate(shape.dynamic)]
    kind = Shape(shape.primitive_type, shape.sizes, dynamic).tensor
    return builder.emit_one("stablehlo.set_dimension_size", [value, count], {"dimension": number}, kind)
