"""Shapes of operands and results."""

from __future__ import annotations

from collectives.arrays import DType
from collectives.errors import CommunicationError

Shape = tuple[int, ...]


def split_shape(shape: Shape, dim: int, parts: int) -> Shape:
    """Return ``shape`` with dimension ``dim`` divided by ``parts``; CommunicationError unless it is divisible."""
    if shape[dim] % parts:
        raise CommunicationError(f"dimension {dim} of size {shape[dim]} cannot be split into {parts} equal parts")
    return (*shape[:dim], shape[dim] // parts, *shape[dim + 1 :])


def scale_shape(shape: Shape, dim: int, parts: int) -> Shape:
    """Return ``shape`` with dimension ``dim`` multiplied by ``parts``."""
    return (*shape[:dim], shape[dim] * parts, *shape[dim + 1 :])


def extent_text(shape: Shape, dtype: DType) -> str:
    """Return the text of an array's type for messages: ``4x2 float32``, ``scalar int32``."""
    return f"{'x'.join(map(str, shape)) or 'scalar'} {dtype}"
