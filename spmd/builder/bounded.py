"""Reshapes and broadcasts of arrays with dynamic dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from spmd import types as t
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.shape import Shape
from spmd.dialects.bounded import at_bounds, axes
from spmd.ir import AttributeValue, Value


def moved(
    builder: XlaBuilder, name: str, value: Value, attributes: Mapping[str, AttributeValue], kind: t.TensorType
) -> Value:
    """Return `stablehlo.reshape` or `stablehlo.broadcast_in_dim` of `value` to `kind`, which has the bounds of its
    dimensions.

    StableHLO's results of these have one dynamic dimension at most. Of several, each a dimension of the operand, a
    static array is made first, and then their sizes are set.
    """
    (result,) = builder.emit(name, [value], dict(attributes), [kind])
    places = [dimension for dimension, size in enumerate(result.tensor.shape) if size is None]
    op = result.defining_op
    if len(places) < 2 or op is None:
        return result
    operand, sizes = value.tensor, Shape.of(kind).sizes
    sources = {
        place: dimension
        for axis in axes(at_bounds(op))
        for _, place in axis.results
        for _, dimension in axis.operands
        if operand.shape[dimension] is None and Shape.of(operand).sizes[dimension] == sizes[place]
    }
    if sorted(sources) != places:
        raise ArgumentError(
            "operand",
            f"several dynamic dimensions of {Shape.of(operand).brief} do not each become one of {list(sizes)}",
        )
    result.type = kind
    dynamic = [False] * len(sizes)
    for place, dimension in sources.items():
        (size,) = builder.emit("stablehlo.get_dimension_size", [value], {"dimension": dimension})
        dynamic[place] = True
        bounded = Shape(Shape.of(kind).primitive_type, sizes, dynamic).tensor
        (result,) = builder.emit("stablehlo.set_dimension_size", [result, size], {"dimension": place}, [bounded])
    return result
