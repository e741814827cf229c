"""Constraints on types themselves. Source: StableHLO specification, "Types"; bounded dynamism.

`type_fault` is for types anywhere, checked by the parser; `value_fault` is for types of values, checked by the verifier
for operands and results.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from spmd.support.arrays import smallest_positive
from spmd.support.editions import edition_note
from spmd.types import (
    BufferType,
    ElementType,
    FunctionType,
    FutureType,
    OpaqueType,
    QuantizedType,
    TensorType,
    TokenType,
    TupleType,
    Type,
    UnrankedTensorType,
    storage_range,
)

#: Builtin types that cannot be element types.
_NO_ELEMENTS = (FunctionType, TensorType, TupleType, UnrankedTensorType)
_NONE = OpaqueType("none")


@lru_cache(maxsize=4096)
def type_fault(type: Type) -> tuple[str, str] | None:
    """Return (constraint label, fault) of a type that violates constraints of its kind, else None."""
    if isinstance(type, QuantizedType):
        return _of_both_editions(_quantized_fault(type))
    if isinstance(type, (TensorType, UnrankedTensorType, BufferType)):
        fault = element_fault(type.element_type, in_buffer=isinstance(type, BufferType))
        if fault is not None:
            return "", fault
    if isinstance(type, TensorType):
        return type_fault(type.element_type) or _bounds_fault(type)
    if isinstance(type, (TupleType, FutureType)):
        if isinstance(type, FutureType):
            for inner in type.types:
                if not isinstance(inner, TensorType):
                    return "", f"a future must hold ranked tensors, got {inner}"
        return next(filter(None, map(type_fault, type.types)), None)
    return None


def element_fault(element: Type, *, in_buffer: bool) -> str | None:
    """Return the fault of the element type of a memref (`in_buffer`) or tensor; other dialects' types are allowed."""
    holder, shut_out = ("memref", (TokenType, FutureType)) if in_buffer else ("tensor", (BufferType,))
    if isinstance(element, (*_NO_ELEMENTS, *shut_out)) or element is _NONE:
        return f"a {holder} cannot have elements of type {element}"
    return None


def array_fault(type: Type) -> str | None:
    """Return the fault of a type whose elements no array can hold, else None."""
    if isinstance(type, (TupleType, FutureType)):
        return next(filter(None, map(array_fault, type.types)), None)
    if not isinstance(type, (TensorType, UnrankedTensorType, BufferType)):
        return None
    element = type.element_type
    held = element.storage if isinstance(element, QuantizedType) else element
    if isinstance(held, ElementType) and held.numpy is not None:
        return None
    return f"no array can hold elements of type {element}"


def _of_both_editions(fault: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return the fault of a quantized type with the label of the earlier edition appended."""
    return None if fault is None else (fault[0], fault[1] + edition_note("!quant.uniform", fault[0]))


def _quantized_fault(type: QuantizedType) -> tuple[str, str] | None:
    smallest, largest = storage_range(type.storage)
    if type.storage.bits > type.expressed.bits:  # equal widths occur in accumulators of quantized programs
        return "C1", _storage_width(type)
    if not smallest <= type.storage_min < type.storage_max <= largest:
        text = f"{type.storage_min} and {type.storage_max} for {type.storage}"
        return "C3", f"min_value(storage_type) <= storage_min < storage_max <= max_value(storage_type), got {text}"
    for scale in type.scales:
        if not math.isfinite(scale):
            return "C6", f"is_finite(scales...), got {scale}"
        if scale <= 0:
            return "C5", f"0 < scales, got {scale}"
        with np.errstate(over="ignore"):
            rounded = float(np.float64(scale).astype(type.expressed.dtype))  # as represented in the expressed type
        if rounded == math.inf or scale < smallest_positive(type.expressed.dtype):
            return "C4", f"type(scales...) = expressed_type, got {scale}, which is out of the range of {type.expressed}"
    if len(type.scales) != len(type.zero_points):
        return "C9", f"size(scales) = size(zero_points), got {len(type.scales)} and {len(type.zero_points)}"
    if type.quantization_dimension is None:
        if not type.block_sizes and len(type.scales) != 1:
            return "C10", f"size(scales) = 1 without a quantization_dimension, got {len(type.scales)}"
    elif type.quantization_dimension < 0:
        return "C11", f"0 <= quantization_dimension, got {type.quantization_dimension}"
    return None


@lru_cache(maxsize=4096)
def type_advice(type: Type) -> tuple[str, str] | None:
    """Return (constraint label, fault) of a valid type that the specification's text forbids, else None."""
    if isinstance(type, QuantizedType) and type.storage.bits == type.expressed.bits:
        return "C1", _storage_width(type)
    if isinstance(type, (TensorType, UnrankedTensorType, BufferType)):
        return type_advice(type.element_type)
    inner: tuple[Type, ...] = type.types if isinstance(type, (TupleType, FutureType)) else ()
    return next(filter(None, map(type_advice, inner)), None)


def _storage_width(type: QuantizedType) -> str:
    return f"num_bits(storage_type) < num_bits(expressed_type), got {type.storage} and {type.expressed}"


@lru_cache(maxsize=4096)
def value_fault(type: Type) -> tuple[str, str] | None:
    """Return (constraint label, fault) of a type that no value may have, else None."""
    if isinstance(type, (TupleType, FutureType)):
        return next(filter(None, map(value_fault, type.types)), None)
    fault = type_fault(type)
    if fault is not None or not isinstance(type, (TensorType, UnrankedTensorType, BufferType)):
        return fault
    element = type.element_type
    if not isinstance(element, QuantizedType):
        return None
    for zero_point in element.zero_points:
        if not element.storage_min <= zero_point <= element.storage_max:
            low, high = element.storage_min, element.storage_max
            text = f"storage_min <= zero_points <= storage_max, got {zero_point} for {low} to {high}"
            return _of_both_editions(("C7", text))
    return _quantized_dimension_fault(type, element) if isinstance(type, TensorType) else None


def _quantized_dimension_fault(type: TensorType, element: QuantizedType) -> tuple[str, str] | None:
    dimension = element.quantization_dimension
    if dimension is None:
        return None
    if dimension >= type.rank:
        return "C12", f"quantization_dimension < rank(self), got {dimension} and {type.rank} in {type}"
    if type.shape[dimension] not in (None, len(element.scales)):
        sizes = f"{type.shape[dimension]} and {len(element.scales)}"
        return "C13", f"dim(self, quantization_dimension) = size(scales), got {sizes} in {type}"
    return None


def _bounds_fault(type: TensorType) -> tuple[str, str] | None:
    if type.bounds is None:
        return None
    if len(type.bounds) != type.rank:
        return "", f"there must be a bound for each dimension of {type}, got {len(type.bounds)} for rank {type.rank}"
    for dimension, (size, bound) in enumerate(zip(type.shape, type.bounds, strict=True)):
        if size is not None and bound is not None:
            return "", f"only dynamic dimensions may be bounded, got bound {bound} on dimension {dimension} of {type}"
    return None
