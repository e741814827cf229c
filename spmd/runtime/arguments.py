"""Conversion and validation of the arguments of a compiled function."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from spmd.dialects.shapes import bounds_of
from spmd.errors import UNKNOWN, ExecutionError, Location
from spmd.ir import Function, Value
from spmd.ir.attributes import Attribute, StringAttr
from spmd.support.arrays import Array
from spmd.support.rounding import narrowed
from spmd.support.usage import kind_of
from spmd.types import ElementType, TensorType, TupleType, Type, storage_range

_finfo: Callable[[Any], Any] = ml_dtypes.finfo

#: Checks and converts one argument.
Check = Callable[[Any], Any]

#: Attributes that hold a frontend's names of arguments.
_NAMES = ("jax.arg_info", "jax.result_info", "mhlo.name")
#: Matches default names that printers give to arguments.
_NUMBERED = re.compile(r"(arg)?_?\d+")


def argument_names(function: Function) -> list[str | None]:
    """Return the program's name of each argument, from an attribute, its location, or the text; None without one."""
    values: Sequence[Value | None] = function.arguments if function.regions and function.regions[0].blocks else ()
    if len(values) != len(function.type.inputs):
        values = [None] * len(function.type.inputs)
    return [_name(entries, value) for entries, value in zip(function.argument_attributes, values, strict=True)]


def _name(entries: Mapping[str, Attribute], value: Value | None) -> str | None:
    for name in _NAMES:
        if isinstance(entry := entries.get(name), StringAttr):
            return entry.value
    location = getattr(value, "debug_location", None)
    if location is not None and (named := re.match(r'"((?:[^"\\]|\\.)+)"(\(|$)', location)):
        return re.sub(r"\\(.)", r"\1", named[1])
    hint = value.name_hint if value is not None else None
    return None if hint is None or _NUMBERED.fullmatch(hint) else hint


def check_count(
    function: str,
    arrays: Sequence[object],
    types: Sequence[object],
    location: Location = UNKNOWN,
    process: int | None = None,
) -> None:
    """Raise ExecutionError unless `function` has as many argument `types` as there are `arrays`; `process` has them."""
    if len(arrays) != len(types):
        of = "" if process is None else f" for process {process}"
        raise ExecutionError(f"@{function} takes {len(types)} arguments, got {len(arrays)}{of}", location)


def argument_check(type: Type, place: str = "an argument") -> Check:
    """Return a function that converts an argument to an array of `type`; `place` names it in errors.

    An array must have the type's shape and dtype. A Python or NumPy scalar is accepted for rank 0 if the type can
    represent it: an integer exactly, a float rounded to the nearest finite value. A tuple must have as many parts as
    the type. The function raises ExecutionError for anything else.
    """
    if isinstance(type, TupleType):
        return _tuple_check(type, place)
    if not isinstance(type, TensorType):
        return lambda value: value
    dtype, shape, array = type.dtype, type.shape, np.ndarray
    dynamic, bounds = not type.is_static, bounds_of(type)

    def check(value: object) -> Any:
        if value.__class__ is array and value.dtype is dtype and value.shape == shape:
            return value  # the common case, without conversion
        if isinstance(value, np.ma.MaskedArray):
            raise ExecutionError(f"{place}: {type} is needed, got a masked array, whose mask would be lost")
        if shape == () and isinstance(value, (bool, int, float, complex, np.generic)):
            if isinstance(value, np.generic) and value.dtype == dtype:
                return np.asarray(value)
            converted = None if type.is_quantized else _scalar(value, type.element_type)
            if converted is None:
                raise ExecutionError(f"{place}: {type} is needed, which does not hold {value!r}")
            return converted
        array_here = _as_array(value, type, place)
        if array_here.dtype == dtype and (
            array_here.shape == shape or (dynamic and _fits(array_here.shape, shape, bounds))
        ):
            # Native code compares dtypes by identity: those of unpickled arrays are other objects.
            return array_here if array_here.dtype is dtype else array_here.view(dtype)
        given = f"{array_here.dtype} of shape {array_here.shape}"
        if array_here.shape == shape and array_here.dtype.kind in "biufcV":
            given += f", which .astype({_spelled(dtype)}) converts"
        raise ExecutionError(f"{place}: {type} is needed, got {given}")

    return check


def _spelled(dtype: np.dtype[Any]) -> str:
    """Return an element type's name as users of NumPy or ml_dtypes write it."""
    return f"{'np' if dtype.type.__module__ == 'numpy' else dtype.type.__module__}.{dtype.type.__name__}"


def _tuple_check(type: TupleType, place: str) -> Check:
    checks = [argument_check(part, f"part {index} of {place}") for index, part in enumerate(type.types)]

    def check(value: object) -> Any:
        if not isinstance(value, tuple | list) or len(value) != len(checks):
            given = f"{len(value)} parts" if isinstance(value, tuple | list) else kind_of(value)
            raise ExecutionError(f"{place}: {type} is needed, got {given}")
        return tuple([check(part) for check, part in zip(checks, value, strict=True)])

    return check


def _as_array(value: object, type: Type, place: str) -> Array:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ExecutionError(f"{place}: {type} is needed, got no array: {error}") from None


def _fits(shape: tuple[int, ...], declared: tuple[int | None, ...], bounds: tuple[int | None, ...]) -> bool:
    return len(shape) == len(declared) and all(
        declared_size in (None, size) and (bound is None or size <= bound)
        for size, declared_size, bound in zip(shape, declared, bounds, strict=True)
    )


# --- scalars ---------------------------------------------------------------------------------------------------------


def _scalar(value: object, element: object) -> Array | None:
    """Return `value` as a 0-d array of `element`; None if the type cannot represent it."""
    number = _number(value)
    if number is None or not isinstance(element, ElementType) or element.numpy is None:
        return None
    if element.is_complex:
        parts = (number.real, number.imag) if isinstance(number, complex) else (number, 0)
        real, imaginary = (_float(part, element.real) for part in parts)
        if real is None or imaginary is None:
            return None
        converted = np.empty((), element.dtype)
        converted.real, converted.imag = real, imaginary
        return converted
    if isinstance(number, complex):
        return None
    if element.is_float:
        return _float(number, element)
    if isinstance(number, float):
        if not number.is_integer():
            return None
        number = int(number)
    low, high = (0, 1) if element.is_boolean else storage_range(element)
    return np.array(number).astype(element.dtype) if low <= number <= high else None


def _number(value: object) -> int | float | complex | None:
    """Return a scalar as a Python number; None for NumPy's dates and records."""
    if not isinstance(value, np.generic):
        return int(value) if isinstance(value, int) else value if isinstance(value, (float, complex)) else None
    if value.dtype.kind in "mMSUO":
        return None
    if value.dtype.kind in "fc":
        number = complex(value) if value.dtype.kind == "c" else float(value)
        return number if np.isfinite(number) or not np.isfinite(value) else None  # longer formats exceed Python's float
    if value.dtype == np.bool_:
        return int(value)
    whole = value.dtype.kind in "biu" or value.dtype.name.startswith(("int", "uint"))
    try:
        return int(value) if whole else float(value)
    except (TypeError, ValueError):
        return None


def _float(number: int | float, element: ElementType) -> Array | None:
    try:
        wide = float(number)
    except OverflowError:
        return None
    with np.errstate(all="ignore"):
        converted = narrowed(np.array(wide), element.dtype)
    if isinstance(number, int) and (not math.isfinite(float(converted)) or int(float(converted)) != number):
        return None
    limits = _finfo(element.dtype)
    beyond = math.isfinite(wide) and abs(wide) > float(limits.max) * (1 + 2.0 ** -(int(limits.nmant) + 2))
    return converted if _holds(converted, wide) and not beyond else None


def _holds(converted: Any, number: float) -> bool:
    """Return whether `converted` is `number` rounded: finite, infinite or NaN alike, and of the same sign."""
    held = float(converted)
    if math.isnan(number) or math.isnan(held):
        return math.isnan(number) and math.isnan(held)
    return math.isinf(number) == math.isinf(held) and (held == 0 or (held < 0) == (number < 0))
