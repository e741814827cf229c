"""Attributes as MLIR has them: the generic constants an op's dictionary holds.

An op's declared attributes are decoded into plain Python values (dialects/core.py); all others keep this form, so
that attributes of unknown dialects are printed as they were read. Source: specification, "Constants";
MLIR's builtin attributes for the spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spmd.support.arrays import Array
from spmd.types import ElementType, TensorType, Type


class Attribute:
    """A constant in an op's dictionary."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UnitAttr(Attribute):
    """A unit attribute: present or absent, without a value."""


@dataclass(frozen=True, slots=True)
class BoolAttr(Attribute):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class IntegerAttr(Attribute):
    """`value : type`, of an integer or index type."""

    value: int
    type: Type


@dataclass(frozen=True, slots=True)
class FloatAttr(Attribute):
    """`bits` is the exact bit pattern in `type` (an int), so NaN payloads survive; `value` the number."""

    bits: int
    type: ElementType

    @property
    def value(self) -> float:
        """The number that `bits` encodes in `type`."""
        width = self.type.dtype.itemsize
        raw = np.frombuffer(self.bits.to_bytes(width, "little"), dtype=self.type.dtype)
        return float(raw[0])


@dataclass(frozen=True, slots=True)
class StringAttr(Attribute):
    """Bytes, since MLIR strings need not be UTF-8; `type` when written `"..." : type`."""

    data: bytes
    type: Type | None = None

    @property
    def value(self) -> str:
        """The bytes decoded as UTF-8."""
        return self.data.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class SymbolRefAttr(Attribute):
    """`@root::@nested`."""

    path: tuple[str, ...]

    @property
    def root(self) -> str:
        """The first symbol of the path."""
        return self.path[0]


@dataclass(frozen=True, slots=True)
class TypeAttr(Attribute):
    """A type used as an attribute."""

    type: Type


@dataclass(frozen=True, slots=True)
class ArrayAttr(Attribute):
    """`[...]`: a list of attributes."""

    elements: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class DictAttr(Attribute):
    """`{name = value, ...}`: attributes by name."""

    entries: Mapping[str, Attribute]

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.entries)))


@dataclass(frozen=True, slots=True)
class DenseArrayAttr(Attribute):
    """`array<i64: 1, 2>`."""

    element_type: ElementType
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DenseAttr(Attribute):
    """`dense<...> : tensor<...>`: a read-only array of the tensor type's dtype and shape.

    A splat is a broadcast view of one element (all strides 0), by which the printer recognizes it.
    """

    array: Array
    type: TensorType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DenseAttr):
            return NotImplemented
        return self.type is other.type and same_bits(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.type, self.array.shape))


@dataclass(frozen=True, slots=True)
class DenseResourceAttr(Attribute):
    """`dense_resource<key> : tensor<...>`; the bytes come from the file's resource section."""

    key: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class EnumAttr(Attribute):
    """`#dialect<mnemonic VALUE>` (also written `#dialect.mnemonic<VALUE>`)."""

    dialect: str
    mnemonic: str
    value: str


@dataclass(frozen=True, slots=True)
class OpaqueAttr(Attribute):
    """An attribute of an unknown dialect, kept as its text."""

    text: str


@dataclass(frozen=True, slots=True)
class LocationAttr(Attribute):
    """`loc(...)` used as an attribute, kept as its text."""

    text: str


@dataclass(frozen=True, slots=True)
class AffineMapAttr(Attribute):
    """`affine_map<...>` or `affine_set<...>`, kept as its text."""

    text: str


def same_bits(left: Array, right: Array) -> bool:
    """Whether two arrays of one dtype and shape hold the same bytes (NaN payloads and signs of zeros count)."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if is_splat(left) and is_splat(right):
        return bool(left.flat[0].tobytes() == right.flat[0].tobytes())
    return np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes()


def aligned(array: Array) -> Array:
    """`array`, aligned for its dtype: a read-only copy when it is an unaligned view of a mapped file.

    A broadcast view of one element (a splat) stays one.
    """
    if array.flags.aligned:
        return array
    if is_splat(array):
        return np.broadcast_to(np.array(array[(0,) * array.ndim]), array.shape)
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def is_splat(array: Array) -> bool:
    """Whether all elements of `array` share one address: it has one element, or is a broadcast view of one."""
    return array.size == 1 or (array.size > 0 and not any(array.strides))


def all_the_same(array: Array) -> bool:
    """Whether `array` has elements, all of the same bits: MLIR keeps and prints such a constant as one element."""
    if is_splat(array) or not array.size:
        return bool(array.size)
    width = array.dtype.itemsize
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, width)
    return flat[0].tobytes() == flat[1].tobytes() and bool((flat == flat[0]).all())


UNIT = UnitAttr()
TRUE = BoolAttr(True)
FALSE = BoolAttr(False)
