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
from spmd.arrays import Array
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


def tensor_of_kinds(*kinds: str, rank: int | None = None, static: bool = False, unranked: bool = False) -> TypeSet:
    """Tensors whose element type's kind is one of `kinds`.

    Kinds: i1, signed, unsigned, float, complex, quantized (per tensor), quantized_axis (per axis), index. `static`
    asks for a static shape; `unranked` admits `tensor<*x...>` too.
    """

    def admits(type: t.Type) -> bool:
        if isinstance(type, t.UnrankedTensorType):
            return unranked and element_kind(type.element_type) in allowed
        if not isinstance(type, t.TensorType) or (rank is not None and type.rank != rank):
            return False
        return element_kind(type.element_type) in allowed and not (static and not type.is_static)

    allowed = frozenset(kinds)
    text = ("statically shaped " if static else "") + ("" if rank is None else f"{rank}-dimensional ")
    return TypeSet(f"{text}tensor of {_kinds_text(kinds)}", admits)


def tensor_of_types(*elements: t.ElementType, rank: int | None = None) -> TypeSet:
    """Ranked tensors of exactly these element types."""

    def admits(type: t.Type) -> bool:
        return isinstance(type, t.TensorType) and type.element_type in elements and rank in (None, type.rank)

    shape = "" if rank is None else f"{rank}-dimensional "
    return TypeSet(f"{shape}tensor of {' or '.join(map(str, elements))}", admits)


def element_kind(element: t.Type) -> str:
    """The kind of a tensor's element type; `other` for one that no StableHLO tensor has."""
    if isinstance(element, t.QuantizedType):
        if element.block_sizes or not element.storage.is_integer:
            return "other"
        return "quantized_axis" if element.is_per_axis else "quantized"
    if isinstance(element, t.ElementType) and element.numpy is not None:
        return element.kind
    return "other"


_NUMERIC = ("i1", "signed", "unsigned", "float", "complex")
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
    names = [_KIND_TEXT[kind] for kind in kinds]
    text = ", ".join(names[:-1]) + (" or " if len(names) > 1 else "") + names[-1]
    return text + (" type" if len(names) == 1 else " types")


def _has_single_bound(type: t.TensorType) -> bool:
    return type.shape.count(None) == 1 and type.bounds is not None and type.bounds[type.shape.index(None)] is not None


ANY_TYPE = TypeSet("any type", lambda type: True)
#: What the specification's Inputs call "tensor or per-tensor quantized tensor".
TENSOR = tensor_of_kinds(*_NUMERIC, "quantized")
#: "tensor or quantized tensor": per-axis quantized ones too.
TENSOR_OR_PER_AXIS = tensor_of_kinds(*_NUMERIC, "quantized", "quantized_axis")
NON_QUANTIZED = tensor_of_kinds(*_NUMERIC)
STATIC_TENSOR = tensor_of_kinds(*_NUMERIC, "quantized", "quantized_axis", static=True)
ANY_TENSOR = tensor_of_kinds(*_NUMERIC, "quantized", "quantized_axis", unranked=True)
#: A static shape, or one whose only dynamic dimension is bounded.
STATIC_OR_BOUNDED = TypeSet(
    "statically shaped or single bounded dimension tensor",
    lambda type: TENSOR_OR_PER_AXIS.admits(type) and (type.is_static or _has_single_bound(type)),  # type: ignore[attr-defined,arg-type]
)
PREDICATE = tensor_of_kinds("i1")
INTEGER = tensor_of_kinds("signed", "unsigned")
PREDICATE_OR_INTEGER = tensor_of_kinds("i1", "signed", "unsigned")
INTEGER_SCALAR = tensor_of_kinds("signed", "unsigned", rank=0)
FLOAT = tensor_of_kinds("float")
FLOAT_OR_COMPLEX = tensor_of_kinds("float", "complex")
FLOAT_OR_QUANTIZED = tensor_of_kinds("float", "quantized")
FLOAT_COMPLEX_OR_QUANTIZED = tensor_of_kinds("float", "complex", "quantized")
SCALAR = tensor_of_kinds(*_NUMERIC, "quantized", rank=0)
#: A 1-dimensional tensor that names dimensions or sizes.
DIMENSIONS = tensor_of_kinds("index", "signed", "unsigned", rank=1)
STATIC_DIMENSIONS = tensor_of_kinds("index", "signed", "unsigned", rank=1, static=True)
TOKEN = TypeSet("token", lambda type: isinstance(type, t.TokenType))
FUTURE = TypeSet("future", lambda type: isinstance(type, t.FutureType))
BUFFER = TypeSet(
    "buffer",
    lambda type: isinstance(type, t.BufferType) and element_kind(type.element_type) in (*_NUMERIC, "quantized"),
)


def tuple_of(leaves: TypeSet) -> TypeSet:
    """Tuples, nested to any depth, of `leaves`."""

    def admits(type: t.Type) -> bool:
        if not isinstance(type, t.TupleType):
            return False
        return all(leaves.admits(inner) or admits(inner) for inner in type.types)

    return TypeSet(f"tuple of {leaves.text}", admits)


TENSOR_OR_TOKEN = TENSOR | TOKEN
VALUE = TENSOR_OR_PER_AXIS | TOKEN
VALUE_OR_BUFFER = VALUE | BUFFER
TUPLE = tuple_of(VALUE_OR_BUFFER)
VALUE_OR_TUPLE = VALUE | TUPLE
VALUE_BUFFER_OR_TUPLE = VALUE_OR_BUFFER | TUPLE
CUSTOM_CALL_VALUE = ANY_TENSOR | BUFFER | TOKEN | tuple_of(ANY_TENSOR | BUFFER | TOKEN) | FUTURE


# --- attributes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttributeKind(Generic[T]):
    """What a declared attribute holds.

    `decode` takes MLIR's attribute and returns the value, or raises ValueError saying what was expected; `encode` is
    its inverse. `text` names the kind in errors. In an assembly form, where the declaration tells the rest, a number
    of `type` stands without its type, and one of `cases` without the enum's name.
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

#: A flag that frontends write as a unit, and the specification as a constant of i1.
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
    bits = np.dtype(f"u{element.bits // 8}")

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


def _array_kind(element: t.ElementType, text: str) -> AttributeKind[tuple[Any, ...]]:
    """`array<element: ...>`, also in the old spelling `dense<...> : tensor<Nxelement>`."""

    def decode(attribute: Attribute) -> tuple[Any, ...]:
        if isinstance(attribute, DenseArrayAttr) and attribute.element_type is element:
            return attribute.values
        if isinstance(attribute, DenseAttr) and attribute.array.ndim == 1 and attribute.type.element_type is element:
            return tuple(attribute.array.tolist())
        raise _expected(f"array<{element}: ...>", attribute)

    return AttributeKind(text, decode, lambda value: DenseArrayAttr(element, tuple(value)), element)


I64_ARRAY: AttributeKind[tuple[int, ...]] = _array_kind(t.I64, "array of 64-bit integers")
I32_ARRAY: AttributeKind[tuple[int, ...]] = _array_kind(t.I32, "array of 32-bit integers")
BOOL_ARRAY: AttributeKind[tuple[bool, ...]] = _array_kind(t.I1, "array of booleans")


def _dense_kind(element: t.ElementType, text: str) -> AttributeKind[Array]:
    """`dense<...> : tensor<...xelement>` of any rank: an int64 array."""

    def decode(attribute: Attribute) -> Array:
        if isinstance(attribute, DenseAttr) and attribute.type.element_type is element:
            return attribute.array
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


#: Any constant tensor; the value stays a DenseAttr, which carries the type beside the array.
ELEMENTS: AttributeKind[Attribute] = AttributeKind("constant tensor", _decode_elements, lambda value: value)


def _decode_typed(attribute: Attribute) -> Attribute:
    if isinstance(attribute, (BoolAttr, IntegerAttr, FloatAttr, DenseAttr, DenseResourceAttr)):
        return attribute
    raise _expected("a number or a constant tensor", attribute)


#: Any constant that has a type: a number or a tensor.
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
    """An enum; its value is the case's name. Reads `#d<m CASE>`, `#d.m<CASE>`, and the old spelling `"CASE"`."""
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
    """An enum that is stored as an integer, the index of the case; its value is the case's name."""
    text = f"one of {', '.join(cases)}"

    def decode(attribute: Attribute) -> str:
        if isinstance(attribute, IntegerAttr) and attribute.type is element and 0 <= attribute.value < len(cases):
            return cases[attribute.value]
        raise _expected(text, attribute)

    return AttributeKind(text, decode, lambda value: IntegerAttr(cases.index(value), element), cases=cases)


def either(*kinds: AttributeKind[Any]) -> AttributeKind[Any]:
    """The first of `kinds` that decodes the attribute; values of the kinds must not be confusable."""
    text = " or ".join(kind.text for kind in kinds)

    def decode(attribute: Attribute) -> Any:
        for kind in kinds:
            try:
                return kind.decode(attribute)
            except ValueError:
                continue
        raise _expected(text, attribute)

    def encode(value: Any) -> Attribute:
        for kind in kinds:
            try:
                encoded = kind.encode(value)
            except (TypeError, ValueError, AttributeError):
                continue
            if isinstance(encoded, Attribute):
                return encoded
        raise TypeError(f"no attribute of {text} holds {value!r}")

    return AttributeKind(text, decode, encode, kinds[0].type)


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
