"""Integers and floats of a known type, and the elements of constant tensors.

Source: MLIR's bytecode: an integer of at most 8 bits is a byte, one of at most 64 bits a zigzag-encoded integer, a
wider one a list of such words.
"""

from __future__ import annotations

import numpy as np

from spmd import types as t
from spmd.artifacts.encodings.fields import EntryReader, EntryWriter, FieldValue, Simple
from spmd.ir.attributes import (
    FALSE,
    TRUE,
    Attribute,
    BoolAttr,
    DenseArrayAttr,
    DenseAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    aligned,
    all_the_same,
)
from spmd.support.arrays import Array
from spmd.syntax.dense import dense_raw
from spmd.syntax.literals import mask, raw_array

#: The widths of floats that no array can hold.
_WIDE_FLOATS = {"tf32": 19, "f80": 80, "f128": 128}
#: Constants of at least this size are views of the file, aligned or not; smaller ones are copied and aligned.
_SEEN_FROM = 1 << 20
#: The largest width of an integer in bits: Python converts no more than 4300 decimal digits.
_MOST_BITS = 13_000
_MOST_WORDS = 1 << 18  # words of MLIR's widest integer, 2**24 - 1 bits


def _width(type: t.Type) -> tuple[int, bool]:
    """Return the width of an integer type and whether it is unsigned; raises ValueError for other types."""
    if isinstance(type, t.ElementType) and (type.is_integer or type.is_boolean or type.is_index):
        return type.bits if not type.is_boolean else 1, not (type.is_signed or type.is_index)
    wide = t.wide_integer(type)
    if wide is None:
        raise ValueError(f"an integer attribute must have an integer type, got {type}")
    return wide


def _read_bits(reader: EntryReader, width: int) -> int:
    if width <= 8:
        return reader.byte() & ((1 << width) - 1)
    if width <= 64:
        return reader.svarint() & ((1 << width) - 1)
    count = min(reader.count("words"), _MOST_WORDS)
    words = [reader.svarint() & (2**64 - 1) for _ in range(count)]
    return sum(word << (64 * index) for index, word in enumerate(words)) & ((1 << width) - 1)


def _write_bits(writer: EntryWriter, value: int, width: int) -> None:
    value &= (1 << width) - 1
    if width <= 8:
        writer.byte(value)
        return
    words = [(value >> shift) & (2**64 - 1) for shift in range(0, max(value.bit_length(), 1), 64)]
    if width > 64:
        writer.varint(len(words))
    for word in words:
        writer.svarint(word - 2**64 if word >> 63 else word)


def _read_integer(reader: EntryReader) -> Attribute:
    type = reader.type_at(reader.varint())
    width, unsigned = _width(type)
    bits = _read_bits(reader, width)
    if type is t.I1:
        return TRUE if bits else FALSE
    value = bits - (1 << width) if not unsigned and bits >> (width - 1) else bits
    if value.bit_length() > _MOST_BITS:
        raise ValueError(f"the integer of {value.bit_length()} bits is too large")
    return IntegerAttr(value, type)


def _write_integer(writer: EntryWriter, value: FieldValue) -> None:
    type = t.I1 if isinstance(value, BoolAttr) else value.type
    writer.varint(writer.type_number(type))
    _write_bits(writer, int(value.value), _width(type)[0])


def _read_float(reader: EntryReader) -> Attribute:
    type = reader.type_at(reader.varint())
    width = _WIDE_FLOATS.get(str(type))
    if width is not None:
        return OpaqueAttr(f"0x{_read_bits(reader, width):0{width // 4}X} : {type}")
    if not isinstance(type, t.ElementType) or not type.is_float:
        raise ValueError(f"a float attribute must have a floating-point type, got {type}")
    return FloatAttr(_read_bits(reader, type.bits), type)


def _write_float(writer: EntryWriter, value: FieldValue) -> None:
    writer.varint(writer.type_number(value.type))
    _write_bits(writer, value.bits, value.type.bits)


#: A number preceded by its type.
INTEGER = Simple(_read_integer, _write_integer)
FLOAT = Simple(_read_float, _write_float)


# --- tensors ---------------------------------------------------------------------------------------------------------


def _read_dense(reader: EntryReader) -> Attribute:
    type = reader.type_at(reader.varint())
    data = reader.bytes(reader.varint())
    if len(data) < _SEEN_FROM:
        data = bytes(data)
    if not isinstance(type, t.TensorType) or isinstance(type.element_type, t.OpaqueType):
        return OpaqueAttr(f'dense<"0x{data.hex().upper()}"> : {type}')
    dense = dense_raw(data, type)
    if dense.array.flags.aligned or dense.array.nbytes >= _SEEN_FROM:
        return dense
    return DenseAttr(aligned(dense.array), dense.type)


def _write_dense(writer: EntryWriter, value: DenseAttr) -> None:
    writer.varint(writer.type_number(value.type))
    data = raw_elements(value)
    writer.varint(data.nbytes)
    writer.bytes(data.data.cast("B"))


def raw_elements(value: DenseAttr) -> Array:
    """Return the elements' bytes as MLIR stores them, of a splat those of one element; one-dimensional."""
    array = value.array
    one = array.size > 1 and all_the_same(array)
    flat = np.ascontiguousarray(array[(0,) * array.ndim] if one else array).reshape(-1)
    element = value.type.element_type
    element = element.storage if isinstance(element, t.QuantizedType) else element
    assert isinstance(element, t.ElementType)
    if element.is_boolean:
        if one:
            return np.array([0xFF if flat[0] else 0], np.uint8)
        return np.packbits(flat, bitorder="little")
    if element.bits < 8:
        return flat.view(np.uint8) & np.uint8(mask(element))
    return flat.view(np.uint8)


#: A constant tensor: its type and the elements' bytes.
DENSE = Simple(_read_dense, _write_dense)


def _read_array(reader: EntryReader) -> Attribute:
    type = reader.type_at(reader.varint())
    count = reader.varint()
    data = reader.bytes(reader.varint())
    if not isinstance(type, t.ElementType) or type.numpy is None:
        raise ValueError(f"an array must be of numbers, got {type}")
    if len(data) != count * type.dtype.itemsize:
        raise ValueError(f"{len(data)} bytes for {count} numbers of type {type}")
    if type.is_boolean:
        return DenseArrayAttr(type, tuple(byte != 0 for byte in data))
    return DenseArrayAttr(type, tuple(raw_array(bytes(data), type, count).tolist()) if count else ())


def _write_array(writer: EntryWriter, value: DenseArrayAttr) -> None:
    writer.varint(writer.type_number(value.element_type))
    array = np.array(value.values, value.element_type.dtype)
    writer.varint(array.size)
    writer.varint(array.nbytes)
    writer.bytes(array.tobytes())


#: An array of numbers: type, count, bytes.
ARRAY = Simple(_read_array, _write_array)
