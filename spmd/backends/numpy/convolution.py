"""Convolution: StableHLO specification, "convolution", and "dynamic_conv".

Windows of the padded lhs are a strided view. Copied into a matrix of patches, whose order of dimensions follows the
memory of the lhs so that the copy runs along it, they are multiplied with the kernel by BLAS. Patches are made for a
part of the leading dimension at a time, which keeps them in cache and memory small. The same way serves the gradients:
a convolution over batches for the kernel's, over a dilated lhs for the input's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from spmd.backends.numpy.contraction import arithmetic
from spmd.backends.numpy.convolution_geometry import PATCHES, Geometry, Label, geometry_of, kernel_matrix, to_result
from spmd.backends.numpy.convolution_scattered import scattered_products, scatters_less
from spmd.backends.numpy.core import Context, Kernel, kernel
from spmd.ir import Op
from spmd.support.arrays import Array


@kernel("stablehlo.convolution")
def convolution(op: Op, context: Context) -> Kernel:
    return convolver(op, geometry_of(op, op["padding"]))


@kernel("stablehlo.dynamic_conv")
def dynamic_conv(op: Op, context: Context) -> Kernel:
    """convolution with padding known when it runs; the kernels of the paddings met are kept."""
    kernels: dict[tuple[int, ...], Kernel] = {}

    def call(lhs: Array, rhs: Array, padding: Array) -> Array:
        key = tuple(np.asarray(padding).reshape(-1).tolist())
        if key not in kernels:
            kernels[key] = convolver(op, geometry_of(op, padding))
        result: Array = kernels[key].call(lhs, rhs)
        return result

    return Kernel(call)


def convolver(op: Op, geometry: Geometry) -> Kernel:
    """The kernel of a convolution of (lhs, rhs)."""
    lhs, rhs, result = op.operands[0].tensor, op.operands[1].tensor, op.result.tensor
    shape = geometry.result_shape
    if prod(shape) == 0 or geometry.depth == 0:
        return Kernel(lambda *_: np.zeros(shape, result.dtype))
    work = prod(shape) * geometry.depth
    multiply, widen_lhs, widen_rhs, finish = arithmetic(lhs, rhs, result, None, geometry.depth, work)
    product = _product(geometry, multiply)

    def call(lhs: Array, rhs: Array) -> Array:
        array = product(lhs if widen_lhs is None else widen_lhs(lhs), rhs if widen_rhs is None else widen_rhs(rhs))
        return array if finish is None else finish(array)

    return Kernel(call)


Product = Callable[[Array, Array], Array]


def _product(geometry: Geometry, multiply: Callable[..., Array]) -> Product:
    """The cheapest way for the geometry, as a function of (lhs, rhs) in the dtype that is computed in."""
    if scatters_less(geometry):
        return scattered_products(geometry, multiply)
    pad, product = geometry.pad(), _window_product(geometry, multiply)
    return lambda lhs, rhs: product(pad(lhs), rhs)


def _window_product(geometry: Geometry, multiply: Callable[..., Array]) -> Product:
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
    matrix = kernel_matrix(geometry, ["g", *columns, "n"])
    arrange = to_result(geometry, ["g", *rows, "n"])
    split = (groups, *(size_of[label] for label in rows), outputs)
    # One dimension is cut into parts: the leading one of the lhs, when it is not divided into groups.
    lead = geometry.windows()[0][0]
    extent = size_of.get(lead, 1) if lead in ("b", "f") else 1
    per_unit = max(1, groups * row_count * column_count // extent)
    step = min(extent, max(1, PATCHES // per_unit))
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
    matrix = kernel_matrix(geometry, ["g", "n", *columns])
    arrange = to_result(geometry, ["b", "g", "n", *places])
    split = (batch, groups, outputs, *(size_of[label] for label in places))
    step = max(1, PATCHES // (groups * column_count * place_count))

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
    matrix = kernel_matrix(geometry, [*within, "f", "n", "g"])
    arrange = to_result(geometry, [*kept, "n"])
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
