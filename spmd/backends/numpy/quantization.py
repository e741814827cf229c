"""Quantized tensors: conversions, and ops that compute on them.

A quantized tensor is its storage array. Data movement runs on it directly; computation follows the specification's
`dequantize_op_quantize` (and `hybrid_dequantize_then_op`, `dequantize_compare`, ...): the op's kernel on the expressed
type, with conversions around it. Per-tensor functions of one or two operands of at most 8 bits become tables. Source:
StableHLO specification, "Quantized tensors" and "Quantization computations".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spmd import types as t
from spmd.backends.kernels import KERNELS, WRAPPERS, Call, Context, Kernel, kernel
from spmd.backends.numpy.elementwise import BINARY, UNARY
from spmd.backends.numpy.pointwise import all_values, keep, look_up, pair_index, write
from spmd.ir import Op, Value
from spmd.support.arrays import Array, DType, bits_dtype

#: Contractions: computed in f64, where products of integers and their sums are exact.
_CONTRACTIONS = frozenset({"stablehlo.convolution", "stablehlo.dot", "stablehlo.dot_general", "stablehlo.dynamic_conv"})
_ELEMENTWISE = frozenset({*UNARY, *BINARY, "stablehlo.compare", "stablehlo.is_finite", "stablehlo.reduce_precision"})
#: Ops that compute with values; all others move storage.
_COMPUTED = (
    _CONTRACTIONS
    | _ELEMENTWISE
    | {
        "stablehlo.batch_norm_grad",
        "stablehlo.batch_norm_inference",
        "stablehlo.batch_norm_training",
        "stablehlo.cholesky",
        "stablehlo.clamp",
        "stablehlo.dynamic_iota",
        "stablehlo.iota",
        "stablehlo.select",
        "stablehlo.triangular_solve",
    }
)


@kernel("stablehlo.uniform_dequantize")
def uniform_dequantize(op: Op, context: Context) -> Kernel:
    return _unary_kernel(op, dequantizer(op.operands[0].tensor))


@kernel("stablehlo.uniform_quantize")
def uniform_quantize(op: Op, context: Context) -> Kernel:
    """Quantize a float, or another quantized type through its floats."""
    source, target = op.operands[0].tensor, op.result.tensor
    quantize = quantizer(target)
    if not source.is_quantized:
        return _unary_kernel(op, quantize)
    dequantize = dequantizer(source)
    return _unary_kernel(op, lambda x, out=None: quantize(dequantize(x), out=out))


def quantized_kernel(op: Op, context: Context) -> Kernel | None:
    """Return the kernel of an op that computes on quantized operands or results; None for any other op."""
    if op.name not in _COMPUTED or not any(_is_quantized(value) for value in (*op.operands, *op.results)):
        return None
    if op.name == "stablehlo.select" and op.operands[1].type is op.operands[2].type is op.results[0].type:
        return None
    exact = op.name in _CONTRACTIONS and _is_quantized(op.results[0])
    compute = t.F64 if exact else None
    operands = [_float_value(value, compute) for value in op.operands]
    results = [_float_type(value, compute) for value in op.results]
    inner = KERNELS[op.name](op.clone(operands, results), context)
    function: Callable[..., Any] = inner.call if isinstance(inner, Kernel) else inner
    before = [dequantizer(value.tensor, compute) if _is_quantized(value) else None for value in op.operands]
    after = [quantizer(value.tensor, compute) if _is_quantized(value) else None for value in op.results]
    if len(op.results) > 1:
        return Kernel(_several(function, before, after))
    return _single(op, _around(function, before, after[0]))


WRAPPERS.append(quantized_kernel)


def _is_quantized(value: Value) -> bool:
    return isinstance(value.type, t.TensorType) and value.type.is_quantized


def _float_type(value: Value, compute: t.ElementType | None) -> t.Type:
    if not _is_quantized(value):
        return value.type
    return value.tensor.with_element_type(compute or _quantized(value.tensor).expressed)


def _float_value(value: Value, compute: t.ElementType | None) -> Value:
    return Value(_float_type(value, compute)) if _is_quantized(value) else value


def _quantized(type: t.TensorType) -> t.QuantizedType:
    assert isinstance(type.element_type, t.QuantizedType)
    return type.element_type


# --- conversions around a function -----------------------------------------------------------------------------------


def _converted(values: Sequence[Array], before: Sequence[Call | None]) -> list[Array]:
    return [value if up is None else up(value) for value, up in zip(values, before, strict=True)]


def _around(function: Call, before: Sequence[Call | None], after: Call | None) -> Call:
    def call(*values: Array, out: Array | None = None) -> Array:
        result = function(*_converted(values, before))
        return keep(result, out) if after is None else after(result, out=out)

    return call


def _several(
    function: Callable[..., tuple[Array, ...]], before: Sequence[Call | None], after: Sequence[Call | None]
) -> Callable[..., tuple[Array, ...]]:
    def call(*values: Array) -> tuple[Array, ...]:
        results = function(*_converted(values, before))
        return tuple(result if down is None else down(result) for result, down in zip(results, after, strict=True))

    return call


def _single(op: Op, call: Call) -> Kernel:
    """Return the kernel of one result, as a table if the operands have few values."""
    types = [value.tensor for value in (*op.operands, *op.results)]
    if op.name not in _ELEMENTWISE or not all(_is_uniform(type) for type in types):
        return Kernel(call, accepts_out=True)
    if len(op.operands) == 1:
        return _unary_kernel(op, call)
    if all(type.dtype.itemsize == 1 for type in types):
        call = _pair_lookup(call, types[0].dtype, types[1].dtype, types[2].dtype)
    return Kernel(call, accepts_out=True, pointwise=True)


def _unary_kernel(op: Op, call: Call) -> Kernel:
    source, target = op.operands[0].tensor, op.result.tensor
    if not (_is_uniform(source) and _is_uniform(target)):
        return Kernel(call, accepts_out=True)
    if source.dtype.itemsize == 1:
        call = _lookup(call, source.dtype, target.dtype)
    return Kernel(call, accepts_out=True, pointwise=True)


def _is_uniform(type: t.TensorType) -> bool:
    """Return whether all elements have the same quantization."""
    return not type.is_quantized or not _quantized(type).is_per_axis


def _lookup(function: Call, source: DType, target: DType) -> Call:
    with np.errstate(all="ignore"):
        table = np.asarray(function(all_values(source))).view(bits_dtype(target))
    return lambda x, out=None: look_up(table, x.view(np.uint8), target, out)


def _pair_lookup(function: Call, first: DType, second: DType, target: DType) -> Call:
    with np.errstate(all="ignore"):
        pairs = np.broadcast_arrays(all_values(first)[:, None], all_values(second)[None, :])
        table = np.asarray(function(*pairs)).view(np.uint8).ravel()
    return lambda x, y, out=None: look_up(table, pair_index(x, y), target, out)


# --- conversions -----------------------------------------------------------------------------------------------------


def dequantizer(type: t.TensorType, compute: t.ElementType | None = None) -> Call:
    """Return `call(storage, out=None)`: (storage - zero point) * scale in the expressed type, or in `compute`."""
    quantized = _quantized(type)
    dtype = (compute or quantized.expressed).dtype
    scales, zero_points = _parameters(type, quantized.expressed.dtype)
    scales = scales.astype(dtype)
    wide = np.int32 if quantized.storage.bits <= 16 else np.int64

    def call(x: Array, out: Array | None = None) -> Array:
        centered = np.subtract(x.astype(wide), zero_points, dtype=wide)
        return keep(np.multiply(centered.astype(dtype), scales, dtype=dtype), out)

    return call


def quantizer(type: t.TensorType, compute: t.ElementType | None = None) -> Call:
    """Return `call(floats, out=None)`: round_nearest_even(floats / scale) + zero point, clamped, in the storage type.

    Division and rounding are in the expressed type or `compute`; NaN is stored as 0. The sum is clamped as an exact
    integer: f32 represents 16-bit storage plus zero point.
    """
    quantized = _quantized(type)
    dtype = (compute or quantized.expressed).dtype
    scales, zero_points = _parameters(type, quantized.expressed.dtype)
    scales = scales.astype(dtype)
    wide = np.result_type(np.float32, *([np.float64] if quantized.storage.bits > 16 or dtype == np.float64 else []))
    lowest, highest = ((bound - zero_points).astype(wide) for bound in (quantized.storage_min, quantized.storage_max))
    offsets, target = zero_points.astype(wide), quantized.storage.dtype

    def call(x: Array, out: Array | None = None) -> Array:
        whole = np.asarray(np.rint(np.divide(x, scales)).astype(wide, copy=False))
        known = np.where(np.isnan(whole), -offsets, whole)
        stored = np.minimum(np.maximum(known, lowest), highest) + offsets
        return write(stored.astype(np.int64), target, out)

    return call


def _parameters(type: t.TensorType, expressed: DType) -> tuple[Array, Array]:
    """Return (scales in the expressed type, zero points) in shapes that broadcast against the tensor."""
    quantized = _quantized(type)
    scales = np.array(quantized.scales, np.float64).astype(expressed)
    zero_points = np.array(quantized.zero_points, np.int64)
    if quantized.quantization_dimension is None:
        return scales.reshape(()), zero_points.reshape(())
    shape = [1] * type.rank
    shape[quantized.quantization_dimension] = -1
    return scales.reshape(shape), zero_points.reshape(shape)
