"""Encodings of builtin attributes and types that are only passed on: read as their text, and written as text."""

from __future__ import annotations

from spmd import types as t
from spmd.artifacts.encodings import affine
from spmd.artifacts.encodings.fields import (
    ATTRIBUTE,
    BOOL,
    SHAPE,
    TYPE,
    VARINT,
    EncodingTable,
    EntryReader,
    ListOf,
    Simple,
    expect,
    unwritten,
)
from spmd.artifacts.text import parse_type
from spmd.ir.attributes import Attribute, DenseAttr, OpaqueAttr, UnitAttr
from spmd.syntax.attribute_printer import dense_body, format_attribute, nested, quoted


def _read_strings(reader: EntryReader) -> Attribute:
    """Return a tensor of strings: its type, whether it is a splat, and the numbers of the strings."""
    type = expect(TYPE.read(reader), t.TensorType)
    splat = VARINT.read(reader)
    count = 1 if splat else type.size
    if count > reader.left:
        raise ValueError(f"{count} strings do not fit into {reader.left} bytes")
    texts = [quoted(reader.string_at(reader.varint())) for _ in range(count)]
    body = texts[0] if splat else nested(texts, type.static_shape) if texts else ""
    return OpaqueAttr(f"dense<{body}> : {type}")


def _sparse(type: t.Type, indices: Attribute, values: Attribute) -> Attribute:
    parts = [dense_body(expect(part, DenseAttr), hexadecimal=False) for part in (indices, values)]
    return OpaqueAttr(f"sparse<{', '.join(filter(None, parts))}> : {type}")


def _read_distinct(reader: EntryReader) -> Attribute:
    """Return the attribute that a distinct one refers to; its identity is its position in the file."""
    number = reader.position
    reader.is_cacheable = False
    value = ATTRIBUTE.read(reader)
    return OpaqueAttr(f"distinct[{number}]<{'' if isinstance(value, UnitAttr) else format_attribute(value)}>")


def _size(size: int | None) -> str:
    return "?" if size is None else str(size)


def vector_of(shape: tuple[int | None, ...], element: t.Type, scalable: tuple[bool, ...] = ()) -> t.Type:
    """Return the vector type of this shape; scalable sizes, in brackets, are multiples of the machine's."""
    flags = scalable or (False,) * len(shape)
    sizes = [f"[{_size(size)}]x" if flag else f"{_size(size)}x" for size, flag in zip(shape, flags, strict=True)]
    return parse_type(f"vector<{''.join(sizes)}{element}>")


def _unranked_buffer(element: t.Type) -> t.Type:
    return parse_type(f"memref<*x{element}>")


def _unranked_buffer_in(space: Attribute, element: t.Type) -> t.Type:
    return parse_type(f"memref<*x{element}, {format_attribute(space)}>")


#: Narrow floats by code, from 21 on; they are written by name, which every reader supports.
_FLOATS = (
    "tf32", "f8E5M2", "f8E4M3", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E3M4", "f4E2M1FN",
    "f6E2M3FN", "f6E3M2FN", "f8E8M0FNU",
)  # fmt: skip


def declare(attributes: EncodingTable, types: EncodingTable) -> None:
    """Add the codes to the builtin dialect's; they are not written."""
    attributes.reading(19, Simple(_read_strings, unwritten), make=lambda text: text)
    attributes.reading(20, TYPE, ATTRIBUTE, ATTRIBUTE, make=_sparse)
    attributes.reading(21, Simple(_read_distinct, unwritten), make=lambda text: text)
    affine.declare(attributes)
    types.reading(16, TYPE, make=_unranked_buffer)
    types.reading(17, ATTRIBUTE, TYPE, make=_unranked_buffer_in)
    types.reading(19, SHAPE, TYPE, make=vector_of)
    types.reading(20, ListOf(BOOL), SHAPE, TYPE, make=lambda flags, shape, element: vector_of(shape, element, flags))
    for code, name in enumerate(_FLOATS, 21):
        types.reading(code, make=lambda name=name: t.ELEMENT_TYPES[name])
