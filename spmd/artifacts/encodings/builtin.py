"""Encodings of the builtin dialect's attributes and types. Source: MLIR's BuiltinDialectBytecode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spmd import types as t
from spmd.artifacts.encodings import fields as f
from spmd.artifacts.encodings import locations, textual
from spmd.artifacts.encodings.fields import DialectEncodings, EntryReader, EntryWriter, FieldValue, Simple
from spmd.artifacts.encodings.numbers import ARRAY, DENSE, FLOAT, INTEGER
from spmd.artifacts.text import parse_type
from spmd.dialects.structs import StructAttribute
from spmd.ir import attributes as attrs
from spmd.syntax.attribute_printer import format_attribute

BUILTIN = DialectEncodings()
_attributes, _types = BUILTIN.attributes, BUILTIN.types


# --- attributes ------------------------------------------------------------------------------------------------------


def entry_name(attribute: attrs.Attribute) -> str:
    """Return the name of a dictionary entry; raises ValueError unless it is a string."""
    if not isinstance(attribute, attrs.StringAttr):
        raise ValueError(f"a name must be a string, got {type(attribute).__name__}")
    return attribute.value


def name_attribute(name: str) -> attrs.StringAttr:
    """Return a dictionary entry's name as an attribute."""
    return attrs.StringAttr(name.encode("utf-8", "surrogateescape"))


def _read_entries(reader: EntryReader) -> attrs.DictAttr:
    entries: dict[str, attrs.Attribute] = {}
    for _ in range(reader.count("entries")):
        name = entry_name(reader.attribute_at(reader.varint()))
        entries[name] = reader.attribute_at(reader.varint())
    return attrs.DictAttr(entries)


def _write_entries(writer: EntryWriter, entries: Mapping[str, attrs.Attribute]) -> None:
    writer.varint(len(entries))
    for name, value in sorted(entries.items()):
        writer.varint(writer.plain_attribute_number(name_attribute(name)))
        writer.varint(writer.attribute_number(value))


ENTRIES = Simple(_read_entries, _write_entries)


def _symbol(root: attrs.Attribute, nested: tuple[attrs.Attribute, ...] = ()) -> attrs.SymbolRefAttr:
    path = [entry_name(root)]
    for leaf in nested:
        if not isinstance(leaf, attrs.SymbolRefAttr):
            raise ValueError(f"a nested symbol must be a symbol, got {type(leaf).__name__}")
        path += leaf.path
    return attrs.SymbolRefAttr(tuple(path))


def _flat(symbol: attrs.SymbolRefAttr) -> tuple[attrs.Attribute] | None:
    return (name_attribute(symbol.root),) if len(symbol.path) == 1 else None


def _nested(symbol: attrs.SymbolRefAttr) -> tuple[FieldValue, ...]:
    return name_attribute(symbol.root), tuple(attrs.SymbolRefAttr((name,)) for name in symbol.path[1:])


def _read_resource(reader: EntryReader) -> attrs.Attribute:
    type = reader.type_at(reader.varint())
    return reader.resource_at(reader.varint(), type)


def _write_resource(writer: EntryWriter, value: attrs.DenseResourceAttr) -> None:
    writer.varint(writer.type_number(value.type))
    writer.varint(writer.resource_number(value.key))


_attributes.encoding(0, attrs.ArrayAttr, f.ATTRIBUTES)
_attributes.encoding(1, attrs.DictAttr, ENTRIES, make=lambda attribute: attribute)
_attributes.encoding(2, attrs.StringAttr, f.BYTES, take=lambda a: (a.data,) if a.type is None else None)
_attributes.encoding(3, attrs.StringAttr, f.BYTES, f.TYPE)
_attributes.encoding(4, attrs.SymbolRefAttr, f.ATTRIBUTE, make=_symbol, take=_flat)
_attributes.encoding(5, attrs.SymbolRefAttr, f.ATTRIBUTE, f.ATTRIBUTES, make=_symbol, take=_nested)
_attributes.encoding(6, attrs.TypeAttr, f.TYPE)
_attributes.encoding(7, attrs.UnitAttr, make=lambda: attrs.UNIT)
for _cls in (attrs.BoolAttr, attrs.IntegerAttr):
    _attributes.whole(8, _cls, INTEGER)
_attributes.whole(9, attrs.FloatAttr, FLOAT)
locations.declare(_attributes)
_attributes.whole(16, attrs.DenseResourceAttr, Simple(_read_resource, _write_resource))
_attributes.whole(17, attrs.DenseArrayAttr, ARRAY)
_attributes.whole(18, attrs.DenseAttr, DENSE)


# --- types -----------------------------------------------------------------------------------------------------------


def _integer(number: int) -> t.Type:
    width, signedness = number >> 2, number & 3
    name = f"{('', '', 'u')[signedness]}i{width}" if signedness < 3 and 0 < width < 2**24 else ""
    if not name:
        raise ValueError(f"an integer type must have 1 to 16777215 bits, got {width}")
    return t.ELEMENT_TYPES.get(name) or t.OpaqueType(name)


_FLOATS = {3: t.BF16, 4: t.F16, 5: t.F32, 6: t.F64}
_NAMED = {7: "f80", 8: "f128", 12: "none"}


def _integer_fields(type: t.ElementType) -> tuple[int] | None:
    if type.is_boolean or type.is_integer:
        return ((1 if type.is_boolean else type.bits) << 2 | (2 if type.is_unsigned else 0),)
    return None


def complex_of(element: t.Type) -> t.Type:
    """Return the complex type with these parts; raises ValueError if there is none."""
    complex_element = t.ELEMENT_TYPES.get(f"complex<{element}>")
    return complex_element if complex_element is not None else parse_type(f"complex<{element}>")


def _bounds(encoding: attrs.Attribute) -> tuple[tuple[int | None, ...] | None, str | None]:
    """Return the bounds of a tensor type's encoding, or the text of any other encoding."""
    if isinstance(encoding, BoundsAttr):
        return encoding.bounds, None
    return None, format_attribute(encoding)


@dataclass(frozen=True)
class BoundsAttr(StructAttribute):
    """The encoding of a tensor type with bounds, an attribute of its own in files."""

    DIALECT, MNEMONIC = "stablehlo", "bounds"
    bounds: tuple[int | None, ...]

    def format(self) -> str:
        return f"<{', '.join('?' if bound is None else str(bound) for bound in self.bounds)}>"


def tensor_of(shape: tuple[int | None, ...], element: t.Type, encoding: attrs.Attribute | None = None) -> t.Type:
    """Return the tensor type of this shape, element type and encoding."""
    if any(size is not None and size < 0 for size in shape):
        raise ValueError(f"sizes must not be negative, got {shape}")
    bounds, other = (None, None) if encoding is None else _bounds(encoding)
    if any(bound is not None and bound < 0 for bound in bounds or ()):
        raise ValueError(f"bounds must not be negative, got {bounds}")
    return t.TensorType(shape, element, bounds, other)


def encoding_of(type: t.TensorType) -> attrs.Attribute | None:
    """Return the encoding attribute of a tensor type, or None."""
    if type.bounds is not None:
        return BoundsAttr(type.bounds)
    return attrs.OpaqueAttr(type.encoding) if type.encoding is not None else None


def _buffer(
    shape: tuple[int | None, ...], element: t.Type, layout: attrs.Attribute, space: attrs.Attribute | None = None
) -> t.Type:
    texts = [format_attribute(layout)] if not _is_identity(layout) else []
    if space is not None:
        texts.append(format_attribute(space))
    return t.BufferType(shape, element, ", ".join(texts) or None)


def _is_identity(layout: attrs.Attribute) -> bool:
    """Return whether a layout is the default of memref types, (d0, d1) -> (d0, d1)."""
    if not isinstance(layout, attrs.AffineMapAttr):
        return False
    inputs, _, outputs = layout.text.removeprefix("affine_map<").removesuffix(">").partition("->")
    return inputs.replace(" ", "") == outputs.replace(" ", "")


def _plain_buffer(type: t.BufferType) -> tuple[FieldValue, ...] | None:
    if type.memory is not None:
        return None
    names = ", ".join(f"d{index}" for index in range(len(type.shape)))
    return type.shape, type.element_type, attrs.AffineMapAttr(f"affine_map<({names}) -> ({names})>")


_types.encoding(0, t.ElementType, f.VARINT, make=_integer, take=_integer_fields)
_types.encoding(2, t.FunctionType, f.TYPES, f.TYPES)
for _code, _made in (*_FLOATS.items(), (1, t.INDEX)):
    _types.constant(_code, _made)
_types.encoding(9, t.ElementType, f.TYPE, make=complex_of, take=lambda type: (type.real,) if type.is_complex else None)
_types.encoding(10, t.BufferType, f.SHAPE, f.TYPE, f.ATTRIBUTE, make=_buffer, take=_plain_buffer)
_types.reading(
    11, f.ATTRIBUTE, f.SHAPE, f.TYPE, f.ATTRIBUTE,
    make=lambda space, shape, element, layout: _buffer(shape, element, layout, space),
)  # fmt: skip
for _code, _name in _NAMED.items():
    _types.constant(_code, t.OpaqueType(_name))
_types.encoding(
    13, t.TensorType, f.SHAPE, f.TYPE, make=tensor_of,
    take=lambda type: (type.shape, type.element_type) if encoding_of(type) is None else None,
)  # fmt: skip
_types.encoding(
    14, t.TensorType, f.ATTRIBUTE, f.SHAPE, f.TYPE,
    make=lambda encoding, shape, element: tensor_of(shape, element, encoding),
    take=lambda type: (encoding_of(type), type.shape, type.element_type),
)  # fmt: skip
_types.encoding(15, t.TupleType, f.TYPES)
_types.encoding(18, t.UnrankedTensorType, f.TYPE)
textual.declare(_attributes, _types)
