"""Builds ops in sequence: each method appends an op to the current block.

Shared by program transformations (partitioning, stacking), which extend it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from spmd.dialects.make import make_op, make_reducer
from spmd.errors import UNKNOWN, Location
from spmd.ir import AttributeValue, Op, Region, Value
from spmd.ir.attributes import DenseAttr
from spmd.support.arrays import Array
from spmd.types import I1, I32, ElementType, TensorType, Type, element_type_of


class OpBuilder:
    """Appends ops to `ops`, the list of the current block; `location` is that of new ops.

    Indices (`index`, `iota`) have type `index_type`.
    """

    def __init__(self, index_type: ElementType = I32) -> None:
        self.ops: list[Op] = []
        self.location: Location = UNKNOWN
        self.index_type = index_type

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        types: Iterable[Type] | None = None,
        attributes: dict[str, AttributeValue] | None = None,
        regions: Iterable[Region] = (),
    ) -> Op:
        """Append an op and return it; result types are inferred unless given."""
        created = make_op(name, operands, types, attributes, regions, location=self.location)
        self.ops.append(created)
        return created

    def one(self, name: str, operands: Sequence[Value], type: Type | None = None, **attributes: object) -> Value:
        """Append an op with one result and return the result."""
        return self.op("stablehlo." + name, operands, None if type is None else [type], attributes).results[0]

    # --- constants

    def constant(self, array: Array, type: TensorType | None = None) -> Value:
        """Append a constant tensor; `type` is needed if the dtype does not determine it."""
        type = type or TensorType(array.shape, element_type_of(array.dtype))
        return self.one("constant", (), type, value=DenseAttr(array, type))

    def splat(self, value: object, type: TensorType) -> Value:
        """Append a constant with `value` as every element of `type`.

        The integer 0 is the element with all bits zero, as in communicators: f8E8M0FNU has no zero.
        """
        empty = isinstance(value, int) and not value
        element = np.zeros((), type.dtype) if empty else np.array(value, type.dtype)
        return self.constant(np.broadcast_to(element, type.static_shape), type)

    def index(self, value: int) -> Value:
        """Append a scalar constant of the index type."""
        return self.constant(np.array(value, self.index_type.dtype))

    # --- elementwise

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """Append a binary op `name`."""
        return self.one(name, [left, right])

    def compare(self, left: Value, right: Value, direction: str) -> Value:
        """Append a comparison: EQ, NE, GE, GT, LE or LT."""
        return self.one("compare", [left, right], TensorType(left.tensor.shape, I1), comparison_direction=direction)

    def select(self, predicate: Value, on_true: Value, on_false: Value) -> Value:
        """Append a select."""
        return self.one("select", [predicate, on_true, on_false], on_true.type)

    def convert(self, value: Value, type: TensorType) -> Value:
        """Append a conversion to `type`, if needed."""
        return value if value.type is type else self.one("convert", [value], type)

    def broadcast(self, scalar: Value, shape: Sequence[int | None]) -> Value:
        """Append a broadcast of a scalar to `shape`."""
        if not shape:
            return scalar
        return self.one("broadcast_in_dim", [scalar], scalar.tensor.with_shape(tuple(shape)), broadcast_dimensions=())

    def spread(self, vector: Value, shape: Sequence[int], dimension: int) -> Value:
        """Append a broadcast of a vector along `dimension` of `shape`."""
        type = vector.tensor.with_shape(tuple(shape))
        return self.one("broadcast_in_dim", [vector], type, broadcast_dimensions=(dimension,))

    def iota(self, shape: Sequence[int], dimension: int) -> Value:
        """Append an iota of the index type along `dimension`."""
        return self.one("iota", (), TensorType(tuple(shape), self.index_type), iota_dimension=dimension)

    # --- data movement

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Append a reshape, if needed."""
        type = value.tensor.with_shape(tuple(shape))
        return value if value.type is type else self.one("reshape", [value], type)

    def slice(self, value: Value, dimension: int, start: int, stop: int, step: int = 1) -> Value:
        """Append a slice along one dimension: elements start, start + step, ... below stop."""
        shape = list(value.tensor.static_shape)
        if (start, stop, step) == (0, shape[dimension], 1):
            return value
        starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
        starts[dimension], limits[dimension], strides[dimension] = start, stop, step
        return self.one(
            "slice", [value], start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides)
        )

    def pad(self, value: Value, dimension: int, low: int, high: int, fill: Value | None = None) -> Value:
        """Append padding along one dimension, zeros unless `fill` (a scalar) is given."""
        if low == high == 0:
            return value
        rank = value.tensor.rank
        lows, highs = [0] * rank, [0] * rank
        lows[dimension], highs[dimension] = low, high
        if fill is None:
            fill = self.splat(0, value.tensor.with_shape(()))
        return self.one(
            "pad",
            [value, fill],
            edge_padding_low=tuple(lows),
            edge_padding_high=tuple(highs),
            interior_padding=(0,) * rank,
        )

    def dynamic_slice(self, value: Value, dimension: int, start: Value, size: int) -> Value:
        """Append a slice of `size` elements from a run-time index along one dimension."""
        shape = list(value.tensor.static_shape)
        starts = [self.index(0)] * len(shape)
        starts[dimension] = start
        shape[dimension] = size
        return self.one("dynamic_slice", [value, *starts], slice_sizes=tuple(shape))

    def dynamic_update(self, value: Value, update: Value, dimension: int, start: Value) -> Value:
        """Append an update at a run-time index along one dimension."""
        starts = [self.index(0)] * value.tensor.rank
        starts[dimension] = start
        return self.one("dynamic_update_slice", [value, update, *starts])

    def concatenate(self, values: Sequence[Value], dimension: int) -> Value:
        """Append a concatenation."""
        return values[0] if len(values) == 1 else self.one("concatenate", values, dimension=dimension)

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        """Append a transpose."""
        return self.one("transpose", [value], permutation=tuple(permutation))

    def reduce(self, name: str, value: Value, init: Value, dimensions: Sequence[int]) -> Value:
        """Append a reduction over `dimensions` by op `name`."""
        region = self.fold(name, value.tensor)
        return self.op("stablehlo.reduce", [value, init], None, {"dimensions": tuple(dimensions)}, [region]).results[0]

    def fold(self, name: str, type: TensorType) -> Region:
        """Return a reduction region of op `name` on scalars of the element type."""
        return make_reducer(name, type.with_shape(()), location=self.location)
