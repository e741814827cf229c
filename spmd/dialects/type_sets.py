"""Type sets: the types that operands and results may have (the I and O columns of the specification)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spmd import types as t


@dataclass(frozen=True)
class TypeSet:
    """A set of types for an operand or result. `text` names it in errors."""

    text: str
    admits: Callable[[t.Type], bool]

    def __or__(self, other: TypeSet) -> TypeSet:
        return TypeSet(f"{self.text} or {other.text}", lambda type: self.admits(type) or other.admits(type))


def tensor_of_kinds(*kinds: str, rank: int | None = None, static: bool = False, unranked: bool = False) -> TypeSet:
    """Return the set of tensors whose element type is of one of `kinds`.

    Kinds: i1, signed, unsigned, float, complex, quantized (per tensor), quantized_axis (per axis), index. `static`
    requires a static shape; `unranked` allows `tensor<*x...>`, too.
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


def tensor_of_types(*elements: t.ElementType) -> TypeSet:
    """Return the set of ranked tensors with one of these element types."""

    def admits(type: t.Type) -> bool:
        return isinstance(type, t.TensorType) and type.element_type in elements

    return TypeSet(f"tensor of {' or '.join(map(str, elements))}", admits)


def element_kind(element: t.Type) -> str:
    """Return the kind of a tensor's element type; `other` if no StableHLO tensor has it."""
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
#: "Tensor or per-tensor quantized tensor" in the specification's Inputs.
TENSOR = tensor_of_kinds(*_NUMERIC, "quantized")
#: "Tensor or quantized tensor", including per-axis quantized ones.
TENSOR_OR_PER_AXIS = tensor_of_kinds(*_NUMERIC, "quantized", "quantized_axis")
NON_QUANTIZED = tensor_of_kinds(*_NUMERIC)
STATIC_TENSOR = tensor_of_kinds(*_NUMERIC, "quantized", "quantized_axis", static=True)
ANY_TENSOR = tensor_of_kinds(*_NUMERIC, "quantized", "quantized_axis", unranked=True)
#: Static shapes, and shapes whose only dynamic dimension is bounded.
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
#: A 1-dimensional tensor of dimension numbers or sizes.
DIMENSIONS = tensor_of_kinds("index", "signed", "unsigned", rank=1)
STATIC_DIMENSIONS = tensor_of_kinds("index", "signed", "unsigned", rank=1, static=True)
TOKEN = TypeSet("token", lambda type: isinstance(type, t.TokenType))
FUTURE = TypeSet("future", lambda type: isinstance(type, t.FutureType))
BUFFER = TypeSet(
    "buffer",
    lambda type: isinstance(type, t.BufferType) and element_kind(type.element_type) in (*_NUMERIC, "quantized"),
)


def tuple_of(leaves: TypeSet) -> TypeSet:
    """Return the set of tuples of `leaves`, of any nesting."""

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
