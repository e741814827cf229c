"""What NumPy and ml_dtypes say of element types: integers or floats, and how wide."""

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
    """Whether ``dtype`` is an integer type, those of ml_dtypes included."""
    if dtype.kind in "iu":
        return True
    try:
        _iinfo(dtype)
    except ValueError:
        return False
    return True


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of the integer type ``dtype``."""
    info = _iinfo(dtype)
    return int(info.min), int(info.max)


@cache
def is_float(dtype: DType) -> bool:
    """Whether ``dtype`` is a real floating-point type, those of ml_dtypes included."""
    return dtype.kind not in "bciu" and not is_integer(dtype)


@cache
def bit_width(dtype: DType) -> int:
    """The bits that carry information in an element (4 for int4, though NumPy keeps it in a byte)."""
    if dtype == np.bool_ or dtype.kind == "c":
        return dtype.itemsize * 8
    info = _iinfo if is_integer(dtype) else ml_dtypes.finfo
    return int(info(dtype).bits)


def element(dtype: DType, value: int) -> Array:
    """``value`` in ``dtype``, an array of rank 0.

    Zero is the element without bits, so that it is the same wherever it is made: f8E8M0FNU, which has no zero, has
    its least value there.
    """
    return np.full((), value, dtype) if value else np.zeros((), dtype)
