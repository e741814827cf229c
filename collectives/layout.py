"""Wire format of arrays: contiguous chunks of a dimension, packed sub-byte types.

An array is sent as one chunk per receiver. Chunks of leading dimensions are contiguous already; those of inner
dimensions take one packing pass. NumPy stores an int4 or a float6 in one byte; on the wire the bits are packed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from collectives.arrays import Array, DType, bits_dtype, numpy_has
from collectives.element_types import bit_width
from collectives.shapes import Shape

_GROUP = {1: 8, 2: 4, 4: 2, 6: 4}  # elements that fill whole bytes, by bits per element


def contiguous(array: Array) -> Array:
    """Return ``array``, copied if it is not C-contiguous."""
    return array if array.flags.c_contiguous else array.copy()


def rows(stack: Array) -> list[Array]:
    """Return the arrays along the first dimension; of a vector, rank-0 arrays rather than NumPy scalars."""
    return [stack[i, ...] for i in range(len(stack))]


def outer(shape: Shape, dim: int) -> int:
    """Return the number of separate pieces of a slice of dimension ``dim``: the product of the dimensions before it."""
    return prod(shape[:dim])


def splitter(shape: Shape, dim: int, parts: int) -> Callable[[Array], Array]:
    """Return a function that makes ``parts`` contiguous chunks of a ``shape`` array along ``dim``.

    It copies only if the chunks are not contiguous in the array.
    """
    before = outer(shape, dim)
    if before == 1:
        return contiguous
    form = (before, parts, prod(shape[dim:]) // parts)

    def split(array: Array) -> Array:
        return np.ascontiguousarray(array.reshape(form).swapaxes(0, 1))

    return split


def concatenator(part: Shape, dim: int, parts: int) -> Callable[[Array, Array], None] | None:
    """Return a function that writes ``parts`` chunks of shape ``part`` into their concatenation along ``dim``.

    None if the chunks are contiguous in the concatenation.
    """
    before = outer(part, dim)
    if before == 1:
        return None
    received = (parts, before, prod(part[dim:]))
    result = (before, parts, prod(part[dim:]))

    def concatenate(chunks: Array, out: Array) -> None:
        out.reshape(result)[...] = chunks.reshape(received).swapaxes(0, 1)

    return concatenate


def wire_dtype(dtype: DType) -> DType:
    """Return the type that MPI transfers ``dtype`` as: itself, or an unsigned integer if MPI has no such type."""
    if numpy_has(dtype) and dtype != np.float16:
        return dtype
    return bits_dtype(dtype)


def is_packed(dtype: DType) -> bool:
    """Return whether elements share bytes on the wire."""
    return bit_width(dtype) in _GROUP


def packed_size(count: int, dtype: DType) -> int:
    """Return the size of ``count`` elements on the wire, in bytes."""
    bits = bit_width(dtype)
    group = _GROUP[bits]
    return -(-count // group) * group * bits // 8


def pack(chunks: Array) -> Array:
    """Pack (n, count) sub-byte elements into (n, ``packed_size``) bytes, the first element in the low bits."""
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
    """Unpack (n, bytes) into (n, ``count``) elements of ``dtype``, the inverse of ``pack``."""
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
    """Return elements from their bits, each in the low bits of a byte."""
    return codes.view(dtype)
