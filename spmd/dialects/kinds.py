"""Attribute kinds: conversion of attributes to plain Python values, and back.

An `AttributeKind` decodes an MLIR attribute to the Python value that the rest of spmd uses, and encodes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from spmd import types as t
from spmd.ir.attributes import (
    FALSE,
    TRUE,
    UNIT,
    ArrayAttr,
    Attribute,
    BoolAttr,
    DenseArrayAttr,
    DenseAttr,
    DenseResourceAttr,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    TypeAttr,
    UnitAttr,
    is_splat,
)
from spmd.support.arrays import Array, bits_dtype

T = TypeVar("T")


@dataclass(frozen=True)
class AttributeKind(Generic[T]):
    """The kind of a declared attribute.

    `decode` returns the value of an MLIR attribute, or raises ValueError that names what was expected; `encode` is its
    inverse. `text` names the kind in errors. In assembly forms, where the declaration determines the type, a number of
    `type` is printed without it, and one of `cases` without the enum's name.
    """

    text: str
    decode: Callable[[Attribute], T]
    encode: Callable[[T], Attribute]
    type: t.ElementType | None = None
    cases: tuple[str, ...] = ()


def _expected(text: str, attribute: Attribute) -> ValueError:
    return ValueError(f"expected {text}, got {type(attribute).__name__.removesuffix('Attr').lower()} attribute")


def _integer_kind(element: t.ElementType) -> AttributeKind[int]:
    text = f"{element.bits}-bit integer"

    def decode(attribute: Attribute) -> int:
        if isinstance(attribute, IntegerAttr) and attribute.type is element:
            return attribute.value
        raise _expected(text, attribute)

    return AttributeKind(text, decode, lambda value: IntegerAttr(value, element), element)


I64 = _integer_kind(t.I64)
I32 = _integer_kind(t.I32)
UI32 = _integer_kind(t.UI32)
UI64 = _integer_kind(t.UI64)
INDEX = _integer_kind(t.INDEX)


def _decode_bool(attribute: Attribute) -> bool:
    if isinstance(attribute, BoolAttr):
        return attribute.value
    raise _expected("a boolean", attribute)


BOOL: AttributeKind[bool] = AttributeKind("boolean", _decode_bool, lambda value: TRUE if value else FALSE)


def _decode_unit(attribute: Attribute) -> bool:
    if isinstance(attribute, UnitAttr) or attribute == TRUE:
        return True
    raise _expected("a unit attribute", attribute)


UNIT_FLAG: AttributeKind[bool] = AttributeKind("unit", _decode_unit, lambda value: UNIT)

#: A flag, a unit attribute in frontends and a constant of i1 in the specification.
FLAG: AttributeKind[bool] = AttributeKind(
    "unit or boolean",
    lambda attribute: attribute.value if isinstance(attribute, BoolAttr) else _decode_unit(attribute),
    lambda value: UNIT if value else FALSE,
)


def _decode_string(attribute: Attribute) -> str:
    if isinstance(attribute, StringAttr):
        return attribute.value
    raise _expected("a string", attribute)


STRING: AttributeKind[str] = AttributeKind(
    "string", _decode_string, lambda value: StringAttr(value.encode("utf-8", "surrogateescape"))
)


def _float_kind(element: t.ElementType) -> AttributeKind[float]:
    text = f"{element.bits}-bit float"
    bits = bits_dtype(element.dtype)

    def decode(attribute: Attribute) -> float:
        if isinstance(attribute, FloatAttr) and attribute.type is element:
            return attribute.value
        raise _expected(text, attribute)

    def encode(value: float) -> Attribute:
        return FloatAttr(int(np.asarray(value, element.dtype).view(bits)), element)

    return AttributeKind(text, decode, encode, element)


F32 = _float_kind(t.F32)
F64 = _float_kind(t.F64)


def _decode_symbol(attribute: Attribute) -> str:
    if isinstance(attribute, SymbolRefAttr) and len(attribute.path) == 1:
        return attribute.path[0]
    raise _expected("a symbol such as @name", attribute)


SYMBOL: AttributeKind[str] = AttributeKind("symbol", _decode_symbol, lambda value: SymbolRefAttr((value,)))


def _decode_type(attribute: Attribute) -> t.Type:
    if isinstance(attribute, TypeAttr):
        return attribute.type
    raise _expected("a type", attribute)


TYPE: AttributeKind[t.Type] = AttributeKind("type", _decode_type, TypeAttr)


#: The largest splat, in elements, that an attribute may be. Window sizes have one entry per dimension and process
#: groups list distinct processes: only constant tensors are larger.
_LARGEST_SPLAT = 1 << 16


class _TooLargeError(ValueError):
    """The attribute has the right kind but is too large, so that no other kind should be tried."""


def _written_out(attribute: DenseAttr) -> Array:
    """Return the array; raises _TooLargeError for a splat too large for constraints to examine."""
    array = attribute.array
    if array.size > _LARGEST_SPLAT and is_splat(array):
        raise _TooLargeError(f"{attribute.type} is too large: a splat may have at most {_LARGEST_SPLAT} elements here")
    return array


def _array_kind(element: t.ElementType, text: str) -> AttributeKind[tuple[Any, ...]]:
    """Return the kind of `array<element: ...>`, also in the old spelling `dense<...> : tensor<Nxelement>`."""

    def decode(attribute: Attribute) -> tuple[Any, ...]:
        if isinstance(attribute, DenseArrayAttr) and attribute.element_type is element:
            return attribute.values
        if isinstance(attribute, DenseAttr) and attribute.array.ndim == 1 and attribute.type.element_type is element:
            return tuple(_written_out(attribute).tolist())
        raise _expected(f"array<{element}: ...>", attribute)

    return AttributeKind(text, decode, lambda value: DenseArrayAttr(element, tuple(value)), element)


I64_ARRAY: AttributeKind[tuple[int, ...]] = _array_kind(t.I64, "array of 64-bit integers")
I32_ARRAY: AttributeKind[tuple[int, ...]] = _array_kind(t.I32, "array of 32-bit integers")
BOOL_ARRAY: AttributeKind[tuple[bool, ...]] = _array_kind(t.I1, "array of booleans")


def _dense_kind(element: t.ElementType, text: str) -> AttributeKind[Array]:
    """Return the kind of `dense<...> : tensor<...xelement>` of any rank; the value is an int64 array."""

    def decode(attribute: Attribute) -> Array:
        if isinstance(attribute, DenseAttr) and attribute.type.element_type is element:
            return _written_out(attribute)
        raise _expected(f"dense<...> : tensor<...x{element}>", attribute)

    def encode(value: Array) -> Attribute:
        return DenseAttr(value, t.TensorType(tuple(value.shape), element))

    return AttributeKind(text, decode, encode, element)


#: Padding, replica_groups, source_target_pairs.
I64_DENSE = _dense_kind(t.I64, "tensor of 64-bit integers")
#: Layouts and shapes.
INDEX_DENSE = _dense_kind(t.INDEX, "tensor of indices")


def _decode_elements(attribute: Attribute) -> Attribute:
    if isinstance(attribute, (DenseAttr, DenseResourceAttr)):
        return attribute
    raise _expected("dense<...> : tensor<...>", attribute)


#: Any constant tensor; the value is a DenseAttr, which has the type and the array.
ELEMENTS: AttributeKind[Attribute] = AttributeKind("constant tensor", _decode_elements, lambda value: value)


def _decode_typed(attribute: Attribute) -> Attribute:
    if isinstance(attribute, (BoolAttr, IntegerAttr, FloatAttr, DenseAttr, DenseResourceAttr)):
        return attribute
    raise _expected("a number or a constant tensor", attribute)


#: Any typed constant: a number or a tensor.
TYPED: AttributeKind[Attribute] = AttributeKind("typed constant", _decode_typed, lambda value: value)
ANY: AttributeKind[Attribute] = AttributeKind("attribute", lambda attribute: attribute, lambda value: value)


def _decode_dictionary(attribute: Attribute) -> DictAttr:
    if isinstance(attribute, DictAttr):
        return attribute
    raise _expected("a dictionary", attribute)


DICTIONARY: AttributeKind[DictAttr] = AttributeKind("dictionary", _decode_dictionary, lambda value: value)


#: The cases of each enum by (dialect, mnemonic).
ENUMS: dict[tuple[str, str], tuple[str, ...]] = {}


def enum(dialect: str, mnemonic: str, *cases: str) -> AttributeKind[str]:
    """Return the kind of an enum; values are case names. Reads `#d<m CASE>`, `#d.m<CASE>`, and the old `"CASE"`."""
    text = f"#{dialect}<{mnemonic} {' | '.join(cases)}>"
    ENUMS[dialect, mnemonic] = cases

    def decode(attribute: Attribute) -> str:
        named = isinstance(attribute, EnumAttr) and (attribute.dialect, attribute.mnemonic) == (dialect, mnemonic)
        if isinstance(attribute, EnumAttr | StringAttr) and (named or isinstance(attribute, StringAttr)):
            value = attribute.value
        else:
            raise _expected(text, attribute)
        if value not in cases:
            raise ValueError(f"expected one of {', '.join(cases)}, got {value}")
        return value

    return AttributeKind(text, decode, lambda value: EnumAttr(dialect, mnemonic, value), cases=cases)


def integer_enum(element: t.ElementType, *cases: str) -> AttributeKind[str]:
    """Return the kind of an enum that is stored as an integer, the index of the case; values are case names."""
    text = f"one of {', '.join(cases)}"

    def decode(attribute: Attribute) -> str:
        if isinstance(attribute, IntegerAttr) and attribute.type is element and 0 <= attribute.value < len(cases):
            return cases[attribute.value]
        raise _expected(text, attribute)

    return AttributeKind(text, decode, lambda value: IntegerAttr(cases.index(value), element), cases=cases)


def either(*kinds: AttributeKind[Any]) -> AttributeKind[Any]:
    """Return a kind that tries `kinds` in order; their values must be distinguishable."""
    text = " or ".join(kind.text for kind in kinds)

    def decode(attribute: Attribute) -> Any:
        for kind in kinds:
            try:
                return kind.decode(attribute)
            except _TooLargeError:
                raise
            except ValueError:
                continue
        raise _expected(text, attribute)

    def encode(value: object) -> Attribute:
        for kind in kinds:
            try:
                encoded = kind.encode(value)
            except (TypeError, ValueError, AttributeError):
                continue
            if isinstance(encoded, Attribute):
                return encoded
        raise TypeError(f"{value!r} cannot be an attribute of {text}")

    return AttributeKind(text, decode, encode, kinds[0].type)


def struct(cls: type[T]) -> AttributeKind[T]:
    """Return the kind of a dataclass attribute, which is its own value (spmd/dialects/structs.py)."""
    text = str(getattr(cls, "SPELLING", cls.__name__))

    def decode(attribute: Attribute) -> T:
        if isinstance(attribute, cls):
            return attribute
        raise _expected(text, attribute)

    return AttributeKind(text, decode, lambda value: value)  # type: ignore[arg-type,return-value]


def array_of(kind: AttributeKind[T]) -> AttributeKind[tuple[T, ...]]:
    """Return the kind of an array `[...]` with elements of one kind; the value is a tuple."""

    def decode(attribute: Attribute) -> tuple[T, ...]:
        if not isinstance(attribute, ArrayAttr):
            raise _expected(f"[...] of {kind.text}", attribute)
        return tuple(kind.decode(element) for element in attribute.elements)

    return AttributeKind(
        f"array of {kind.text}", decode, lambda value: ArrayAttr(tuple(kind.encode(element) for element in value))
    )
