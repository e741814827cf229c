"""Kinds: what an operand or result may be, and what an attribute holds.

A `TypeSet` restricts the type of an operand or result (the I and O columns of the specification). An `AttributeKind`
turns MLIR's attribute into the plain Python value that the rest of spmd works with, and back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from spmd import types as t
from spmd.attributes import (
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
)

T = TypeVar("T")


# --- types -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypeSet:
    """The types an operand or result may have. `text` names the set in errors."""

    text: str
    admits: Callable[[t.Type], bool]

    def __or__(self, other: TypeSet) -> TypeSet:
        return TypeSet(f"{self.text} or {other.text}", lambda type: self.admits(type) or other.admits(type))


def tensor_of_kinds(*kinds: str, rank: int | None = None, static: bool = False) -> TypeSet:
    """Ranked tensors whose element type's kind is one of `kinds` (all kinds when none is given).

    Kinds: i1, signed, unsigned, float, complex, quantized (per tensor), quantized_axis (per axis), index.
    """

    def admits(type: t.Type) -> bool:
        if not isinstance(type, t.TensorType) or (rank is not None and type.rank != rank):
            return False
        if static and not (type.is_static or type.bounds is not None):
            return False
        element = type.element_type
        if isinstance(element, t.QuantizedType):
            return ("quantized_axis" if element.is_per_axis or element.block_sizes else "quantized") in allowed
        return isinstance(element, t.ElementType) and element.kind in allowed and element.numpy is not None

    allowed = frozenset(kinds or _ALL_KINDS)
    text = ("statically shaped " if static else "") + ("" if rank is None else f"{rank}-dimensional ")
    return TypeSet(f"{text}tensor of {_kinds_text(kinds)}", admits)


_ALL_KINDS = ("i1", "signed", "unsigned", "float", "complex", "quantized", "quantized_axis")
_KIND_TEXT = {
    "i1": "boolean",
    "signed": "signed integer",
    "unsigned": "unsigned integer",
    "float": "floating-point",
    "complex": "complex",
    "quantized": "per-tensor quantized",
    "quantized_axis": "per-axis quantized",
    "index": "index",
}


def _kinds_text(kinds: tuple[str, ...]) -> str:
    if not kinds:
        return "any StableHLO element type"
    names = [_KIND_TEXT[kind] for kind in kinds]
    text = ", ".join(names[:-1]) + (" or " if len(names) > 1 else "") + names[-1]
    return text + (" type" if len(names) == 1 else " types")


ANY_TYPE = TypeSet("any type", lambda type: True)
TENSOR = tensor_of_kinds()
TOKEN = TypeSet("token", lambda type: isinstance(type, t.TokenType))
TUPLE = TypeSet("tuple", lambda type: isinstance(type, t.TupleType))
FUTURE = TypeSet("future", lambda type: isinstance(type, t.FutureType))
BUFFER = TypeSet("buffer", lambda type: isinstance(type, t.BufferType))


# --- attributes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttributeKind(Generic[T]):
    """What a declared attribute holds.

    `decode` takes MLIR's attribute and returns the value, or raises ValueError saying what was expected; `encode` is
    its inverse. `text` names the kind in errors.
    """

    text: str
    decode: Callable[[Attribute], T]
    encode: Callable[[T], Attribute]


def _expected(text: str, attribute: Attribute) -> ValueError:
    return ValueError(f"expected {text}, got {type(attribute).__name__.removesuffix('Attr').lower()} attribute")


def _integer_kind(element: t.ElementType) -> AttributeKind[int]:
    text = f"{element.bits}-bit integer"

    def decode(attribute: Attribute) -> int:
        if isinstance(attribute, IntegerAttr) and attribute.type is element:
            return attribute.value
        raise _expected(text, attribute)

    return AttributeKind(text, decode, lambda value: IntegerAttr(value, element))


I64 = _integer_kind(t.I64)
I32 = _integer_kind(t.I32)


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


def _decode_string(attribute: Attribute) -> str:
    if isinstance(attribute, StringAttr):
        return attribute.value
    raise _expected("a string", attribute)


STRING: AttributeKind[str] = AttributeKind(
    "string", _decode_string, lambda value: StringAttr(value.encode("utf-8", "surrogateescape"))
)


def _decode_f32(attribute: Attribute) -> float:
    if isinstance(attribute, FloatAttr) and attribute.type is t.F32:
        return attribute.value
    raise _expected("a 32-bit float", attribute)


F32: AttributeKind[float] = AttributeKind(
    "32-bit float", _decode_f32, lambda value: FloatAttr(int(np.float32(value).view(np.uint32)), t.F32)
)


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


def _decode_i64s(attribute: Attribute) -> tuple[int, ...]:
    if isinstance(attribute, DenseArrayAttr) and attribute.element_type is t.I64:
        return attribute.values
    if isinstance(attribute, DenseAttr) and attribute.array.ndim == 1 and attribute.type.element_type is t.I64:
        return tuple(attribute.array.tolist())
    raise _expected("array<i64: ...>", attribute)


#: `array<i64: ...>`, also in the old spelling `dense<...> : tensor<Nxi64>`.
I64_ARRAY: AttributeKind[tuple[int, ...]] = AttributeKind(
    "array of 64-bit integers", _decode_i64s, lambda value: DenseArrayAttr(t.I64, tuple(value))
)


def _decode_bools(attribute: Attribute) -> tuple[bool, ...]:
    if isinstance(attribute, DenseArrayAttr) and attribute.element_type is t.I1:
        return attribute.values
    if isinstance(attribute, DenseAttr) and attribute.array.ndim == 1 and attribute.type.element_type is t.I1:
        return tuple(attribute.array.tolist())
    raise _expected("array<i1: ...>", attribute)


BOOL_ARRAY: AttributeKind[tuple[bool, ...]] = AttributeKind(
    "array of booleans", _decode_bools, lambda value: DenseArrayAttr(t.I1, tuple(value))
)


def _decode_i64_dense(attribute: Attribute) -> np.ndarray[Any, Any]:
    if isinstance(attribute, DenseAttr) and attribute.type.element_type is t.I64:
        return attribute.array
    raise _expected("dense<...> : tensor<...xi64>", attribute)


#: `dense<...> : tensor<...xi64>` of any rank (padding, replica_groups, source_target_pairs): an int64 array.
I64_DENSE: AttributeKind[np.ndarray[Any, Any]] = AttributeKind(
    "tensor of 64-bit integers",
    _decode_i64_dense,
    lambda value: DenseAttr(value, t.TensorType(tuple(value.shape), t.I64)),
)


def _decode_elements(attribute: Attribute) -> Attribute:
    if isinstance(attribute, (DenseAttr, DenseResourceAttr)):
        return attribute
    raise _expected("dense<...> : tensor<...>", attribute)


#: Any constant tensor; the value stays a DenseAttr, which carries the type beside the array.
ELEMENTS: AttributeKind[Attribute] = AttributeKind("constant tensor", _decode_elements, lambda value: value)
ANY: AttributeKind[Attribute] = AttributeKind("attribute", lambda attribute: attribute, lambda value: value)


def _decode_dictionary(attribute: Attribute) -> DictAttr:
    if isinstance(attribute, DictAttr):
        return attribute
    raise _expected("a dictionary", attribute)


DICTIONARY: AttributeKind[DictAttr] = AttributeKind("dictionary", _decode_dictionary, lambda value: value)


def enum(dialect: str, mnemonic: str, *cases: str) -> AttributeKind[str]:
    """An enum; its value is the case's name. Reads `#d<m CASE>`, `#d.m<CASE>`, and the old spelling `"CASE"`."""
    text = f"#{dialect}<{mnemonic} {' | '.join(cases)}>"

    def decode(attribute: Attribute) -> str:
        if isinstance(attribute, EnumAttr) and (attribute.dialect, attribute.mnemonic) == (dialect, mnemonic):
            value = attribute.value
        elif isinstance(attribute, StringAttr):
            value = attribute.value
        else:
            raise _expected(text, attribute)
        if value not in cases:
            raise ValueError(f"expected one of {', '.join(cases)}, got {value}")
        return value

    return AttributeKind(text, decode, lambda value: EnumAttr(dialect, mnemonic, value))


def struct(cls: type[T]) -> AttributeKind[T]:
    """A dataclass attribute, which is its own value (spmd/dialects/structs.py)."""
    text = str(getattr(cls, "SPELLING", cls.__name__))

    def decode(attribute: Attribute) -> T:
        if isinstance(attribute, cls):
            return attribute
        raise _expected(text, attribute)

    return AttributeKind(text, decode, lambda value: value)  # type: ignore[arg-type,return-value]


def array_of(kind: AttributeKind[T]) -> AttributeKind[tuple[T, ...]]:
    """`[...]` of one kind; the value is a tuple."""

    def decode(attribute: Attribute) -> tuple[T, ...]:
        if not isinstance(attribute, ArrayAttr):
            raise _expected(f"[...] of {kind.text}", attribute)
        return tuple(kind.decode(element) for element in attribute.elements)

    return AttributeKind(
        f"array of {kind.text}", decode, lambda value: ArrayAttr(tuple(kind.encode(element) for element in value))
    )
