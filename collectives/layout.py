"""How arrays lie on the wire: parts of a dimension made contiguous, types below a byte packed.

Between processes an array travels as chunks: one for every process it goes to. Chunks of leading dimensions lie
where they are; those of inner dimensions take one packing pass. NumPy keeps an int4 or a float6 in a byte of its
own; on the wire their bits lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from collectives.arrays import Array, DType, bits_dtype, numpy_has
from collectives.element_types import bit_width
from collectives.shapes import Shape

_GROUP = {1: 8, 2: 4, 4: 2, 6: 4}  # elements that fill whole bytes, by the bits of one


def contiguous(array: Array) -> Array:
    """``array``, or its copy when it is not C-contiguous."""
    return array if array.flags.c_contiguous else array.copy()


def rows(stack: Array) -> list[Array]:
    """The arrays along the first dimension; of one dimension, arrays of rank 0 rather than NumPy scalars."""
    return [stack[i, ...] for i in range(len(stack))]


def outer(shape: Shape, dim: int) -> int:
    """How many times a part of dimension ``dim`` is interrupted: the product of the dimensions before it."""
    return prod(shape[:dim])


def splitter(shape: Shape, dim: int, parts: int) -> Callable[[Array], Array]:
    """Makes ``parts`` contiguous chunks, along ``dim``, of a ``shape`` array: a packing pass unless they lie so."""
    before = outer(shape, dim)
    if before == 1:
        return contiguous
    form = (before, parts, prod(shape[dim:]) // parts)

    def split(array: Array) -> Array:
        return np.ascontiguousarray(array.reshape(form).swapaxes(0, 1))

    return split


def concatenator(part: Shape, dim: int, parts: int) -> Callable[[Array, Array], None] | None:
    """Writes ``parts`` chunks of shape ``part`` into their concatenation along ``dim``; None where they lie so."""
    before = outer(part, dim)
    if before == 1:
        return None
    received = (parts, before, prod(part[dim:]))
    result = (before, parts, prod(part[dim:]))

    def concatenate(chunks: Array, out: Array) -> None:
        out.reshape(result)[...] = chunks.reshape(received).swapaxes(0, 1)

    return concatenate


def wire_dtype(dtype: DType) -> DType:
    """The type as which MPI moves ``dtype``: itself, or an integer of its size where MPI has no such type."""
    if numpy_has(dtype) and dtype != np.float16:
        return dtype
    return bits_dtype(dtype)


def is_packed(dtype: DType) -> bool:
    """Whether elements share bytes on the wire."""
    return bit_width(dtype) in _GROUP


def packed_size(count: int, dtype: DType) -> int:
    """Bytes that ``count`` elements take on the wire."""
    bits = bit_width(dtype)
    group = _GROUP[bits]
    return -(-count // group) * group * bits // 8


def pack(chunks: Array) -> Array:
    """(n, count) elements of a type below a byte -> (n, ``packed_size``) bytes, the first element in the low bits."""
    bits = bit_width(chunks.dtype)
    group = _GROUP[bits]
    count = chunks.shape[1]
    codes = chunks.view(np.uint8)
    if count % group:
        codes = np.pad(codes, ((0, 0), (0, -count % group)))
    codes = codes.reshape(len(codes), -1, group) & np.uint8((1 << bits) - 1)
    if bits == 6:
        a, b, c, d = (codes[..., i] for i in range(4))
        return np.stack([a | (b << 6), (b >> 2) | (c << 4), (c >> 4) | (d << 2)], -1).reshape(len(codes), -1)
    result = codes[..., 0].copy()
    for i in range(1, group):
        result |= codes[..., i] << np.uint8(i * bits)
    return result


def unpack(data: Array, count: int, dtype: DType) -> Array:
    """The inverse of ``pack``: (n, bytes) -> (n, ``count``) elements of ``dtype``."""
    bits = bit_width(dtype)
    group = _GROUP[bits]
    if bits == 6:
        a, b, c = (data.reshape(len(data), -1, 3)[..., i] for i in range(3))
        codes = np.stack([a, (a >> 6) | (b << 2), (b >> 4) | (c << 4), c >> 2], -1)
    else:
        codes = data[..., None] >> (np.arange(group, dtype=np.uint8) * np.uint8(bits))
    codes = (codes & np.uint8((1 << bits) - 1)).reshape(len(data), -1)[:, :count]
    return _from_codes(np.ascontiguousarray(codes), dtype)


def _from_codes(codes: Array, dtype: DType) -> Array:
    """Elements from their bits, each in the low bits of a byte."""
    return codes.view(dtype)
