"""Arithmetic of rank 0.

A ufunc takes half a microsecond for two NumPy scalars, to make arrays of them; Python's operator on the same scalars
takes a tenth of that and gives the same bits. Loops count, compare and choose in each turn, so it is theirs to use.
Arrays, which regions on whole arrays hand to the same kernels, come out as the ufunc has them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from spmd.backends.numpy.core import Call
from spmd.support.arrays import Array, numpy_has
from spmd.types import ElementType

#: NumPy's functions that an operator of its scalars stands for.
_OPERATORS: dict[object, Call] = {
    np.absolute: operator.abs,
    np.add: operator.add,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.divide: operator.truediv,
    np.equal: operator.eq,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.invert: operator.invert,
    np.left_shift: operator.lshift,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.logical_and: operator.and_,
    np.logical_not: operator.invert,
    np.logical_or: operator.or_,
    np.logical_xor: operator.xor,
    np.multiply: operator.mul,
    np.negative: operator.neg,
    np.not_equal: operator.ne,
    np.right_shift: operator.rshift,
    np.subtract: operator.sub,
}


def on_scalars(call: Call, elements: Sequence[ElementType]) -> Call:
    """`call` on operands of rank 0, of types `elements`, by an operator where there is one."""
    operate = _OPERATORS.get(call) if all(map(_is_native, elements)) else None
    if operate is None:
        return call
    if len(elements) == 1:
        return lambda x, out=None: operate(x) if out is None else call(x, out=out)
    return lambda x, y, out=None: operate(x, y) if out is None else call(x, y, out=out)


def extremum_on_scalars(call: Call, beyond: Call) -> Call:
    """maximum or minimum: of two scalars the one `beyond` the other; `call` settles zeros, NaN and arrays."""

    def choose(x: Array, y: Array, out: Array | None = None) -> Array:
        if out is None and x.ndim == y.ndim == 0:
            if beyond(x, y):
                return as_scalar(x)
            if beyond(y, x):
                return as_scalar(y)
        return call(x, y, out=out)

    return choose


def _is_native(element: ElementType) -> bool:
    """Whether NumPy's scalars are of the type; complex ones may be multiplied in another way than arrays are."""
    return element.numpy is not None and element.numpy.kind in "biuf" and element.numpy.isbuiltin == 1


def as_scalar(array: Array) -> Array:
    """An array of rank 0 as a NumPy scalar, which nobody can write to, or a copy where NumPy has no such scalars;
    anything else as it is."""
    if array.ndim or isinstance(array, np.generic):
        return array
    return array[()] if numpy_has(array.dtype) else array.copy()
