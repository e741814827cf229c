"""Shapes of operands, and what collectives make of them."""

from __future__ import annotations

from collectives.errors import CommunicationError

Shape = tuple[int, ...]


def split_shape(shape: Shape, dim: int, parts: int) -> Shape:
    """``shape`` with dimension ``dim`` divided into ``parts``."""
    if shape[dim] % parts:
        raise CommunicationError(f"dimension {dim} of size {shape[dim]} cannot be split into {parts} equal parts")
    return (*shape[:dim], shape[dim] // parts, *shape[dim + 1 :])


def scale_shape(shape: Shape, dim: int, parts: int) -> Shape:
    """``shape`` with dimension ``dim`` taken ``parts`` times."""
    return (*shape[:dim], shape[dim] * parts, *shape[dim + 1 :])
