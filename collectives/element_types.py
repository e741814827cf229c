"""Properties of element types of NumPy and ml_dtypes: kind and width."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from collectives.arrays import Array, DType

_iinfo: Callable[[Any], Any] = ml_dtypes.iinfo


@cache
def is_integer(dtype: DType) -> bool:
    """Return whether ``dtype`` is an integer type of NumPy or ml_dtypes."""
    if dtype.kind in "iu":
        return True
    try:
        _iinfo(dtype)
    except ValueError:
        return False
    return True


def integer_limits(dtype: DType) -> tuple[int, int]:
    """Return the minimum and maximum of the integer type ``dtype``."""
    info = _iinfo(dtype)
    return int(info.min), int(info.max)


@cache
def is_float(dtype: DType) -> bool:
    """Return whether ``dtype`` is a real floating-point type of NumPy or ml_dtypes."""
    return dtype.kind not in "bciu" and not is_integer(dtype)


@cache
def bit_width(dtype: DType) -> int:
    """Return the significant bits of an element (4 for int4, although NumPy stores it in a byte)."""
    if dtype == np.bool_ or dtype.kind == "c":
        return dtype.itemsize * 8
    info = _iinfo if is_integer(dtype) else ml_dtypes.finfo
    return int(info(dtype).bits)


def element(dtype: DType, value: int) -> Array:
    """Return ``value`` as a rank-0 array of ``dtype``.

    Zero is the all-zero bit pattern, so that every transport makes the same fill; for f8E8M0FNU, which has no zero, it
    is the smallest value.
    """
    return np.full((), value, dtype) if value else np.zeros((), dtype)
