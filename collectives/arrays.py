"""Types of arrays and element types."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

#: A NumPy array of any element type and shape.
Array: TypeAlias = npt.NDArray[Any]
#: Any element type.
DType: TypeAlias = np.dtype[Any]


def numpy_has(dtype: DType) -> bool:
    """Return whether ``dtype`` is NumPy's own rather than ml_dtypes'.

    Tests the scalar type: ``isbuiltin`` of a copied dtype, as a pickled array has, is 0.
    """
    return np.dtype(dtype.type).isbuiltin == 1


def bits_dtype(dtype: DType) -> DType:
    """Return the unsigned integer type of the same size as ``dtype``, at most 8 bytes."""
    return np.dtype(f"u{dtype.itemsize}")
