"""A chain of elementwise operations over two large arrays: ``elementwise_chain_4m``."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


def chain(x: Array, y: Array) -> tuple[Array]:
    z = np.tanh(x) * y + np.exp(-x * x)
    z = z / (1 + np.abs(z))
    return (np.where(z > 0, z, np.float32(0.1) * z) + np.sqrt(np.abs(y)),)
