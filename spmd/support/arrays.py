"""The arrays that everything computes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from collectives.arrays import Array as Array
from collectives.arrays import DType as DType
from collectives.arrays import bits_dtype as bits_dtype
from collectives.arrays import numpy_has as numpy_has

#: What a program takes: anything that NumPy makes an array of, a tuple for a tuple, None for a token.
Argument: TypeAlias = "npt.ArrayLike | tuple[Argument, ...] | None"
#: An array, or a tuple of such: a value of a shape that may be a tuple.
Nested: TypeAlias = "Array | tuple[Nested, ...]"
#: What stands for an op's results while a program runs: an array, None for a token, a tuple for a tuple or for several.
Results: TypeAlias = "Array | tuple[Results, ...] | None"
#: Arrays, or what becomes one, in containers of any kind: dicts, lists, dataclasses, whatever JAX knows as a tree. The
#: caller alone knows which.
Tree: TypeAlias = Any
#: A function of a user's, of whatever arguments and results.
UserFunction: TypeAlias = Callable[..., Any]
#: What a process's block is made from: a whole array, or what gives a block by one slice a dimension.
Source: TypeAlias = Array | Callable[[tuple[slice, ...]], Array]

_SMALL_INTEGERS = {np.dtype(narrow) for narrow in (ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4)}
_limits: Callable[[DType], Any] = ml_dtypes.finfo
_integer_limits: Callable[[DType], Any] = ml_dtypes.iinfo


def extreme(dtype: DType, *, largest: bool) -> Array:
    """The largest or the least value of `dtype`, an array of rank 0; infinities where it has them.

    ValueError for complex types, which have no order.
    """
    if dtype.kind == "c":
        raise ValueError(f"{dtype} has no order")
    if dtype == np.bool_:
        return np.array(largest)
    if dtype.kind in "iu" or dtype in _SMALL_INTEGERS:
        info = _integer_limits(dtype)
        return np.array(info.max if largest else info.min, dtype)
    with np.errstate(all="ignore"):
        infinity = np.array(np.inf if largest else -np.inf, np.float64).astype(dtype)
    if np.isinf(infinity.astype(np.float64)):
        return infinity
    return np.array(_limits(dtype).max if largest else _limits(dtype).min, dtype)
