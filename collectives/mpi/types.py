"""Maps reductions and NumPy's element types to MPI operations and datatypes, user-defined ones included.

Where MPI's operation may compute something else (see ``Arithmetic.native``), a user-defined operation applies the
arithmetic's own step to the two buffers; its time is within a few percent of MPI's. It gets the element type from a
datatype that is created for that type.
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

Message = Any  # mpi4py's buffer specification: an array, or [array, datatype]

_NATIVE = {
    "add": MPI.SUM, "multiply": MPI.PROD, "minimum": MPI.MIN, "maximum": MPI.MAX,
    "and": MPI.BAND, "or": MPI.BOR, "xor": MPI.BXOR,
}  # fmt: skip
_BOOL = {
    "add": MPI.BOR, "or": MPI.BOR, "maximum": MPI.BOR,
    "multiply": MPI.BAND, "and": MPI.BAND, "minimum": MPI.BAND,
    "xor": MPI.BXOR,
}  # fmt: skip

# Maps the handle of a datatype passed to a user-defined operation to the element type.
_element_types: dict[int, DType] = {}


def mpi_reduction(rule: Arithmetic) -> tuple[MPI.Op, Callable[[Array], Message]] | None:
    """Return the MPI operation for ``rule`` on arrays of its accumulator type, and the function that makes their
    messages.

    None for a custom fold, which has no MPI operation.
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
    """Return a datatype whose handle identifies the element type to user-defined operations."""
    datatype = dtlib.from_numpy_dtype(wire_dtype(dtype)).Dup()
    _element_types[datatype.handle] = dtype
    return datatype


def _tagged(dtype: DType) -> Callable[[Array], Message]:
    datatype, wire = _datatype(dtype), wire_dtype(dtype)
    if wire == dtype:
        return lambda array: [array, datatype]
    return lambda array: [array.view(wire), datatype]


def as_is(array: Array) -> Message:
    """Return the message of an array whose datatype mpi4py infers."""
    return array


def _viewed(dtype: DType) -> Callable[[Array], Message]:
    return lambda array: array.view(dtype)
