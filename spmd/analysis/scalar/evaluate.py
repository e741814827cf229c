"""Evaluates scalar expressions on NumPy arrays, for compile-time analysis of indices and predicates.

Floats are limited to the primitives that NumPy rounds as IEEE 754 does, which divisions of narrow integers use;
functions are left to the back ends.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, walk
from spmd.support.arrays import Array, DType


def evaluate(roots: Sequence[Expression], parameters: Sequence[Array]) -> list[Array] | None:
    """Return the values of `roots`, elementwise over `parameters`, which broadcast; None for other primitives.

    Parameters and results are in the form of registers: i1 as bool, other integers as signed NumPy integers.
    """
    values: dict[Expression, Array] = {}
    with np.errstate(all="ignore"):
        for node in walk(roots):
            value = _value(node, [values[operand] for operand in node.operands], parameters)
            if value is None:
                return None
            values[node] = value
    return [values[root] for root in roots]


def dtype_of(type: MachineType) -> DType:
    """Return the NumPy type of a register; integers are signed."""
    if type is MachineType.I1:
        return np.dtype(bool)
    return np.dtype(f"{'f' if type.is_float else 'i'}{type.bits // 8}")


def _value(node: Expression, operands: list[Array], parameters: Sequence[Array]) -> Array | None:
    dtype = dtype_of(node.type)
    if node.primitive is Primitive.PARAMETER:
        assert isinstance(node.attribute, int)
        return parameters[node.attribute].astype(dtype, copy=False)
    if node.primitive is Primitive.CONSTANT:
        assert isinstance(node.attribute, int)
        if node.type.is_float:
            return np.array(node.attribute, f"u{dtype.itemsize}").view(dtype)
        return np.array(node.attribute, np.uint64).astype(dtype)
    if node.primitive is Primitive.COMPARE_INTEGER:
        return _compared(str(node.attribute), operands)
    if node.primitive is Primitive.COMPARE_FLOAT:
        return _float_compared(str(node.attribute), *operands)
    signed = _SIGNED.get(node.primitive)
    if signed is not None:
        return np.asarray(signed(*operands)).astype(dtype, copy=False)
    unsigned = _UNSIGNED.get(node.primitive)
    if unsigned is None:
        return None
    return np.asarray(unsigned(*map(_unsigned, operands))).astype(dtype, copy=False)


def _unsigned(array: Array) -> Array:
    return array if array.dtype == bool else array.view(f"u{array.dtype.itemsize}")


def _compared(predicate: str, operands: list[Array]) -> Array:
    if predicate[0] == "u":
        operands = [_unsigned(operand) for operand in operands]
    return np.asarray(_ORDERS[predicate[-2:]](*operands))


def _float_compared(predicate: str, x: Array, y: Array) -> Array:
    unordered = np.isnan(x) | np.isnan(y)
    if predicate in ("ord", "uno"):
        return np.asarray(unordered if predicate == "uno" else ~unordered)
    result = np.asarray(_ORDERS[predicate[1:]](x, y))
    return result & ~unordered if predicate[0] == "o" else result | unordered


def _quotient(x: Array, y: Array) -> Array:
    """Return x / y truncated; results for y = 0 are unused."""
    divisor = np.where(y == 0, 1, y)
    floor = x // divisor
    quotient: Array = floor + ((floor * divisor != x) & ((x < 0) != (divisor < 0)))
    return quotient


def _remainder(x: Array, y: Array) -> Array:
    remainder: Array = x - _quotient(x, y) * y
    return remainder


_ORDERS: Mapping[str, Callable[..., Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_SIGNED: Mapping[Primitive, Callable[..., Any]] = {
    Primitive.ADD: np.add,
    Primitive.SUB: np.subtract,
    Primitive.MUL: np.multiply,
    Primitive.SDIV: _quotient,
    Primitive.SREM: _remainder,
    Primitive.SMAX: np.maximum,
    Primitive.SMIN: np.minimum,
    Primitive.AND: np.bitwise_and,
    Primitive.OR: np.bitwise_or,
    Primitive.XOR: np.bitwise_xor,
    Primitive.SHL: np.left_shift,
    Primitive.ASHR: np.right_shift,
    Primitive.DIV: np.divide,
    Primitive.NEG: np.negative,
    Primitive.TRUNC: np.trunc,
    Primitive.FLOOR: np.floor,
    Primitive.CEIL: np.ceil,
    Primitive.RINT: np.rint,
    Primitive.ABS: np.abs,
    Primitive.FLOAT_TO_SIGNED: lambda x: x,
    Primitive.SIGNED_TO_FLOAT: lambda x: x,
    Primitive.FLOAT_EXTEND: lambda x: x,
    Primitive.FLOAT_TRUNCATE: lambda x: x,
    Primitive.SELECT: np.where,
    Primitive.RARELY: np.where,
    Primitive.TRUNCATE: lambda x: x,
    Primitive.SIGN_EXTEND: lambda x: -x.astype(np.int64) if x.dtype == bool else x,
}
_UNSIGNED: Mapping[Primitive, Callable[..., Any]] = {
    Primitive.UDIV: lambda x, y: x // np.where(y == 0, 1, y).astype(y.dtype),
    Primitive.UREM: lambda x, y: x % np.where(y == 0, 1, y).astype(y.dtype),
    Primitive.UMAX: np.maximum,
    Primitive.UMIN: np.minimum,
    Primitive.LSHR: np.right_shift,
    Primitive.UNSIGNED_TO_FLOAT: lambda x: x,
    Primitive.ZERO_EXTEND: lambda x: x,
}
