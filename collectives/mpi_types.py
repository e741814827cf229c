"""NumPy's reductions and element types as MPI's: which operation, which datatype, and operations of our own.

Where MPI's operation is not known to be ours (``Arithmetic.native``), an operation of our own carries out our step on
the two buffers, which measures within a few percent of MPI's. It is told the element type by a datatype of that
type's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from collectives.arrays import Array, DType, bits_dtype, numpy_has
from collectives.layout import wire_dtype
from collectives.reduction import Arithmetic
from collectives.steps import step_of

Message = Any  # what mpi4py takes for a buffer: an array, or [array, datatype]

_NATIVE = {
    "add": MPI.SUM, "multiply": MPI.PROD, "minimum": MPI.MIN, "maximum": MPI.MAX,
    "and": MPI.BAND, "or": MPI.BOR, "xor": MPI.BXOR,
}  # fmt: skip
_BOOL = {
    "add": MPI.BOR, "or": MPI.BOR, "maximum": MPI.BOR,
    "multiply": MPI.BAND, "and": MPI.BAND, "minimum": MPI.BAND,
    "xor": MPI.BXOR,
}  # fmt: skip

# The element type that a datatype handed to an operation of our own stands for.
_element_types: dict[int, DType] = {}


def mpi_reduction(rule: Arithmetic) -> tuple[MPI.Op, Callable[[Array], Message]] | None:
    """The MPI operation for ``rule`` on arrays of its accumulator, and how such an array is handed to it.

    None for a custom fold, which MPI does not carry out.
    """
    name, dtype = rule.reduction.name, rule.accumulator
    if rule.step is None:
        return None
    if not rule.native:
        return _own_operation(name, not rule.ordered), _tagged(dtype)
    if dtype == np.bool_:
        return _BOOL[name], _viewed(np.dtype(np.uint8))
    if not numpy_has(dtype) or (dtype.kind == "i" and name in ("add", "multiply")):
        return _NATIVE[name], _viewed(bits_dtype(dtype))
    return _NATIVE[name], as_is


@cache
def _own_operation(name: str, commute: bool) -> MPI.Op:
    def combine(a: Any, b: Any, datatype: MPI.Datatype) -> None:
        dtype = _element_types[datatype.handle]
        left, right = np.frombuffer(a, dtype), np.frombuffer(b, dtype)
        with np.errstate(all="ignore"):
            step_of(name, dtype)(left, right, out=right)

    return MPI.Op.Create(combine, commute)


@cache
def _datatype(dtype: DType) -> MPI.Datatype:
    """A datatype by which an operation of our own knows the element type."""
    datatype = dtlib.from_numpy_dtype(wire_dtype(dtype)).Dup()
    _element_types[datatype.handle] = dtype
    return datatype


def _tagged(dtype: DType) -> Callable[[Array], Message]:
    datatype, wire = _datatype(dtype), wire_dtype(dtype)
    if wire == dtype:
        return lambda array: [array, datatype]
    return lambda array: [array.view(wire), datatype]


def as_is(array: Array) -> Message:
    """An array that mpi4py takes as it is."""
    return array


def _viewed(dtype: DType) -> Callable[[Array], Message]:
    return lambda array: array.view(dtype)
