"""Conversion and validation of the arguments that users pass to a communicator.

Compiled programs bind operations directly; their shapes and types are known to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.arrays import Array, DType
from collectives.element_types import is_float
from collectives.errors import CommunicationError, GroupError
from collectives.operations import Operation, describe
from collectives.reduction import MONOIDS, Reduction
from collectives.shapes import Shape, extent_text

#: What is accepted as a reduction: a Reduction, its name, or the NumPy function of that name.
AnyReduction = Reduction | str | Callable[..., Any]
AnyShape = int | Sequence[int]

#: Aliases of the monoids: names of NumPy functions and of MPI operations.
_NAMES = {
    "sum": "add",
    "prod": "multiply",
    "product": "multiply",
    "mul": "multiply",
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "band": "and",
    "bor": "or",
    "bxor": "xor",
}
_OF_BOOLEANS = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}


class ArgumentError(CommunicationError, TypeError):
    """An argument of a wrong type, shape or range."""


def as_reduction(given: AnyReduction, dtype: DType) -> Reduction:
    """Return the reduction that ``given`` names (``"max"``, ``np.maximum``, ``np.add``, ...) on elements of ``dtype``.

    Raises ArgumentError if ``given`` names no monoid.
    """
    if isinstance(given, Reduction):
        return given
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    lowered = name.strip().lower()
    if lowered in _OF_BOOLEANS and dtype == np.bool_:
        lowered = _OF_BOOLEANS[lowered]
    monoid = MONOIDS.get(_NAMES.get(lowered, lowered))
    if monoid is not None and (isinstance(given, str) or _is_known(given)):
        return monoid
    own = "" if isinstance(given, str) or not callable(given) else "; a fold of your own is Reduction(name, fold)"
    raise ArgumentError(
        f"reduction={_shown(given)} of {dtype}: one of {', '.join(MONOIDS)} is needed, by name (sum, prod, max and min "
        f"are taken, too) or as NumPy's function (np.add, np.maximum){own}"
    )


def _is_known(function: Callable[..., Any]) -> bool:
    """Return whether a function's name identifies what it computes: of NumPy, `operator` or the built-ins."""
    if isinstance(function, np.ufunc):
        return True
    return (getattr(function, "__module__", None) or "").partition(".")[0] in ("numpy", "_operator", "builtins")


def as_shape(given: AnyShape) -> Shape:
    """Return ``given`` as a tuple of sizes, ``(n,)`` for a number n; ArgumentError unless all are non-negative
    integers.
    """
    try:
        numbers: list[Any] = [given] if isinstance(given, int | np.integer) else list(given)
    except TypeError:
        numbers = [None]
    shape = tuple(int(number) for number in numbers if isinstance(number, int | np.integer))
    if len(shape) != len(numbers) or any(number < 0 for number in shape):
        raise ArgumentError(
            f"a shape is a number or a tuple of numbers, not negative, got {_shown(given)}; a collective is bound to a "
            "shape and a dtype, then called: all_reduce(x.shape, x.dtype)(x)"
        )
    return shape


def as_dtype(given: npt.DTypeLike) -> DType:
    """Return the numeric element type that ``given`` names; ArgumentError if there is none."""
    try:
        dtype = np.dtype(given)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind in "OSUMm" or dtype.names is not None:
        raise ArgumentError(f"dtype must be a type of numbers, got {_shown(given)}")
    return dtype


def as_members(given: Sequence[int], processes: int, own: int) -> tuple[int, ...]:
    """Return the world ranks of a group.

    Raises GroupError unless they are distinct, below ``processes``, and include ``own``.
    """
    members = tuple(given)
    if not all(_is_below(member, processes) for member in members) or len({*members}) < len(members):
        raise GroupError(f"members must be distinct ranks of 0 to {processes - 1}, got {_shown([*members])}")
    if own not in members:
        raise GroupError(f"members must hold the rank that makes the group, {own}, got {_shown([*members])}")
    return tuple(map(int, members))


def check_peer(given: int, size: int, name: str) -> None:
    """Raise ArgumentError, naming the parameter, unless ``given`` is a position in a group of ``size``."""
    if not _is_below(given, size):
        raise ArgumentError(f"{name} must be a position in the group, of 0 to {size - 1}, got {_shown(given)}")


def _is_below(value: object, limit: int) -> bool:
    return isinstance(value, int | np.integer) and 0 <= int(value) < limit


def taking_any(
    call: Callable[..., Array], operation: Operation, result: Shape, compare: Callable[[], None]
) -> Callable[..., Array]:
    """Return ``call`` with its arguments converted and checked: lists and scalars become arrays.

    Calls ``compare`` before the first call. The result raises ArgumentError for an operand or ``out`` that does not
    fit.
    """
    shape, dtype = operation.shape, operation.dtype
    is_first = True

    def checked(array: Any, out: Array | None = None) -> Array:
        nonlocal is_first
        if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
            array = as_operand(array, operation)
        if out is not None and not _fits(out, result, dtype):
            raise ArgumentError(
                f"{describe(operation)}: out must be {extent_text(result, dtype)}, got {_described(out)}"
            )
        if is_first:
            compare()
            is_first = False
        return call(array, out)

    return checked


def as_operand(given: Any, operation: Operation) -> Array:
    """Return ``given`` as an array of the operation's shape and type.

    Arrays are converted only in byte order. Raises ArgumentError for another shape or type.
    """
    array = np.asarray(given)
    shape, dtype = operation.shape, operation.dtype
    if array.shape != shape:
        raise ArgumentError(f"{describe(operation)}: the operand is {_described(array)}, another shape")
    if array.dtype == dtype:
        return array
    is_array = isinstance(given, np.ndarray | np.generic) or hasattr(given, "__array__")
    if array.dtype.newbyteorder("=") == dtype or (not is_array and _converts(array, dtype)):
        try:
            return np.asarray(given, dtype)
        except (OverflowError, ValueError) as error:
            raise ArgumentError(f"{describe(operation)}: {error}") from None
    raise ArgumentError(
        f"{describe(operation)}: the operand is {_described(array)}, another type: array.astype({dtype.name!r})"
    )


def _converts(array: Array, dtype: DType) -> bool:
    """Return whether Python numbers of this NumPy type convert to ``dtype`` without losing their kind."""
    if array.dtype.kind == "b":
        return True
    if array.dtype.kind in "iu":
        return dtype != np.bool_
    if array.dtype.kind == "f":
        return is_float(dtype) or dtype.kind == "c"
    return array.dtype.kind == "c" and dtype.kind == "c"


def _fits(out: object, shape: Shape, dtype: DType) -> bool:
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
        return False
    return out.flags.c_contiguous and out.flags.writeable


def _described(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return _shown(value)
    order = "" if value.flags.c_contiguous else ", not in C order"
    return f"{extent_text(value.shape, value.dtype)}{order}{'' if value.flags.writeable else ', read-only'}"


def _shown(value: object) -> str:
    text = getattr(value, "__name__", None) if callable(value) else None
    return text or (repr(value) if len(repr(value)) < 80 else f"{type(value).__name__} {repr(value)[:60]}...")
