"""Kernels of select: by np.where on small arrays, by blending bits on large ones."""

from __future__ import annotations

import numpy as np

from spmd.analysis.constants import constant_elements
from spmd.backends.numpy.core import Call, Context, Kernel, kernel
from spmd.backends.numpy.pointwise import keep, pointwise
from spmd.backends.numpy.scalars import as_scalar
from spmd.ir import Op, Value
from spmd.support.arrays import Array, DType

#: Below this many elements np.where is quicker than four passes over the bits.
_SMALL = 2048


def where(chosen: Array, x: Array, y: Array, out: Array | None = None) -> Array:
    """x where `chosen`, else y, of any dtype."""
    return keep(np.where(chosen, x, y), out)


@kernel("stablehlo.select")
def select(op: Op, context: Context) -> Kernel:
    dtype = op.result.tensor.dtype
    if not op.operands[0].tensor.rank:
        return pointwise(op, _of_one_predicate(selection(dtype)))
    if not _blends(dtype):
        return pointwise(op, where)
    for position, dropped in ((2, np.int8(0)), (1, np.int8(1))):
        if _has_no_bits(op.operands[position]):
            return pointwise(op, _masking(dtype, dropped))
    return pointwise(op, selection(dtype))


def _of_one_predicate(call: Call) -> Call:
    """All of one operand; `call` serves predicates that are arrays, in regions on whole arrays."""

    def choose(pred: Array, x: Array, y: Array, out: Array | None = None) -> Array:
        if pred.ndim or x.shape != y.shape:
            return call(pred, x, y, out=out)
        value = x if pred else y
        if out is None:
            return value.copy() if value.ndim else as_scalar(value)
        if out is not value:
            np.copyto(out, value)
        return out

    return choose


def _blends(dtype: DType) -> bool:
    """Whether elements of the dtype can be chosen by their bits."""
    return dtype.itemsize <= 8 and dtype.kind != "c"


def _has_no_bits(value: Value) -> bool:
    """Whether `value` is a constant whose elements are all +0."""
    constant = constant_elements(value)
    return constant is not None and not np.ascontiguousarray(constant).view(np.uint8).any()


def _signed(dtype: DType) -> DType:
    """The signed integer dtype of the same width."""
    return np.dtype(f"i{dtype.itemsize}")


def _mask(chosen: Array) -> Array:
    """Bytes of ones where `chosen`, of zeros elsewhere."""
    mask: Array = np.negative(chosen.view(np.int8))
    return mask


def _masking(dtype: DType, dropped: np.int8) -> Call:
    """The selection in which the operand that the predicate's byte `dropped` chooses is +0: one conjunction."""
    signed = _signed(dtype)

    def call(chosen: Array, x: Array, y: Array, out: Array | None = None) -> Array:
        values, zeros = (x, y) if dropped == 0 else (y, x)
        if zeros.size > max(values.size, chosen.size) or zeros.ndim > max(values.ndim, chosen.ndim):
            # only they have the result's shape
            return where(chosen, x, y, out)
        mask = _mask(chosen) if dropped == 0 else np.subtract(chosen.view(np.int8), dropped)
        bits = values.view(signed)
        if out is None:
            return np.bitwise_and(bits, mask).view(dtype)
        np.bitwise_and(bits, mask, out=out.view(signed))
        return out

    return call


def selection(dtype: DType) -> Call:
    """`call(pred, on_true, on_false, out=None)`. `pred` may also be a mask as wide as the dtype.

    np.where branches on every element, which an unpredictable predicate makes eight times slower than blending
    the bits.
    """
    if not _blends(dtype):
        return where
    signed = _signed(dtype)

    def call(chosen: Array, x: Array, y: Array, out: Array | None = None) -> Array:
        if x.size < _SMALL and y.size < _SMALL and chosen.size < _SMALL:
            small = np.where(chosen, x, y)
            if out is None:
                return small
            np.copyto(out, small)
            return out
        size = max(x.size, y.size, chosen.size)
        x, y = x.view(signed), y.view(signed)
        mask = chosen if chosen.dtype == signed else _mask(chosen)
        blend = np.bitwise_xor(x, y)
        blend = np.bitwise_and(blend, mask, out=blend if blend.size == size else None)
        result = np.bitwise_xor(blend, y, out=blend if out is None else out.view(signed))
        return result.view(dtype) if out is None else out

    return call
