"""Static geometry of convolutions: sizes, strides and dimension labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from spmd.backends.numpy.data_movement import padder
from spmd.dialects.structs import ConvDimensionNumbersAttr
from spmd.ir import Op
from spmd.support.arrays import Array

#: Label of a dimension of windows, kernel or result: batch b, feature f, group g, output feature n, and for each
#: spatial dimension d its index in the result ("o", d) and in the window ("k", d).
Label = str | tuple[str, int]

#: Elements of patches, or of products, per block.
PATCHES = 1 << 19


@dataclass(frozen=True)
class Geometry:
    """The static geometry of a convolution."""

    lhs_shape: tuple[int, ...]
    rhs_shape: tuple[int, ...]
    result_shape: tuple[int, ...]
    numbers: ConvDimensionNumbersAttr
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    reversal: tuple[bool, ...]
    feature_groups: int
    batch_groups: int

    @property
    def spatial(self) -> range:
        return range(len(self.numbers.input_spatial_dimensions))

    @property
    def groups(self) -> int:
        return max(self.feature_groups, self.batch_groups)

    @property
    def kernel_sizes(self) -> list[int]:
        return [self.rhs_shape[axis] for axis in self.numbers.kernel_spatial_dimensions]

    @property
    def depth(self) -> int:
        """Multiply-adds per element of the result."""
        return prod(self.kernel_sizes) * self.rhs_shape[self.numbers.kernel_input_feature_dimension]

    def pad(self) -> Callable[[Array], Array]:
        """Return a function that pads and dilates the lhs with zeros."""
        rank = len(self.lhs_shape)
        low, high, interior = [0] * rank, [0] * rank, [0] * rank
        for d, axis in enumerate(self.numbers.input_spatial_dimensions):
            (low[axis], high[axis]), interior[axis] = self.padding[d], self.lhs_dilation[d] - 1
        if not any(low) and not any(high) and not any(interior):
            return lambda lhs: lhs
        padded = padder(self.lhs_shape, low, high, interior).call
        return lambda lhs: padded(lhs, lhs.dtype.type(0))

    def windows(self) -> tuple[list[Label], list[int], Callable[[Array], list[int]]]:
        """Return labels and sizes of the dimensions of the view of windows, and a function from the padded lhs to its
        strides.
        """
        numbers = self.numbers
        labels: list[Label] = []
        sizes: list[int] = []
        factors: list[tuple[int, int]] = []  # (dimension of the lhs, factor of its stride)
        for axis, size in enumerate(self.lhs_shape):
            if axis in (numbers.input_batch_dimension, numbers.input_feature_dimension):
                label = "b" if axis == numbers.input_batch_dimension else "f"
                groups = self.batch_groups if label == "b" else self.feature_groups
                if groups > 1:
                    labels.append("g")
                    sizes.append(groups)
                    factors.append((axis, size // groups))
                labels.append(label)
                sizes.append(size // groups)
                factors.append((axis, 1))
                continue
            d = numbers.input_spatial_dimensions.index(axis)
            labels += [("o", d), ("k", d)]
            sizes += [self.result_shape[numbers.output_spatial_dimensions[d]], self.kernel_sizes[d]]
            factors += [(axis, self.strides[d]), (axis, self.rhs_dilation[d])]
        return labels, sizes, lambda array: [array.strides[axis] * factor for axis, factor in factors]


def geometry_of(op: Op, padding: Array | None) -> Geometry:
    """Return the geometry of `op` with the given padding ([spatial, 2] or None); it determines the result's shape."""
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    lhs, rhs = op.operands[0].tensor.static_shape, op.operands[1].tensor.static_shape
    count = len(numbers.input_spatial_dimensions)

    def attribute_or(name: str, default: int) -> tuple[int, ...]:
        value = op[name]
        return (default,) * count if value is None else tuple(value)

    pairs = ((0, 0),) * count
    if padding is not None:
        pairs = tuple((int(low), int(high)) for low, high in np.asarray(padding).reshape(count, 2))
    strides, lhs_dilation = attribute_or("window_strides", 1), attribute_or("lhs_dilation", 1)
    rhs_dilation = attribute_or("rhs_dilation", 1)
    result = [0] * len(lhs)
    result[numbers.output_batch_dimension] = lhs[numbers.input_batch_dimension] // op["batch_group_count"]
    result[numbers.output_feature_dimension] = rhs[numbers.kernel_output_feature_dimension]
    for d in range(count):
        size = lhs[numbers.input_spatial_dimensions[d]]
        padded = sum(pairs[d]) + ((size - 1) * lhs_dilation[d] + 1 if size else 0)
        window = rhs[numbers.kernel_spatial_dimensions[d]]
        span = (window - 1) * rhs_dilation[d] + 1 if window else 0
        places = (padded - span) // strides[d] + 1 if 0 <= span <= padded and padded > 0 else 0
        result[numbers.output_spatial_dimensions[d]] = places
    return Geometry(
        lhs, rhs, tuple(result), numbers, strides, pairs, lhs_dilation, rhs_dilation,
        tuple(map(bool, attribute_or("window_reversal", 0))), op["feature_group_count"], op["batch_group_count"],
    )  # fmt: skip


def kernel_matrix(geometry: Geometry, order: Sequence[Label]) -> Callable[[Array], Array]:
    """Return a function that transposes the kernel to dimensions `order`, and reverses it if windows are."""
    numbers, groups = geometry.numbers, geometry.groups
    labels: list[Label] = []
    shape: list[int] = []
    flips: list[slice] = []
    for axis, size in enumerate(geometry.rhs_shape):
        backwards = False
        if axis == numbers.kernel_output_feature_dimension:
            labels += ["g", "n"]
            shape += [groups, size // groups]
        else:
            shape.append(size)
            if axis == numbers.kernel_input_feature_dimension:
                labels.append("f")
            else:
                d = numbers.kernel_spatial_dimensions.index(axis)
                labels.append(("k", d))
                backwards = geometry.reversal[d]
        flips.append(slice(None, None, -1 if backwards else 1))
    permutation, index = [labels.index(label) for label in order], tuple(flips)
    return lambda rhs: rhs[index].reshape(shape).transpose(permutation)


def to_result(geometry: Geometry, order: Sequence[Label]) -> Callable[[Array], Array]:
    """Return a function from an array of dimensions `order` to the result's dimensions; its feature is (g, n)."""
    numbers = geometry.numbers
    labels: list[Label] = []
    for axis in range(len(geometry.result_shape)):
        if axis == numbers.output_batch_dimension:
            labels.append("b")
        elif axis == numbers.output_feature_dimension:
            labels += ["g", "n"]
        else:
            labels.append(("o", numbers.output_spatial_dimensions.index(axis)))
    permutation = [order.index(label) for label in labels]
    return lambda array: array.transpose(permutation).reshape(geometry.result_shape)
