"""Convolution: StableHLO specification, "convolution", and "dynamic_conv".

Windows of the padded lhs are a strided view, copied to a matrix of patches (im2col) for some images at a time, and
multiplied with the kernel. Gradients are of the same form: a convolution over batches for the kernel's, over a dilated
lhs for the input's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.contraction import arithmetic
from spmd.backends.numpy.convolution_geometry import PATCHES, Geometry, Label, geometry_of, kernel_matrix, to_result
from spmd.ir import Op
from spmd.support.arrays import Array


@kernel("stablehlo.convolution")
def convolution(op: Op, context: Context) -> Kernel:
    return convolver(op, geometry_of(op, op["padding"]))


@kernel("stablehlo.dynamic_conv")
def dynamic_conv(op: Op, context: Context) -> Kernel:
    """Return a convolution with dynamic padding; kernels are cached by padding."""
    kernels: dict[tuple[int, ...], Kernel] = {}

    def call(lhs: Array, rhs: Array, padding: Array) -> Array:
        key = tuple(np.asarray(padding).reshape(-1).tolist())
        if key not in kernels:
            kernels[key] = convolver(op, geometry_of(op, padding))
        result: Array = kernels[key].call(lhs, rhs)
        return result

    return Kernel(call)


def convolver(op: Op, geometry: Geometry) -> Kernel:
    """Return the kernel of a convolution of (lhs, rhs)."""
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


def _product(geometry: Geometry, multiply: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """Return a function of (lhs, rhs) in the compute dtype: (g, rows, columns) @ (g, columns, n)."""
    labels, sizes, strides_of = geometry.windows()
    size_of = {"g": 1, **dict(zip(labels, sizes, strict=True))}
    rows: list[Label] = ["b", *(("o", d) for d in geometry.spatial)]
    columns: list[Label] = [*(("k", d) for d in geometry.spatial), "f"]
    order: list[Label] = ["g", *rows, *columns]
    shape = [size_of[label] for label in order]
    batch, groups = size_of["b"], size_of["g"]
    outputs = geometry.result_shape[geometry.numbers.output_feature_dimension] // geometry.groups
    column_count = prod(size_of[label] for label in columns)
    places = prod(size_of[label] for label in rows) // batch
    step = max(1, PATCHES // (groups * places * column_count))
    pad, matrix = geometry.pad(), kernel_matrix(geometry, ["g", *columns, "n"])
    arrange = to_result(geometry, ["g", *rows, "n"])
    split = (groups, *(size_of[label] for label in rows), outputs)

    def call(lhs: Array, rhs: Array) -> Array:
        padded, weights = pad(lhs), matrix(rhs).reshape(groups, column_count, outputs)
        strides = {"g": 0, **dict(zip(labels, strides_of(padded), strict=True))}
        windows = as_strided(padded, shape, [strides[label] for label in order], writeable=False)
        result = np.empty((groups, batch * places, outputs), np.result_type(padded, weights))
        for start in range(0, batch, step):
            patches = windows[:, start : start + step].reshape(groups, -1, column_count)
            result[:, start * places : (start + step) * places] = multiply(patches, weights)
        return arrange(result.reshape(split))

    return call
