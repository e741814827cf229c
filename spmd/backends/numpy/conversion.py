"""Conversions of element types: convert, bitcast_convert, reduce_precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spmd import types as t
from spmd.analysis.float_formats import FLOAT_FORMATS
from spmd.backends.kernels import Call, Context, Kernel, kernel
from spmd.backends.numpy.pointwise import (
    element_of,
    is_narrow_float,
    is_sub_byte,
    keep,
    pointwise,
    tabulated,
    widen,
    write,
)
from spmd.ir import Op
from spmd.support.arrays import Array, DType, bits_dtype


@kernel("stablehlo.convert")
def convert(op: Op, context: Context) -> Kernel:
    source, target = element_of(op.operands[0]), element_of(op.results[0])
    if source is target:
        return Kernel(keep, accepts_out=True, aliases=(0,), pointwise=True)
    return pointwise(op, conversion(source, target))


def conversion(source: t.ElementType, target: t.ElementType) -> Call:
    """Return `call(x, out=None)`, the conversion of specification "convert".

    Where it leaves the result open: floats out of an integer's range saturate, NaN becomes 0, integers wrap, and
    complex numbers convert to their real part (XLA's CPU backend).
    """
    if source.is_complex and not target.is_complex:
        inner = conversion(source.real, target) if source.real is not target else keep
        return lambda x, out=None: inner(x.real, out=out)
    if source.is_float and target.is_integer:
        return _to_integer(source, target)
    if source.is_float and target.is_boolean:
        zero = source.dtype.type(0)
        return lambda x, out=None: np.not_equal(x, zero, out=out)
    if source.is_float and source.bits <= 16 and target.is_float and target.bits <= 16:
        return tabulated(keep, source, target)
    if is_sub_byte(source) or (is_narrow_float(source) and source is not t.BF16):
        up, dtype = widen(source), target.dtype
        return lambda x, out=None: write(up(x), dtype, out)
    dtype = target.dtype
    return lambda x, out=None: write(x, dtype, out)


def _to_integer(source: t.ElementType, target: t.ElementType) -> Call:
    if source.bits <= 16:
        return _table_to_integer(source, target)
    dtype = target.dtype
    lowest, highest = t.storage_range(target)
    below, above = source.dtype.type(lowest), source.dtype.type(float(highest + 1))
    floor = source.dtype.type(float(lowest - 1))  # equals `below` if rounded: exact on the slow path

    def call(x: Array, out: Array | None = None) -> Array:
        inside = (x > floor) & (x < above)
        if np.count_nonzero(inside) == inside.size:
            return write(x, dtype, out)
        result = np.where(inside, x, 0).astype(dtype)
        result = np.where(x >= above, np.array(highest).astype(dtype), result)
        result = np.where(x <= below, np.array(lowest).astype(dtype), result)
        return keep(result, out)

    return call


def _table_to_integer(source: t.ElementType, target: t.ElementType) -> Call:
    return tabulated(_saturation(t.F64, target), source, target)


_SATURATIONS: dict[t.ElementType, Call] = {}


def _saturation(source: t.ElementType, target: t.ElementType) -> Call:
    """Return the conversion from f64, one object per target, so that tables made from it are shared."""
    if target not in _SATURATIONS:
        _SATURATIONS[target] = _to_integer(source, target)
    return _SATURATIONS[target]


# --- bitcast_convert -------------------------------------------------------------------------------------------------


@kernel("stablehlo.bitcast_convert")
def bitcast_convert(op: Op, context: Context) -> Kernel:
    """Return the bits reinterpreted; a wider type merges the last dimension, a narrower one adds it."""
    source, target = op.operands[0].tensor, op.result.tensor
    from_bits, to_bits = _bit_width(source.scalar_type), _bit_width(target.scalar_type)
    from_dtype, to_dtype = source.dtype, target.dtype
    if from_bits == to_bits:
        call = lambda x, out=None: keep(x.view(to_dtype), out)  # noqa: E731
        return Kernel(call, accepts_out=True, aliases=(0,), pointwise=True)
    whole = source.static_shape
    shape = (*whole, from_bits // to_bits) if from_bits > to_bits else whole[:-1]
    if from_bits == 8 * from_dtype.itemsize and to_bits == 8 * to_dtype.itemsize:
        if from_bits < to_bits:
            joined_shape = (*shape, to_bits // from_bits)
            return Kernel(lambda x: np.ascontiguousarray(x).reshape(joined_shape).view(to_dtype)[..., 0], aliases=(0,))
        inner = source.static_shape
        return Kernel(lambda x: np.ascontiguousarray(x).reshape(*inner, 1).view(to_dtype).reshape(shape), aliases=(0,))
    split, joined = _bit_splitter(from_dtype, from_bits), _bit_joiner(to_dtype, to_bits)
    return Kernel(lambda x: joined(split(x)).reshape(shape))


def _bit_width(element: t.ScalarType) -> int:
    return element.bits


def _bit_splitter(dtype: DType, bits: int) -> Callable[[Array], Array]:
    """Return a function to the array's bits, lowest first, flat."""

    def split(x: Array) -> Array:
        raw = np.ascontiguousarray(x).reshape(-1, 1).view(np.uint8)
        return np.unpackbits(raw, axis=-1, bitorder="little")[:, :bits].ravel()

    return split


def _bit_joiner(dtype: DType, bits: int) -> Callable[[Array], Array]:
    """Return a function from flat bits, lowest first, to elements of `bits` bits."""
    width = 8 * dtype.itemsize

    def join(flat: Array) -> Array:
        padded = np.zeros((flat.size // bits, width), np.uint8)
        padded[:, :bits] = flat.reshape(-1, bits)
        return np.packbits(padded, axis=-1, bitorder="little").view(dtype).ravel()

    return join


# --- reduce_precision ------------------------------------------------------------------------------------------------


@kernel("stablehlo.reduce_precision")
def reduce_precision(op: Op, context: Context) -> Kernel:
    """Round to `mantissa_bits` (ties to even) and `exponent_bits`; overflow is infinity, underflow zero; NaN
    is kept.
    """
    element = element_of(op.operands[0])
    call = precision_reduction(element, op["exponent_bits"], op["mantissa_bits"])
    if call is None:
        return Kernel(keep, accepts_out=True, aliases=(0,), pointwise=True)
    return pointwise(op, call)


def precision_reduction(element: t.ElementType, exponent_bits: int, mantissa_bits: int) -> Call | None:
    """Return `call(x, out=None)`; None if every value of `element` already fits."""
    if element.name not in FLOAT_FORMATS:
        return _through_f32(element, exponent_bits, mantissa_bits)
    own_exponent, own_mantissa = FLOAT_FORMATS[element.name]
    spare = own_mantissa - mantissa_bits
    if spare <= 0 and exponent_bits >= own_exponent:
        return None
    bits = bits_dtype(element.dtype)
    word = bits.type
    sign_mask = word(1 << (own_exponent + own_mantissa))
    infinity = word(((1 << own_exponent) - 1) << own_mantissa)
    bias, kept_bias = (1 << (own_exponent - 1)) - 1, (1 << (min(exponent_bits, own_exponent) - 1)) - 1
    largest, smallest = word((bias + kept_bias) << own_mantissa), word(max(0, bias - kept_bias) << own_mantissa)
    no_nan = np.array(np.inf).astype(element.dtype)  # without a mantissa there is no NaN

    def call(x: Array, out: Array | None = None) -> Array:
        raw = x.view(bits)
        if spare > 0:
            last = word(1 << spare)
            odd = (raw >> word(spare)) & word(1)
            raw = (raw + (odd + word((1 << (spare - 1)) - 1))) & ~word(last - word(1))
        if exponent_bits < own_exponent:
            exponent, zero = raw & infinity, raw & sign_mask
            raw = np.where(exponent > largest, zero | infinity, raw)
            raw = np.where(exponent <= smallest, zero, raw)
        result = np.where(x != x, x if mantissa_bits > 0 else no_nan, raw.view(element.dtype))
        return keep(result, out)

    return call


def _through_f32(element: t.ElementType, exponent_bits: int, mantissa_bits: int) -> Call | None:
    inner = precision_reduction(t.F32, exponent_bits, mantissa_bits)
    if inner is None:
        return None
    up, dtype = widen(element), element.dtype
    return lambda x, out=None: write(inner(up(x)), dtype, out)
