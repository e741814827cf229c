"""Expansion of select_and_scatter into two ops with native code: a reduce_window that finds indices, and a scatter.

Each window reduces (element, index) pairs to the one that `select` prefers; padding has no index.
"""

from __future__ import annotations

from math import prod

import numpy as np

from spmd.analysis.reducers import monoid_of
from spmd.analysis.windows import windows_of
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.make import make_op, make_reducer
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import ScatterDimensionNumbersAttr
from spmd.ir import Block, Op, Region, Value
from spmd.types import I32, ElementType, TensorType

SELECT_AND_SCATTER = "stablehlo.select_and_scatter"
#: The index of padding.
_NOWHERE = -1


def expand_select_and_scatter(block: Block) -> None:
    """Rewrite each select_and_scatter in `block` and its regions; in place."""
    rewrite(block, (SELECT_AND_SCATTER,), lambda block: _rule)


def _rule(op: Op, builder: OpBuilder) -> list[Value] | None:
    element = _accumulator(op)
    return None if element is None else [_scattered(op, builder, element, _places(op, builder))]


def _accumulator(op: Op) -> ElementType | None:
    """Return the type in which elements are scattered: f32 for sums of narrow floats; None if `op` is kept."""
    if not all(is_plain(value.type) for value in (*op.operands, op.result)):
        return None
    size, element = prod(op.result.tensor.static_shape), op.result.tensor.element_type
    alike = {value.tensor.element_type for value in op.operands} == {element}
    if not size or size > np.iinfo(np.int32).max or not alike or not isinstance(element, ElementType):
        return None
    if not all(op.operands[1].tensor.static_shape):
        return None
    monoid = monoid_of(op.regions[1])
    if monoid is not None:
        return monoid.accumulator
    return None if element.is_float and element.bits < 32 else element


def _places(op: Op, builder: OpBuilder) -> Value:
    """Return the row-major index of the element that each window selects; -1 for windows without elements."""
    operand = op.operands[0]
    shape = operand.tensor.static_shape
    windows = windows_of(op)
    flat = builder.iota((prod(shape),), 0)
    numbers = builder.reshape(flat, shape)
    outside = builder.splat(0, operand.tensor.with_shape(())), builder.splat(_NOWHERE, TensorType((), I32))
    attributes = {
        "window_dimensions": windows.sizes,
        "window_strides": windows.strides,
        "padding": np.array(windows.padding, np.int64).reshape(-1, 2),
    }
    types = [value.tensor.with_shape(windows.counts) for value in (operand, numbers)]
    regions = [_preferring(op, operand.tensor.with_shape(()))]
    return builder.op("stablehlo.reduce_window", [operand, numbers, *outside], types, attributes, regions).results[1]


def _preferring(op: Op, scalar: TensorType) -> Region:
    """Return a region on two (element, index) pairs that returns the pair preferred by the op's `select`."""
    place = TensorType((), I32)
    block = Block([scalar, place, scalar, place])
    value, number, other, other_number = block.arguments
    builder = OpBuilder()
    builder.location = op.location
    select = op.regions[0].block
    known: dict[Value, Value] = dict(zip(select.arguments, (value, other), strict=True))
    for inner in select.ops[:-1]:
        copy = inner.clone([known.get(operand, operand) for operand in inner.operands])
        known.update(zip(inner.results, copy.results, strict=True))
        builder.ops.append(copy)
    (chosen,) = select.terminator.operands
    nowhere = builder.splat(_NOWHERE, place)
    preferred = builder.binary("and", known.get(chosen, chosen), builder.compare(number, nowhere, "NE"))
    kept = builder.binary("or", preferred, builder.compare(other_number, nowhere, "EQ"))
    results = [builder.select(kept, value, other), builder.select(kept, number, other_number)]
    block.ops += [*builder.ops, make_op("stablehlo.return", results, location=op.location)]
    return Region([block])


def _scattered(op: Op, builder: OpBuilder, element: ElementType, places: Value) -> Value:
    """Return the result of `op`: its initial value, with the source's elements combined at their indices."""
    scalar = TensorType((), element)
    _, source, initial = (builder.convert(v, TensorType(v.tensor.shape, element)) for v in op.operands)
    shape = op.result.tensor.static_shape
    count = prod(source.tensor.static_shape)
    monoid = monoid_of(op.regions[1])
    region = op.regions[1] if monoid is None else make_reducer(monoid.op, scalar, location=op.location)
    numbers = ScatterDimensionNumbersAttr((), (0,), (), (), (0,), 1)
    scatter = builder.op(
        "stablehlo.scatter",
        [
            builder.broadcast(initial, (prod(shape),)),
            builder.reshape(places, (count, 1)),
            builder.reshape(source, (count,)),
        ],
        [TensorType((prod(shape),), element)],
        {"scatter_dimension_numbers": numbers},
        [region],
    )
    return builder.convert(builder.reshape(scatter.results[0], shape), op.result.tensor)
