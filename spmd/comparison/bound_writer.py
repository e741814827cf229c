"""Emits ops of error bounds: real f64 tensors beside the values that they bound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from spmd.comparison.formats import is_inexact
from spmd.comparison.retyped import OF_FLOATS
from spmd.dialects.make import make_op
from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Region, Value
from spmd.types import COMPLEX128, F64, ElementType, TensorType

_SCALAR = TensorType((), F64)


class Writer(OpBuilder):
    """Appends ops to `block` in place of `op`."""

    def __init__(self, block: Block, op: Op) -> None:
        super().__init__()
        self.of, self.block, self.ops, self.location = op, block, block.ops, op.location

    def zeros(self, like: Value) -> Value:
        return self.number(0.0, like)

    def number(self, value: float, like: Value) -> Value:
        """Return `value` for each element of `like`."""
        return self.splat(np.float64(value), TensorType(like.tensor.shape, F64))

    def add(self, left: Value, right: Value) -> Value:
        return self.binary("add", left, right)

    def subtract(self, left: Value, right: Value) -> Value:
        return self.binary("subtract", left, right)

    def multiply(self, left: Value, right: Value) -> Value:
        return self.binary("multiply", left, right)

    def scaled(self, value: Value, factor: float) -> Value:
        return self.multiply(value, self.number(factor, value))

    def total(self, bounds: Sequence[Value | None]) -> Value | None:
        """Return the sum of the bounds that are not None; None if all are."""
        return self._joined("add", bounds)

    def largest(self, bounds: Sequence[Value | None]) -> Value | None:
        """Return the elementwise maximum of the bounds that are not None; None if all are."""
        return self._joined("maximum", bounds)

    def _joined(self, name: str, bounds: Sequence[Value | None]) -> Value | None:
        there = [bound for bound in bounds if bound is not None]
        return reduce(partial(self.binary, name), there) if there else None

    def real(self, value: Value) -> Value:
        """Return `value`, of any type but a complex one, as f64."""
        return self.convert(value, TensorType(value.tensor.shape, F64))

    def magnitude(self, value: Value) -> Value:
        """Return the absolute values of elements of any type, as f64."""
        element = value.tensor.element_type
        assert isinstance(element, ElementType)
        return self.one("abs", [value if element.is_complex else self.real(value)])

    def gap(self, left: Value, right: Value) -> Value:
        """Return the distance of the elements; 0 where one is NaN."""
        if not is_inexact(left.type):
            left, right = self.real(left), self.real(right)
        gap = self.magnitude(self.subtract(left, right))
        return self.select(self.compare(gap, gap, "EQ"), gap, self.zeros(gap))

    def around(self, value: Value, step: Value) -> list[Value]:
        """Return `value` moved by `step`, up and down; a complex one along both axes."""
        steps = [step]
        if value.tensor.element_type == COMPLEX128:
            zero = self.zeros(step)
            steps = [self.one("complex", [step, zero]), self.one("complex", [zero, step])]
        return [moved for each in steps for moved in (self.add(value, each), self.subtract(value, each))]

    def ends(self, x: Sequence[Value], errors: Sequence[Value | None]) -> list[list[Value]]:
        """Return all of `x` moved up by their bounds, and all moved down."""
        pairs = list(zip(x, errors, strict=True))
        return [
            [value if error is None else move(value, error) for value, error in pairs]
            for move in (self.add, self.subtract)
        ]

    def between(self, result: Value, high: Value, low: Value) -> Value:
        """Return the distance of `result` from the farther of the two ends of its range."""
        return self.binary("maximum", self.gap(high, result), self.gap(result, low))

    def where_finite(self, value: Value, bound: Value) -> Value:
        """Return `bound` where `value` is finite, otherwise 0: infinity and NaN are exact."""
        return self.select(self.one("is_finite", [self.magnitude(value)]), bound, self.zeros(bound))

    def beyond(self, value: Value, least: float) -> Value:
        """Return `value` where it is greater than `least`, otherwise zero."""
        above = self.compare(value, self.number(least, value), "GT")
        return self.select(above, value, self.zeros(value))

    def near(self, gap: Value, reach: Value) -> Value:
        """Return where a gap is within a nonzero reach."""
        within = self.compare(gap, reach, "LE")
        return self.one("and", [within, self.compare(reach, self.zeros(reach), "GT")])

    def near_neighbours(self, values: Value, bounds: Value, dimension: int) -> Value:
        """Return where the interval of a value overlaps that of its predecessor or successor."""
        size = values.tensor.static_shape[dimension]
        ends = [
            [self.slice(each, dimension, *part) for part in ((0, size - 1), (1, size))] for each in (values, bounds)
        ]
        near = self.near(self.gap(*ends[0]), self.add(*ends[1]))
        return self.one("or", [self.pad(near, dimension, 0, 1), self.pad(near, dimension, 1, 0)])

    def unknown(self, bounds: Sequence[Value | None], like: Value) -> Value:
        """Return infinity where a bound is not zero."""
        total = self.total(bounds)
        assert total is not None
        return self.select(self.compare(total, self.zeros(total), "GT"), self.number(np.inf, like), self.zeros(like))

    def unknown_all(self, bound: Value, like: Value) -> Value:
        """Return infinity for all elements of `like` if any element of a bound is not zero."""
        most = self.reduce("stablehlo.maximum", bound, self.splat(0.0, _SCALAR), range(bound.tensor.rank))
        return self.broadcast(self.unknown([most], most), like.tensor.shape)

    def broadcast_like(self, value: Value, result: Value) -> Value:
        """Return a scalar operand of an elementwise op broadcast to its result's shape; other operands unchanged."""
        return value if value.tensor.rank == result.tensor.rank else self.broadcast(value, result.tensor.shape)

    def largest_element(self, magnitudes: Value) -> Value:
        """Return the largest finite element, a scalar."""
        finite = self.where_finite(magnitudes, magnitudes)
        return self.reduce("stablehlo.maximum", finite, self.splat(0.0, _SCALAR), range(magnitudes.tensor.rank))

    def relative(self, value: Value, bound: Value) -> Value:
        """Return the largest bound relative to the largest element, a scalar."""
        ratio = self.binary("divide", self.largest_element(bound), self.largest_element(self.magnitude(value)))
        return self.select(self.compare(ratio, ratio, "EQ"), ratio, self.zeros(ratio))

    def again(self, op: Op, operands: Sequence[Value], regions: Sequence[Region] = ()) -> Sequence[Value]:
        """Return the results of the op applied to bounds, with f64 results."""
        types = [TensorType(result.tensor.shape, F64) for result in op.results]
        return self._of_bounds(op, operands, types, regions)

    def folded(self, op: Op, kind: str, operands: Sequence[Value]) -> Value:
        """Return the result of `op`, a fold of one array, with another monoid."""
        types = [TensorType(op.results[0].tensor.shape, F64)]
        return self._of_bounds(op, operands, types, [self.folding(kind)])[0]

    def _of_bounds(
        self, op: Op, operands: Sequence[Value], types: Sequence[TensorType], regions: Sequence[Region]
    ) -> Sequence[Value]:
        kept = {name: value for name, value in op.attributes.items() if name not in OF_FLOATS}
        return self.op(op.name, operands, types, kept, regions).results

    def folding(self, kind: str) -> Region:
        """Return a region that folds two f64 scalars."""
        return self.fold(f"stablehlo.{kind}", _SCALAR)

    def second(self) -> Region:
        """Return a region that returns the second of two f64 scalars."""
        block = Block([_SCALAR, _SCALAR])
        block.ops.append(make_op("stablehlo.return", [block.arguments[1]], location=self.location))
        return Region([block])
