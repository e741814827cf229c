"""Convolution: StableHLO specification, "convolution", and "dynamic_conv".

Windows of the padded lhs are a strided view. Copied into a matrix of patches, whose order of dimensions follows the
memory of the lhs so that the copy runs along it, they are multiplied with the kernel by BLAS. Patches are made for a
part of the leading dimension at a time, which keeps them in cache and memory small. The same way serves the gradients:
a convolution over batches for the kernel's, over a dilated lhs for the input's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from spmd.dialects.structs import ConvDimensionNumbers
from spmd.ir import Op
from spmd.kernels.contraction import arithmetic
from spmd.kernels.core import Context, Kernel, kernel
from spmd.kernels.data_movement import padder

Array = np.ndarray[Any, Any]
#: What a dimension of windows, kernel or result is for: batch b, feature f, group g, output feature n, and for each
#: spatial dimension d its place in the result ("o", d) and within the window ("k", d).
Label = Any

#: Elements of patches made at a time.
_PATCHES = 1 << 19


@dataclass(frozen=True)
class Geometry:
    """The static side of a convolution."""

    lhs_shape: tuple[int, ...]
    rhs_shape: tuple[int, ...]
    result_shape: tuple[int, ...]
    numbers: ConvDimensionNumbers
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
        """Multiply-adds for one element of the result."""
        return prod(self.kernel_sizes) * self.rhs_shape[self.numbers.kernel_input_feature_dimension]

    def pad(self) -> Callable[[Array], Array]:
        """Function that pads and dilates the lhs with zeros."""
        rank = len(self.lhs_shape)
        low, high, interior = [0] * rank, [0] * rank, [0] * rank
        for d, axis in enumerate(self.numbers.input_spatial_dimensions):
            (low[axis], high[axis]), interior[axis] = self.padding[d], self.lhs_dilation[d] - 1
        if not any(low) and not any(high) and not any(interior):
            return lambda lhs: lhs
        padded = padder(self.lhs_shape, low, high, interior).call
        return lambda lhs: padded(lhs, lhs.dtype.type(0))

    def windows(self) -> tuple[list[Label], list[int], Callable[[Array], list[int]]]:
        """Labels and sizes of the dimensions of the view of windows, and function of the padded lhs to its strides."""
        numbers = self.numbers
        labels: list[Label] = []
        sizes: list[int] = []
        factors: list[tuple[int, int]] = []  # (dimension of the lhs, factor on its stride)
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


@kernel("stablehlo.convolution")
def convolution(op: Op, context: Context) -> Kernel:
    return convolver(op, geometry_of(op, op["padding"]))


@kernel("stablehlo.dynamic_conv")
def dynamic_conv(op: Op, context: Context) -> Kernel:
    """convolution with padding known when it runs; the kernels of the paddings met are kept."""
    made: dict[tuple[int, ...], Kernel] = {}

    def call(lhs: Array, rhs: Array, padding: Array) -> Array:
        key = tuple(np.asarray(padding).reshape(-1).tolist())
        if key not in made:
            made[key] = convolver(op, geometry_of(op, padding))
        result: Array = made[key].call(lhs, rhs)
        return result

    return Kernel(call)


def geometry_of(op: Op, padding: Any) -> Geometry:
    """The geometry of `op` with the given padding ([spatial, 2] or None); the result's shape follows from it."""
    numbers: ConvDimensionNumbers = op["dimension_numbers"]
    lhs, rhs = op.operands[0].tensor.static_shape, op.operands[1].tensor.static_shape
    count = len(numbers.input_spatial_dimensions)

    def given(name: str, default: Any) -> tuple[Any, ...]:
        value = op[name]
        return (default,) * count if value is None else tuple(value)

    pairs = ((0, 0),) * count
    if padding is not None:
        pairs = tuple((int(low), int(high)) for low, high in np.asarray(padding).reshape(count, 2))
    strides, lhs_dilation = given("window_strides", 1), given("lhs_dilation", 1)
    rhs_dilation = given("rhs_dilation", 1)
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
        given("window_reversal", False), op["feature_group_count"], op["batch_group_count"],
    )  # fmt: skip


def convolver(op: Op, geometry: Geometry) -> Kernel:
    """The kernel of a convolution of (lhs, rhs)."""
    lhs, rhs, result = op.operands[0].tensor, op.operands[1].tensor, op.result.tensor
    shape = geometry.result_shape
    if prod(shape) == 0 or geometry.depth == 0:
        return Kernel(lambda *_: np.zeros(shape, result.dtype))
    work = prod(shape) * geometry.depth
    multiply, widen_lhs, widen_rhs, finish = arithmetic(lhs, rhs, result, None, geometry.depth, work)
    pad, product = geometry.pad(), _product(geometry, multiply)

    def call(lhs: Array, rhs: Array) -> Array:
        array = product(pad(lhs if widen_lhs is None else widen_lhs(lhs)), rhs if widen_rhs is None else widen_rhs(rhs))
        return array if finish is None else finish(array)

    return Kernel(call)


Product = Callable[[Array, Array], Array]


def _product(geometry: Geometry, multiply: Callable[..., Array]) -> Product:
    labels, sizes, strides = geometry.windows()
    size_of = dict(zip(labels, sizes, strict=True))
    innermost = next((label for label in reversed(labels) if size_of[label] != 1), labels[-1])
    if isinstance(innermost, tuple):  # a spatial dimension: its place in the result runs along memory, or the window's
        d = innermost[1]
        innermost = ("o", d) if size_of["o", d] >= size_of["k", d] else ("k", d)
    if geometry.feature_groups > 1 and size_of["f"] == 1 and multiply is np.matmul:
        return _depthwise(geometry, labels, sizes, strides)
    rows = [label for label in labels if label == "b" or label[0] == "o"]
    columns = [label for label in labels if label == "f" or label[0] == "k"]
    if innermost[0] == "o" and labels[0] == "b":
        return _image_by_image(geometry, multiply, rows[1:], columns)
    return _rows_by_columns(geometry, multiply, rows, columns, columns_inside=innermost in columns)


def _kernel_matrix(geometry: Geometry, order: Sequence[Label]) -> Callable[[Array], Array]:
    """Function that brings the kernel into dimensions `order`, reversed where the windows are."""
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


def _to_result(geometry: Geometry, order: Sequence[Label]) -> Callable[[Array], Array]:
    """Function that brings an array of dimensions `order` into the result's; its feature is (g, n)."""
    numbers = geometry.numbers
    wanted: list[Label] = []
    for axis in range(len(geometry.result_shape)):
        if axis == numbers.output_batch_dimension:
            wanted.append("b")
        elif axis == numbers.output_feature_dimension:
            wanted += ["g", "n"]
        else:
            wanted.append(("o", numbers.output_spatial_dimensions.index(axis)))
    permutation = [order.index(label) for label in wanted]
    return lambda array: array.transpose(permutation).reshape(geometry.result_shape)


def _ordered_view(geometry: Geometry, order: Sequence[Label]) -> tuple[list[int], Callable[[Array], Array]]:
    """Sizes of dimensions `order`, and function of the padded lhs to its windows in them; a missing g has size 1."""
    labels, sizes, strides_of = geometry.windows()
    size_of = {"g": 1, **dict(zip(labels, sizes, strict=True))}
    shape = [size_of[label] for label in order]

    def view(padded: Array) -> Array:
        strides = {"g": 0, **dict(zip(labels, strides_of(padded), strict=True))}
        return as_strided(padded, shape, [strides[label] for label in order], writeable=False)

    return shape, view


def _rows_by_columns(
    geometry: Geometry,
    multiply: Callable[..., Array],
    rows: list[Label],
    columns: list[Label],
    *,
    columns_inside: bool,
) -> Product:
    """(g, rows, columns) @ (g, columns, n). Patches lie in memory as rows of columns, or as columns of rows."""
    order = ["g", *rows, *columns] if columns_inside else ["g", *columns, *rows]
    shape, view = _ordered_view(geometry, order)
    size_of = dict(zip(order, shape, strict=True))
    row_count, column_count = (prod(size_of[label] for label in group) for group in (rows, columns))
    groups, outputs = size_of["g"], geometry.result_shape[geometry.numbers.output_feature_dimension] // geometry.groups
    matrix = _kernel_matrix(geometry, ["g", *columns, "n"])
    arrange = _to_result(geometry, ["g", *rows, "n"])
    split = (groups, *(size_of[label] for label in rows), outputs)
    # One dimension is cut into parts: the leading one of the lhs, when it is not divided into groups.
    lead = geometry.windows()[0][0]
    extent = size_of.get(lead, 1) if lead in ("b", "f") else 1
    per_unit = max(1, groups * row_count * column_count // extent)
    step = min(extent, max(1, _PATCHES // per_unit))
    cut = (*(slice(None),) * order.index(lead),)

    def patches(windows: Array, part: slice, height: int, width: int) -> Array:
        taken = windows[(*cut, part)] if step < extent else windows
        if columns_inside:
            return taken.reshape(groups, height, width)
        return taken.reshape(groups, width, height).swapaxes(1, 2)

    def over_rows(padded: Array, rhs: Array) -> Array:
        windows, weights = view(padded), matrix(rhs).reshape(groups, column_count, outputs)
        if step == extent:
            return arrange(multiply(patches(windows, slice(None), row_count, column_count), weights).reshape(split))
        unit = row_count // extent
        result = np.empty((groups, row_count, outputs), np.result_type(padded, weights))
        for start in range(0, extent, step):
            stop = min(start + step, extent)
            part = patches(windows, slice(start, stop), (stop - start) * unit, column_count)
            result[:, start * unit : stop * unit] = multiply(part, weights)
        return arrange(result.reshape(split))

    def over_columns(padded: Array, rhs: Array) -> Array:
        windows, weights = view(padded), matrix(rhs).reshape(groups, column_count, outputs)
        unit = column_count // extent
        total: Array | None = None
        for start in range(0, extent, step):
            stop = min(start + step, extent)
            part = patches(windows, slice(start, stop), row_count, (stop - start) * unit)
            product = multiply(part, weights[:, start * unit : stop * unit])
            total = product if total is None else np.add(total, product, out=total)
        assert total is not None
        return arrange(total.reshape(split))

    return over_columns if lead == "f" else over_rows


def _image_by_image(
    geometry: Geometry, multiply: Callable[..., Array], places: list[Label], columns: list[Label]
) -> Product:
    """(g, n, columns) @ (b, g, columns, places): for batch-major layouts whose spatial dimensions are innermost."""
    order = ["b", "g", *columns, *places]
    shape, view = _ordered_view(geometry, order)
    size_of = dict(zip(order, shape, strict=True))
    place_count, column_count = (prod(size_of[label] for label in group) for group in (places, columns))
    batch, groups = size_of["b"], size_of["g"]
    outputs = geometry.result_shape[geometry.numbers.output_feature_dimension] // geometry.groups
    matrix = _kernel_matrix(geometry, ["g", "n", *columns])
    arrange = _to_result(geometry, ["b", "g", "n", *places])
    split = (batch, groups, outputs, *(size_of[label] for label in places))
    step = max(1, _PATCHES // (groups * column_count * place_count))

    def call(padded: Array, rhs: Array) -> Array:
        windows, weights = view(padded), matrix(rhs).reshape(groups, outputs, column_count)
        result = np.empty((batch, groups, outputs, place_count), np.result_type(padded, weights))
        for start in range(0, batch, step):
            part = windows[start : start + step].reshape(-1, groups, column_count, place_count)
            result[start : start + step] = multiply(weights, part)
        return arrange(result.reshape(split))

    return call


def _depthwise(
    geometry: Geometry, labels: list[Label], sizes: list[int], strides: Callable[[Array], list[int]]
) -> Product:
    """One input feature a group: products of whole slabs, one a place of the window, in the order of the lhs."""
    kept = [label for label in labels if label in ("b", "g") or label[0] == "o"]
    within = [label for label in labels if label[0] == "k"]
    shape, view = _ordered_view(geometry, [*within, *kept])
    matrix = _kernel_matrix(geometry, [*within, "f", "n", "g"])
    arrange = _to_result(geometry, [*kept, "n"])
    extents = shape[len(within) :]
    along = [extents[k] if label == "g" else 1 for k, label in enumerate(kept)]
    outputs = geometry.result_shape[geometry.numbers.output_feature_dimension] // geometry.groups
    places = list(np.ndindex(*shape[: len(within)]))

    def call(padded: Array, rhs: Array) -> Array:
        windows, weights = view(padded), matrix(rhs)
        result = np.empty((*extents, outputs), np.result_type(padded, rhs))
        scratch = np.empty(extents, result.dtype)
        for n in range(outputs):
            total = np.zeros(extents, result.dtype)
            for place in places:
                np.multiply(windows[place], weights[(*place, 0, n)].reshape(along), out=scratch)
                np.add(total, scratch, out=total)
            result[..., n] = total
        return arrange(result)

    return call
