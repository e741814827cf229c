"""Operations that combine elements with a computation.

Source: XlaBuilder operation semantics, "Map", "Reduce", "ReduceWindow", "SelectAndScatter".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from spmd import types as t
from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation, region_of
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation, synonym
from spmd.builder.options import Padding, make_padding
from spmd.builder.shape import Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp
from spmd.dialects.shapes import dilated, windows
from spmd.ir import Value
from spmd.support.arrays import Array

#: SAME, VALID, or (low, high) for each dimension.
PaddingLike = Padding | str | Sequence[tuple[int, int]]


def _folded(builder: XlaBuilder, operands: object, init_values: object) -> tuple[list[Value], list[Value]]:
    """Return arrays of one shape, and one scalar for each."""
    values = checks.arrays(builder, operands, "operands")
    checks.same_dimensions(values, "operands")
    sequence = init_values if isinstance(init_values, (list, tuple)) else [init_values]
    if len(sequence) != len(values):
        raise ArgumentError("init_values", f"must be {len(values)} scalars, one per operand, got {len(sequence)}")
    starts = [
        checks.scalar(builder, one, f"init_values[{i}]" if len(sequence) > 1 else "init_values", value)
        for i, (one, value) in enumerate(zip(sequence, values, strict=True))
    ]
    return values, starts


def _scalars(values: Sequence[Value]) -> list[t.Type]:
    return [t.TensorType((), value.tensor.element_type) for value in values]


@operation
def Reduce(
    builder: XlaBuilder,
    operands: XlaOp | Sequence[XlaOp],
    init_values: XlaOp | Sequence[XlaOp],
    computation: XlaComputation,
    dimensions: Sequence[int],
) -> XlaOp:
    """Return arrays of one shape reduced over `dimensions` by `computation`, starting from `init_values`.

    The computation takes an accumulator for each array, then an input for each, and returns one scalar for each (a
    tuple if there are several), as does the operation. Source: "Reduce".
    """
    values, starts = _folded(builder, operands, init_values)
    numbers = checks.dimensions(dimensions, values[0].tensor.rank, "dimensions")
    used = checks.reducer(builder, computation, "computation", values)
    region = region_of(used, _scalars(values) * 2)
    attributes = {"dimensions": tuple(sorted(numbers))}
    return builder.collate(builder.emit("stablehlo.reduce", [*values, *starts], attributes, None, [region]))


@operation
def ReduceAll(
    builder: XlaBuilder,
    operands: XlaOp | Sequence[XlaOp],
    init_values: XlaOp | Sequence[XlaOp],
    computation: XlaComputation,
) -> XlaOp:
    """Return Reduce over all dimensions. Source: "Reduce"."""
    first = operands[0] if isinstance(operands, (list, tuple)) else operands
    rank = checks.array(builder, first, "operands").tensor.rank
    return OPERATIONS["Reduce"](builder, operands, init_values, computation, range(rank))


def window_padding(
    padding: PaddingLike, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Return (low, high) for each dimension from SAME, VALID or explicit pairs."""
    if isinstance(padding, (Padding, str)):
        try:
            return make_padding(sizes, window, strides, padding)
        except ValueError as error:
            raise ArgumentError("padding", str(error)) from None
    pairs = [checks.integers(pair, "padding", 2) for pair in padding]
    if len(pairs) != len(sizes):
        raise ArgumentError("padding", f"must be {len(sizes)} (low, high) pairs, got {len(pairs)}")
    return [(low, high) for low, high in pairs]


def padding_attribute(pairs: Sequence[tuple[int, int]]) -> Array:
    """Return the pairs as an n x 2 array, for n = 0 too."""
    return np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)


@operation
def ReduceWindow(
    builder: XlaBuilder,
    operands: XlaOp | Sequence[XlaOp],
    init_values: XlaOp | Sequence[XlaOp],
    computation: XlaComputation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: PaddingLike = Padding.VALID,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
) -> XlaOp:
    """Return the elements of every window of the operands reduced by `computation`, starting from `init_values`.

    `padding` is Padding.SAME, Padding.VALID, or a (low, high) pair for each dimension. Strides and dilations are 1
    unless given. Several operands, of one shape, return a tuple. Source: "ReduceWindow".
    """
    values, starts = _folded(builder, operands, init_values)
    sizes = checks.sizes(values[0])
    rank = len(sizes)
    window = checks.integers(window_dimensions, "window_dimensions", rank, 1)
    strides = checks.per_dimension(window_strides, rank, "window_strides")
    base = checks.per_dimension(base_dilations, rank, "base_dilations")
    spread = checks.per_dimension(window_dilations, rank, "window_dilations")
    area = [dilated(size, factor) for size, factor in zip(sizes, base, strict=True)]
    reach = [dilated(size, factor) for size, factor in zip(window, spread, strict=True)]
    pairs = window_padding(padding, area, reach, strides)
    used = checks.reducer(builder, computation, "computation", values)
    attributes = {
        "window_dimensions": window,
        "window_strides": strides,
        "base_dilations": base,
        "window_dilations": spread,
        "padding": padding_attribute(pairs),
    }
    region = region_of(used, _scalars(values) * 2)
    return builder.collate(builder.emit("stablehlo.reduce_window", [*values, *starts], attributes, None, [region]))


def _are_pairs(values: Sequence[int] | Sequence[tuple[int, int]]) -> TypeGuard[Sequence[tuple[int, int]]]:
    """Return whether `values` are (low, high) pairs, not one number per dimension."""
    return any(isinstance(value, Sequence | np.ndarray) for value in values)


@operation
def ReduceWindowWithGeneralPadding(
    builder: XlaBuilder,
    operands: XlaOp | Sequence[XlaOp],
    init_values: XlaOp | Sequence[XlaOp],
    computation: XlaComputation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    base_dilations: Sequence[int] | Sequence[tuple[int, int]] | None = None,
    window_dilations: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] = (),
) -> XlaOp:
    """Return ReduceWindow with a (low, high) pair for each dimension.

    Arguments are in XlaBuilder's order, or in that of the first edition, with padding after the strides:
    `ReduceWindowWithGeneralPadding(x, zero, add, [2], [2], [(1, 1)])`. Source: "ReduceWindow"; TensorFlow compiler
    framework document, "C++ interface".
    """
    if base_dilations is not None and not isinstance(padding, str) and not len(padding) and _are_pairs(base_dilations):
        padding, base_dilations = base_dilations, None
    return OPERATIONS["ReduceWindow"](
        builder, operands, init_values, computation, window_dimensions, window_strides, padding, base_dilations,
        window_dilations,
    )  # fmt: skip


@operation
def SelectAndScatter(
    builder: XlaBuilder,
    operand: XlaOp,
    select: XlaComputation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: PaddingLike,
    source: XlaOp,
    init_value: XlaOp,
    scatter: XlaComputation,
) -> XlaOp:
    """Return the elements of `source`, each scattered to the element that `select` picks in its window of `operand`.

    `source` has the shape of ReduceWindow's result for these windows. If windows pick the same element, `scatter`
    (current value, source element) combines; unpicked elements are `init_value`. `select` returns whether its first
    argument, the earlier element, is picked. Source: "SelectAndScatter".
    """
    value = checks.array(builder, operand, "operand")
    source_value = checks.array(builder, source, "source")
    start = checks.scalar(builder, init_value, "init_value", value)
    checks.same_element_type(source_value, value, "source")
    sizes = checks.sizes(value)
    window = checks.integers(window_dimensions, "window_dimensions", len(sizes), 1)
    strides = checks.per_dimension(window_strides, len(sizes), "window_strides")
    pairs = window_padding(padding, sizes, window, strides)
    undilated = (1,) * len(sizes)
    expected = tuple(windows(sizes, window, strides, pairs, undilated, undilated))
    if checks.sizes(source_value) != expected:
        raise ArgumentError(
            "source",
            f"must have the dimensions {list(expected)}, one entry per window, got {Shape.of(source_value.type).brief}",
        )
    scalars = _scalars([value]) * 2
    picker = checks.signature(builder, select, "select", scalars, [t.TensorType((), t.I1)])
    combiner = checks.reducer(builder, scatter, "scatter", [value])
    attributes = {
        "window_dimensions": window,
        "window_strides": strides,
        "padding": padding_attribute(pairs),
    }
    regions = [region_of(picker, scalars), region_of(combiner, scalars)]
    return builder.emit_one("stablehlo.select_and_scatter", [value, source_value, start], attributes, None, regions)


SelectAndScatterWithGeneralPadding = synonym(
    "SelectAndScatterWithGeneralPadding",
    SelectAndScatter,
    "SelectAndScatter with a (low, high) pair for each dimension.",
    '"SelectAndScatter"',
)


@operation
def Map(
    builder: XlaBuilder,
    operands: XlaOp | Sequence[XlaOp],
    computation: XlaComputation,
    dimensions: Sequence[int] | None = None,
    static_operands: Sequence[XlaOp] = (),
) -> XlaOp:
    """Return the scalar `computation` applied at every index of arrays of one shape. Source: "Map".

    It takes one scalar for each operand, then the `static_operands` (of any shape, the same for every element), and
    returns a scalar. `dimensions` must be all dimensions in order.
    """
    values = checks.arrays(builder, operands, "operands")
    checks.same_dimensions(values, "operands")
    rank = values[0].tensor.rank
    numbers = tuple(range(rank)) if dimensions is None else checks.integers(dimensions, "dimensions")
    if numbers != tuple(range(rank)):
        raise ArgumentError("dimensions", f"must be all dimensions in order, {list(range(rank))}, got {list(numbers)}")
    fixed = [builder.value(one, f"static_operands[{i}]") for i, one in enumerate(static_operands)]
    scalars = _scalars(values)
    used = checks.signature(builder, computation, "computation", [*scalars, *(one.type for one in fixed)])
    result = used.result.type
    if not isinstance(result, t.TensorType) or result.rank:
        raise ArgumentError("computation", f"must return a scalar, {used.name()} returns {Shape.of(result).brief}")
    region = region_of(used, scalars, fixed)
    return builder.emit_one("stablehlo.map", values, {"dimensions": numbers}, None, [region])
