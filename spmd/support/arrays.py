"""Types of arrays and of nested arrays."""

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

#: A program's argument: anything that NumPy converts to an array, a tuple for a tuple, None for a token.
Argument: TypeAlias = "npt.ArrayLike | tuple[Argument, ...] | None"
#: An array, or a tuple of such: a value of a shape that may be a tuple.
Nested: TypeAlias = "Array | tuple[Nested, ...]"
#: An op's results while a program runs: an array, None for a token, a tuple for a tuple or for several.
Results: TypeAlias = "Array | tuple[Results, ...] | None"
#: A pytree of arrays or array-likes: dicts, lists, dataclasses or any other container that JAX supports.
Tree: TypeAlias = Any
#: A user's function, of any arguments and results.
UserFunction: TypeAlias = Callable[..., Any]
#: The source of a process's shard: a whole array, or a function from one slice per dimension to that block.
Source: TypeAlias = Array | Callable[[tuple[slice, ...]], Array]


def map_parts(function: Callable[[Array], Array], value: Any) -> Any:
    """Return `function` of an array, or of each array of a tuple, however nested; what else there is stays itself."""
    if isinstance(value, tuple):
        return tuple([map_parts(function, part) for part in value])
    return function(value) if isinstance(value, np.ndarray) else value


_SMALL_INTEGERS = {np.dtype(narrow) for narrow in (ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4)}
_limits: Callable[[DType], Any] = ml_dtypes.finfo
_integer_limits: Callable[[DType], Any] = ml_dtypes.iinfo


def smallest_positive(dtype: DType) -> float:
    """Return the smallest positive number of a type of floats."""
    return float(_limits(dtype).smallest_subnormal)


def extreme(dtype: DType, *, largest: bool) -> Array:
    """The largest or the least value of `dtype`, an array of rank 0; an infinity where it has them.

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
