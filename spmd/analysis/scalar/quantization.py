"""Scalar rules of quantized types: quantize, dequantize, and elementwise ops on quantized elements.

The register form of a quantized element is that of its storage type. Ops compute as the specification's
`dequantize_op_quantize` (and `hybrid_dequantize_then_op`, `dequantize_compare`, ...): the op on the expressed types
between conversions. This is limited to uniform scales: per-axis and per-block scales depend on the element's index and
have no scalar form. Source: StableHLO specification, "Quantized tensors"
and "Quantization computations".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd import types as t
from spmd.analysis.scalar.build import extend, is_nan, like, maximum, minimum, resize, rint, select, to_float
from spmd.analysis.scalar.conversion import converted
from spmd.analysis.scalar.elements import Element, element_constant, register_types, round_to
from spmd.analysis.scalar.expression import F32, F64, I32, I64
from spmd.analysis.scalar.rules import RULES, rule
from spmd.ir import Op, Value
from spmd.types import ElementType, QuantizedType, Type


def on_floats(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Return the results of an op with quantized operands or results, computed in the expressed types."""
    if op.name in _CONVERSIONS:
        return RULES[op.name](op, operands)
    quantized = [_quantized(value) for value in (*op.operands, *op.results)]
    if any(each is not None and not is_uniform(each) for each in quantized):
        return None
    if op.name == "stablehlo.select" and op.operands[1].type is op.operands[2].type is op.result.type:
        return RULES[op.name](op, operands)
    floats = [_expressed(value) for value in op.operands]
    real_operands = [
        element if type is None else dequantized(element, type)
        for element, type in zip(operands, quantized, strict=False)
    ]
    inner = op.clone([Value(type) for type in floats], [_expressed(value) for value in op.results])
    results = RULES[op.name](inner, real_operands)
    if results is None:
        return None
    return [
        element if type is None else quantized_to(element, type)
        for element, type in zip(results, quantized[len(operands) :], strict=True)
    ]


def _quantized(value: Value) -> QuantizedType | None:
    element = value.tensor.element_type
    return element if isinstance(element, QuantizedType) else None


def _expressed(value: Value) -> Type:
    quantized = _quantized(value)
    return value.type if quantized is None else value.tensor.with_element_type(quantized.expressed)


def is_uniform(quantized: QuantizedType) -> bool:
    """Return whether all elements have the same scale and zero point."""
    return not quantized.is_per_axis and not quantized.block_sizes


def dequantized(element: Element, quantized: QuantizedType) -> Element:
    """Return (storage - zero point) * scale in the expressed type."""
    storage, expressed = quantized.storage, quantized.expressed
    wide = I32 if storage.bits <= 16 else I64
    value = resize(element[0], wide, signed=storage.is_signed)
    centered = value - quantized.zero_points[0]
    register = register_types(expressed)[0]
    number = round_to((to_float(centered, register, signed=True),), expressed)[0]
    return round_to((number * _number(quantized.scales[0], expressed)[0],), expressed)


def quantized_to(element: Element, quantized: QuantizedType) -> Element:
    """Return round_nearest_even(float / scale) + zero point, clamped, in the storage type; 0 for NaN.

    Quotient and rounding are in the expressed type. The sum is clamped before it is formed, so no bits are lost: the
    register of the quotient has room for 16-bit storage and its zero point, an f64 for 32 bits.
    """
    storage, expressed = quantized.storage, quantized.expressed
    scaled = round_to((element[0] / _number(quantized.scales[0], expressed)[0],), expressed)[0]
    whole = rint(scaled) if storage.bits <= 16 else extend(rint(scaled))
    zero_point = quantized.zero_points[0]
    lowest, highest = (like(bound - zero_point, whole) for bound in (quantized.storage_min, quantized.storage_max))
    known = select(is_nan(whole), -zero_point, whole)
    limited = minimum(maximum(known, lowest), highest)
    return converted((limited + zero_point,), _FLOATS[whole.type], storage)


#: The element type of a float register.
_FLOATS = {F32: t.F32, F64: t.F64}


def _number(value: float, expressed: ElementType) -> Element:
    return element_constant(np.float64(value), expressed)


@rule("stablehlo.uniform_dequantize")
def uniform_dequantize(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    source = _quantized(op.operands[0])
    return None if source is None or not is_uniform(source) else [dequantized(operands[0], source)]


@rule("stablehlo.uniform_quantize")
def uniform_quantize(op: Op, operands: Sequence[Element]) -> list[Element] | None:
    """Quantize a float, or requantize another quantized type through its expressed type."""
    source, target = _quantized(op.operands[0]), _quantized(op.result)
    if target is None or not is_uniform(target) or (source is not None and not is_uniform(source)):
        return None
    element = operands[0] if source is None else dequantized(operands[0], source)
    return [quantized_to(element, target)]


_CONVERSIONS = ("stablehlo.uniform_dequantize", "stablehlo.uniform_quantize")
