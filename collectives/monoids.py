"""NumPy ufuncs of the named monoids."""

from __future__ import annotations

import numpy as np

#: For numbers. The extrema propagate NaN; the sign of a zero result is unspecified.
UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
#: For booleans: add and maximum are OR, multiply and minimum are AND.
LOGICAL_UFUNCS: dict[str, np.ufunc] = {
    "add": np.logical_or, "or": np.logical_or, "maximum": np.logical_or,
    "multiply": np.logical_and, "and": np.logical_and, "minimum": np.logical_and,
    "xor": np.logical_xor,
}  # fmt: skip
