"""Decompositions, transforms and normalizations: StableHLO specification, the op of each name.

f32 and f64, real and complex, use LAPACK and SciPy's FFT directly; narrower floats are computed in f32 and rounded
once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.late import Late
from spmd.backends.numpy.pointwise import compute_dtype
from spmd.ir import Op, Value
from spmd.support.arrays import Array, DType
from spmd.types import ElementType

scipy_fft, blas = Late("scipy.fft"), Late("scipy.linalg.blas")


def _computed(value: Value) -> DType:
    element = value.tensor.element_type
    assert isinstance(element, ElementType)
    return compute_dtype(element)


# --- fft -------------------------------------------------------------------------------------------------------------


@kernel("stablehlo.fft")
def fft(op: Op, context: Context) -> Kernel:
    lengths = op["fft_length"]
    rank, dtype = op.operands[0].tensor.rank, op.result.tensor.dtype
    axes = tuple(range(rank - len(lengths), rank))
    shape = op.result.tensor.static_shape
    if 0 in shape or 0 in op.operands[0].tensor.static_shape:
        return Kernel(lambda operand: np.zeros(shape, dtype))
    function: Callable[..., Array] = {
        "FFT": scipy_fft.fftn,
        "IFFT": scipy_fft.ifftn,
        "RFFT": scipy_fft.rfftn,
        "IRFFT": scipy_fft.irfftn,
    }[op["fft_type"]]
    return Kernel(lambda operand: function(operand, s=lengths, axes=axes).astype(dtype, copy=False))


# --- cholesky --------------------------------------------------------------------------------------------------------


@kernel("stablehlo.cholesky")
def cholesky(op: Op, context: Context) -> Kernel:
    """Return the Cholesky factor; NaN for a matrix that is not positive definite."""
    upper, dtype, computed = not op["lower"], op.result.tensor.dtype, _computed(op.operands[0])
    return Kernel(lambda a: factor(a.astype(computed, copy=False), upper).astype(dtype, copy=False))


def factor(a: Array, upper: bool) -> Array:
    """Return the Cholesky factors of a batch of matrices, of which one triangle is read; NaN where there is none."""
    try:
        return np.linalg.cholesky(a, upper=upper)
    except np.linalg.LinAlgError:
        size = a.shape[-1]
        matrices = a.reshape(-1, size, size)
        if len(matrices) == 1:
            triangle = np.triu if upper else np.tril
            return triangle(np.full((size, size), np.nan, a.dtype)).reshape(a.shape)
        return np.stack([factor(matrix, upper) for matrix in matrices]).reshape(a.shape)


# --- triangular_solve ------------------------------------------------------------------------------------------------


@kernel("stablehlo.triangular_solve")
def triangular_solve(op: Op, context: Context) -> Kernel:
    left, lower, unit = op["left_side"], op["lower"], op["unit_diagonal"]
    transpose, dtype, computed = op["transpose_a"], op.result.tensor.dtype, _computed(op.operands[0])

    def call(a: Array, b: Array) -> Array:
        solution = solve_triangular(
            a.astype(computed, copy=False),
            b.astype(computed, copy=False),
            left=left,
            lower=lower,
            unit=unit,
            transpose=transpose,
        )
        return solution.astype(dtype, copy=False)

    return Kernel(call)


def solve_triangular(a: Array, b: Array, *, left: bool, lower: bool, unit: bool, transpose: str) -> Array:
    """Return x with op(a) x = b, or x op(a) = b; only one triangle of each matrix of `a` is read."""
    if transpose == "ADJOINT":
        a = a.conj()
    if transpose in ("TRANSPOSE", "ADJOINT"):
        a, lower = a.swapaxes(-1, -2), not lower
    if not left:
        a, b, lower = a.swapaxes(-1, -2), b.swapaxes(-1, -2), not lower
    size = a.shape[-1]
    if b.size == 0:
        solution = np.empty(b.shape, b.dtype)
    else:
        (solve,) = blas.get_blas_funcs(("trsm",), (a, b))
        solution = np.empty(b.shape, b.dtype)
        pairs = zip(a.reshape(-1, size, size), b.reshape(-1, *b.shape[-2:]), strict=True)
        for x, (matrix, right) in zip(solution.reshape(-1, *b.shape[-2:]), pairs, strict=True):
            x[...] = solve(1.0, matrix, right, lower=lower, diag=unit)
    return solution if left else solution.swapaxes(-1, -2)


# --- batch_norm ------------------------------------------------------------------------------------------------------


class _Normalization:
    """Shared by the batch_norm ops: sums over all dimensions except the feature's, in a wide dtype."""

    def __init__(self, op: Op) -> None:
        operand = op.operands[0]
        shape, feature = operand.tensor.static_shape, op["feature_index"]
        self.dtype = _computed(operand)
        self.result_dtype = op.results[0].tensor.dtype
        self.epsilon = self.dtype.type(op["epsilon"])
        self.along = tuple(size if axis == feature else 1 for axis, size in enumerate(shape))
        self.count = self.dtype.type(prod(size for axis, size in enumerate(shape) if axis != feature))
        self._summed = tuple(axis for axis in range(len(shape)) if axis != feature)

    def sum(self, array: Array) -> Array:
        """Return one sum per feature, dimension by dimension, to limit rounding errors."""
        for axis in reversed(self._summed):
            array = np.add.reduce(array, axis=axis)
        return array

    def widen(self, *arrays: Array) -> list[Array]:
        return [array.astype(self.dtype, copy=False) for array in arrays]

    def spread(self, features: Array) -> Array:
        """Return one number per feature, shaped to broadcast against the operand."""
        return features.reshape(self.along)

    def narrow(self, *arrays: Array) -> tuple[Array, ...]:
        return tuple(array.astype(self.result_dtype, copy=False) for array in arrays)


@kernel("stablehlo.batch_norm_inference")
def batch_norm_inference(op: Op, context: Context) -> Kernel:
    norm = _Normalization(op)

    def call(*arrays: Array) -> Array:
        operand, scale, offset, mean, variance = norm.widen(*arrays)
        result = operand - norm.spread(mean)
        result *= norm.spread(scale / np.sqrt(variance + norm.epsilon))
        result += norm.spread(offset)
        return norm.narrow(result)[0]

    return Kernel(call)


@kernel("stablehlo.batch_norm_training")
def batch_norm_training(op: Op, context: Context) -> Kernel:
    norm = _Normalization(op)

    def call(*arrays: Array) -> tuple[Array, ...]:
        operand, scale, offset = norm.widen(*arrays)
        mean = norm.sum(operand) / norm.count
        result = operand - norm.spread(mean)
        variance = norm.sum(np.square(result)) / norm.count
        result *= norm.spread(scale / np.sqrt(variance + norm.epsilon))
        result += norm.spread(offset)
        return norm.narrow(result, mean, variance)

    return Kernel(call)


@kernel("stablehlo.batch_norm_grad")
def batch_norm_grad(op: Op, context: Context) -> Kernel:
    norm = _Normalization(op)

    def call(*arrays: Array) -> tuple[Array, ...]:
        operand, scale, mean, variance, gradient = norm.widen(*arrays)
        spread = norm.spread
        centered = operand - spread(mean)
        deviation = np.sqrt(variance + norm.epsilon)
        total = norm.sum(gradient)
        projected = norm.sum(gradient * centered)
        result = gradient * norm.count
        result -= spread(total)
        centered *= spread(projected / (variance + norm.epsilon))
        result -= centered
        result *= spread(scale / deviation / norm.count)
        return norm.narrow(result, projected / deviation, total)

    return Kernel(call)
