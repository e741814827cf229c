"""Tensors and buffers: shapes of elements. Source: StableHLO specification, "Types"; "Bounded dynamism"."""

from __future__ import annotations

from dataclasses import dataclass

from spmd.support.arrays import Array, DType
from spmd.types.base import Type
from spmd.types.element import ElementType, element_type_of
from spmd.types.quantized import QuantizedType

#: Element types that arrays hold; tensors may also have element types of other dialects.
ScalarType = ElementType | QuantizedType


@dataclass(frozen=True, eq=False, repr=False)
class TensorType(Type):
    """A ranked tensor. A dimension is an int, or None when dynamic (`?`).

    `bounds` (specification: bounded dynamism) has one entry a dimension, None where there is no bound. `encoding`
    is the text of any other MLIR encoding attribute, kept for printing.
    """

    shape: tuple[int | None, ...]
    element_type: Type
    bounds: tuple[int | None, ...] | None = None
    encoding: str | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether no dimension is dynamic."""
        return None not in self.shape

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape of a static tensor; ValueError when a dimension is dynamic."""
        if None in self.shape:
            raise ValueError(f"{self} has dynamic dimensions")
        return self.shape  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements of a static tensor."""
        total = 1
        for dimension in self.static_shape:
            total *= dimension
        return total

    @property
    def scalar_type(self) -> ScalarType:
        """The element type; TypeError when it is not one that arrays hold."""
        if isinstance(self.element_type, (ElementType, QuantizedType)):
            return self.element_type
        raise TypeError(f"no array holds elements of type {self.element_type}")

    @property
    def dtype(self) -> DType:
        """The NumPy dtype of the elements; TypeError when no array holds them."""
        return self.scalar_type.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the NumPy array that holds a static tensor."""
        return self.size * self.dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        """Whether the element type is quantized."""
        return isinstance(self.element_type, QuantizedType)

    def with_shape(self, shape: tuple[int | None, ...]) -> TensorType:
        """A tensor type with this element type and another shape, without bounds."""
        return TensorType(shape, self.element_type)

    def with_element_type(self, element_type: Type) -> TensorType:
        """A tensor type with this shape and another element type."""
        return TensorType(self.shape, element_type, self.bounds, self.encoding)

    def __str__(self) -> str:
        dimensions = "".join("?x" if d is None else f"{d}x" for d in self.shape)
        suffix = ""
        if self.bounds is not None:
            suffix = ", #stablehlo.bounds<" + ", ".join("?" if b is None else str(b) for b in self.bounds) + ">"
        elif self.encoding is not None:
            suffix = ", " + self.encoding
        return f"tensor<{dimensions}{self.element_type}{suffix}>"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class UnrankedTensorType(Type):
    """`tensor<*xf32>`: parsed and printed, though no StableHLO op takes it."""

    element_type: Type

    def __str__(self) -> str:
        return f"tensor<*x{self.element_type}>"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class BufferType(Type):
    """`memref<...>`: a buffer (specification: "Buffer types"); `memory` is any text after the element type."""

    shape: tuple[int | None, ...]
    element_type: Type
    memory: str | None = None

    def __str__(self) -> str:
        dimensions = "".join("?x" if d is None else f"{d}x" for d in self.shape)
        suffix = f", {self.memory}" if self.memory is not None else ""
        return f"memref<{dimensions}{self.element_type}{suffix}>"

    __repr__ = __str__


def tensor_of(array: Array) -> TensorType:
    """The tensor type that `array` is a value of."""
    return TensorType(tuple(array.shape), element_type_of(array.dtype))
