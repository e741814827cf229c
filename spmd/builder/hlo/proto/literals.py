"""LiteralProto: an array's elements in the order of its layout, in the field of their type. ShapeProto: shapes."""

from __future__ import annotations

import numpy as np

from spmd.builder.layout import Layout
from spmd.builder.literal import Literal
from spmd.builder.shape import TUPLE, PrimitiveType, Shape
from spmd.support.arrays import Array, DType, Nested
from spmd.support.protobuf import Message, message, packed

#: xla_data.proto, PrimitiveType.
_TYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2",
    20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2",
    28: "f8e4m3", 29: "f8e3m4", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
#: The field of LiteralProto with the elements of a type, where it is not numbered as the type is.
_FIELDS = {
    "pred": 2, "s8": 15, "s16": 17, "s32": 4, "s64": 5, "u8": 3, "u16": 16, "u32": 6, "u64": 7, "f16": 11, "f32": 8,
    "f64": 9, "c64": 12, "bf16": 13, "c128": 18,
}  # fmt: skip
_NUMBERS = {number: _FIELDS.get(name, number) for number, name in _TYPES.items()}
#: Types whose elements are repeated numbers; those of others are bytes of memory.
_VARINTS = frozenset(("pred", "s32", "s64", "u32", "u64"))
_DEEPEST = 64


def shape(proto: Message, depth: int = 0) -> Shape:
    """Return the shape that ShapeProto says; ValueError where it says none."""
    number = proto.number(2)
    if number not in _TYPES or depth > _DEEPEST:
        raise ValueError(f"a shape of element type {number}" if number not in _TYPES else "shapes nest too deep")
    kind = PrimitiveType(_TYPES[number])
    if kind is TUPLE:
        return Shape.tuple_shape([shape(part, depth + 1) for part in proto.messages(4)])
    sizes, dynamic = proto.numbers(3), [bool(flag) for flag in proto.numbers(6)]
    if any(size < 0 for size in sizes):
        raise ValueError(f"a shape has a dimension without a bound, {sizes}")
    order = proto.message(5).numbers(1)
    return Shape(kind, sizes, dynamic or [False] * len(sizes), layout=Layout(order) if order else None)


def literal(proto: Message) -> Nested:
    """Return the array of LiteralProto, or a tuple of arrays; ValueError where it holds none."""
    declared = shape(proto.message(1))
    if declared.is_tuple():
        return tuple(map(literal, proto.messages(10)))
    return array(proto, declared)


def array(proto: Message, declared: Shape) -> Array:
    """Return the array of `declared` shape that LiteralProto holds."""
    flat = _elements(proto, declared)
    if flat.size != declared.size():
        raise ValueError(f"{flat.size} elements of an array of shape {declared.brief}")
    result: Array = Literal.from_memory(flat, declared).array()
    return result


def _elements(proto: Message, declared: Shape) -> Array:
    kind, dtype = declared.primitive_type.value, declared.numpy_dtype()
    values = proto.values(_NUMBERS[proto.message(1).number(2)])
    if kind in _VARINTS:
        return np.concatenate([*map(packed, values), np.zeros(0, np.int64)]).astype(dtype)
    memory = np.frombuffer(b"".join(message(value) for value in values), np.uint8)
    bits = declared.primitive_type.element_type.bits
    return _unpacked(memory, bits, declared.size(), dtype) if bits < 8 else memory.view(dtype.newbyteorder("<"))


def _unpacked(memory: Array, bits: int, count: int, dtype: DType) -> Array:
    """Return elements of a few bits: one a byte, or several of which the first is in the lowest bits."""
    shifts = np.arange(0, 1 if memory.size == count else 8, bits, dtype=np.uint8)
    codes = (memory[:, None] >> shifts & ((1 << bits) - 1)).reshape(-1)[:count]
    if dtype.name.startswith("int"):
        return (codes.astype(np.int8) << (8 - bits) >> (8 - bits)).astype(dtype)
    return codes.astype(dtype) if dtype.name.startswith("uint") else codes.view(dtype)
