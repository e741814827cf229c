"""Softmax over rows, and the gradient through it: ``softmax.mlir`` next to this file, made by ``export_softmax.py``."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


def softmax_and_gradient(x: Array, upstream: Array) -> tuple[Array, Array]:
    """Return the softmax of each row, and the gradient of <softmax(x), upstream>; all are f32[rows, columns]."""
    result = np.exp(x - x.max(axis=-1, keepdims=True))
    result /= result.sum(axis=-1, keepdims=True)
    slope = upstream * result
    slope -= result * slope.sum(axis=-1, keepdims=True)
    return result, slope
