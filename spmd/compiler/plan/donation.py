"""Donated arguments: which ones the caller names, and copies of arrays that cannot be overwritten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.errors import UsageError
from spmd.ir import Function
from spmd.ir.attributes import BoolAttr
from spmd.support.arrays import Array
from spmd.types import TensorType

#: Selects the arguments that the program marks.
ATTRIBUTES = "attributes"
#: JAX's marks of donated arguments: with the aliasing result, or for any result.
_ALIASING_OUTPUT, _BUFFER_DONOR = "tf.aliasing_output", "jax.buffer_donor"


def donated_arguments(function: Function, donate: Sequence[int] | str) -> frozenset[int]:
    """Return the arguments of `function` that `donate` selects; UsageError for an index that is not an
    array argument.
    """
    types = function.type.inputs
    if donate == ATTRIBUTES:
        return frozenset(
            index
            for index, (type, entries) in enumerate(zip(types, function.argument_attributes, strict=True))
            if isinstance(type, TensorType) and (_ALIASING_OUTPUT in entries or _is_true(entries.get(_BUFFER_DONOR)))
        )
    for index in donate:
        assert isinstance(index, int)
        if not 0 <= index < len(types) or not isinstance(types[index], TensorType):
            raise UsageError(
                f"donate must be numbers of array arguments, got {index} for a program of {len(types)} arguments"
            )
    return frozenset(donate)  # type: ignore[arg-type]


def _is_true(attribute: object) -> bool:
    return isinstance(attribute, BoolAttr) and attribute.value


def owned_arrays(values: list[Array], donated: Sequence[int]) -> list[Array]:
    """Return `values` with copies of donated arrays that must not be overwritten.

    These are read-only, not in C order, not aligned, of an array subclass, or share memory with another argument.
    """
    if not _are_distinct(values):
        values = list(values)
        shared = _sharing(values)
        for index in donated:
            if index in shared:
                values[index] = np.array(values[index])
    for index in donated:
        flags = values[index].flags
        if not (flags.carray and values[index].__class__ is np.ndarray):
            values[index] = np.array(values[index], order="C", subok=False)
    return values


def _are_distinct(values: Sequence[Array]) -> bool:
    """Return whether arrays are trivially disjoint: distinct objects that own their memory."""
    arrays = [value for value in values if value is not None]
    return len({id(array) for array in arrays}) == len(arrays) and all(
        isinstance(array, np.ndarray) and array.base is None for array in arrays
    )


def _sharing(values: Sequence[Array]) -> set[int]:
    """Return the arguments whose byte range overlaps another's."""
    bounds = sorted(
        (*np.lib.array_utils.byte_bounds(value), index)
        for index, value in enumerate(values)
        if isinstance(value, np.ndarray) and value.size
    )
    sharing: set[int] = set()
    reach, owner = 0, -1
    for low, high, index in bounds:
        if low < reach:
            sharing |= {owner, index}
        if high > reach:
            reach, owner = high, index
    return sharing
