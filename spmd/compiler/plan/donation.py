"""Arguments that a program may write over: which ones its caller names, and what is done with their arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.errors import UsageError
from spmd.ir import Function
from spmd.ir.attributes import BoolAttr
from spmd.support.arrays import Array
from spmd.types import TensorType

#: In place of numbers: the arguments that the program itself marks.
ATTRIBUTES = "attributes"
#: How JAX marks an argument: the result that may take its memory over, or any.
_ALIASING_OUTPUT, _BUFFER_DONOR = "tf.aliasing_output", "jax.buffer_donor"


def donated_arguments(function: Function, donate: Sequence[int] | str) -> frozenset[int]:
    """The arguments of `function` that `donate` names; UsageError for a number that is none of an array."""
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
            raise UsageError(f"donate has {index}, which is no array among the {len(types)} arguments of the program")
    return frozenset(donate)  # type: ignore[arg-type]


def _is_true(attribute: object) -> bool:
    return isinstance(attribute, BoolAttr) and attribute.value


def owned_arrays(values: list[Array], donated: Sequence[int]) -> list[Array]:
    """`values` with a copy for each donated array that cannot be written over.

    That is one that is read-only, not in C order, not aligned, no plain array, or shares memory with another argument.
    """
    if not _are_apart(values):
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


def _are_apart(values: Sequence[Array]) -> bool:
    """Whether it is plain to see that no two arrays share memory: each has its own."""
    arrays = [value for value in values if value is not None]
    return len({id(array) for array in arrays}) == len(arrays) and all(
        isinstance(array, np.ndarray) and array.base is None for array in arrays
    )


def _sharing(values: Sequence[Array]) -> set[int]:
    """The arguments whose memory, from its first to its last byte, overlaps another's."""
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
