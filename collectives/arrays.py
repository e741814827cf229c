"""The arrays that travel."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

#: An array of NumPy, of any element type and shape.
Array: TypeAlias = npt.NDArray[Any]
#: The type of an array's elements, whichever it is.
DType: TypeAlias = np.dtype[Any]


def numpy_has(dtype: DType) -> bool:
    """Whether ``dtype`` is one of NumPy's own, not of ml_dtypes.

    Asked of the scalar's type: ``isbuiltin`` of a copy, such as an array has that was pickled, says 0.
    """
    return np.dtype(dtype.type).isbuiltin == 1


def bits_dtype(dtype: DType) -> DType:
    """The unsigned integer type of the size of ``dtype``, of at most 8 bytes."""
    return np.dtype(f"u{dtype.itemsize}")
