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
    """Return `stablehlo.reshape` or `stablehlo.broadcast_in_dim` of `value` to `kind`, whose dynamic dimensions are
    bounded.

    These StableHLO ops have at most one dynamic dimension in the result. With several, each of which must be a
    dimension of the operand, emit the op on the static bounds, and then set the sizes.
    """
    (result,) = builder.emit(name, [value], dict(attributes), [kind])
    dynamic_indices = [dimension for dimension, size in enumerate(result.tensor.shape) if size is None]
    op = result.defining_op
    if len(dynamic_indices) < 2 or op is None:
        return result
    operand, sizes = value.tensor, Shape.of(kind).sizes
    sources = {
        index: dimension
        for axis in axes(at_bounds(op))
        for _, index in axis.results
        for _, dimension in axis.operands
        if operand.shape[dimension] is None and Shape.of(operand).sizes[dimension] == sizes[index]
    }
    if sorted(sources) != dynamic_indices:
        raise ArgumentError(
            "operand",
            f"several dynamic dimensions of {Shape.of(operand).brief} do not each map to one of {list(sizes)}",
        )
    result.type = kind
    dynamic = [False] * len(sizes)
    for index, dimension in sources.items():
        (size,) = builder.emit("stablehlo.get_dimension_size", [value], {"dimension": dimension})
        dynamic[index] = True
        bounded = Shape(Shape.of(kind).primitive_type, sizes, dynamic).tensor
        (result,) = builder.emit("stablehlo.set_dimension_size", [result, size], {"dimension": index}, [bounded])
    return result
