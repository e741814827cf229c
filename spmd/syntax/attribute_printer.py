"""Print attributes and constants as text that parses back to the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields

import numpy as np

from spmd import types as t
from spmd.dialects.structs import StructAttribute
from spmd.ir import AttributeValue
from spmd.ir import attributes as attrs
from spmd.support.arrays import Array, bits_dtype
from spmd.syntax.literals import float_bits, mask

#: Constants of more elements than this are printed as hexadecimal bytes.
HEX_FROM = 100
_BARE = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_TRUE_OR_FALSE = ("false", "true")

#: Printers of structured attributes' bodies, the text after `#dialect.mnemonic`, by class.
STRUCT_PRINTERS: dict[type, Callable[[AttributeValue], str]] = {}


def struct_printer(cls: type) -> Callable[[Callable[[AttributeValue], str]], Callable[[AttributeValue], str]]:
    """Register the decorated printer of the body, brackets included, of attributes of class `cls`."""

    def add(printer: Callable[[AttributeValue], str]) -> Callable[[AttributeValue], str]:
        STRUCT_PRINTERS[cls] = printer
        return printer

    return add


# --- names and strings -----------------------------------------------------------------------------------------------


def quoted(data: bytes) -> str:
    """Return a string literal of these bytes."""
    return '"' + data.decode("latin-1").translate(_ESCAPED) + '"'


_ESCAPED = {byte: f"\\{byte:02X}" for byte in range(256) if not 0x20 <= byte < 0x7F}
_ESCAPED[ord('"')] = "\\22"
_ESCAPED[ord("\\")] = "\\\\"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def format_symbol(name: str) -> str:
    """Return `@name`, quoted where it must be."""
    return f"@{name}" if _BARE.fullmatch(name) else f"@{quoted(_encoded(name))}"


def format_key(name: str) -> str:
    """Return an attribute's name, quoted where it must be."""
    return name if _BARE.fullmatch(name) else quoted(_encoded(name))


# --- numbers ---------------------------------------------------------------------------------------------------------


def format_float(value: float, bits: int, element: t.ElementType) -> str:
    """Return the shortest usual decimal that rounds to `bits`; the bits in hexadecimal if no decimal does."""
    if not np.isfinite(value):
        return f"0x{bits:0{(element.bits + 3) // 4}X}"
    usual = f"{value:.6e}"
    if float_bits(usual, element) == bits:
        return usual
    if element.bits == 64:
        return _with_point(repr(value))
    return _with_point(np.format_float_scientific(np.float32(value), unique=True, trim="0"))


def _with_point(text: str) -> str:
    if "." in text:
        return text
    return text.replace("e", ".0e", 1) if "e" in text else text + ".0"


def _floats(array: Array, element: t.ElementType) -> list[str]:
    """Return the text of each element, vectorized for most element types."""
    bits = array.view(bits_dtype(element.dtype)).tolist()
    with np.errstate(invalid="ignore"):  # signaling NaNs
        values = array.astype(np.float64).tolist()
    return [format_float(value, pattern, element) for value, pattern in zip(values, bits, strict=True)]


def format_elements(array: Array, element: t.ElementType) -> list[str]:
    """Return the text of each element of a flat array."""
    if element.is_complex:
        parts = _floats(np.ascontiguousarray(array).view(element.real.dtype), element.real)
        return [f"({a},{b})" for a, b in zip(parts[::2], parts[1::2], strict=True)]
    if element.is_boolean:
        return [_TRUE_OR_FALSE[flag] for flag in array.tolist()]
    if element.is_float:
        return _floats(array, element)
    return list(map(str, array.astype(np.int64).tolist() if element.bits < 8 else array.tolist()))


# --- constants -------------------------------------------------------------------------------------------------------


def format_dense(attribute: attrs.DenseAttr) -> str:
    return f"dense<{dense_body(attribute)}> : {attribute.type}"


def dense_body(attribute: attrs.DenseAttr, *, hexadecimal: bool = True) -> str:
    """Return the text between a constant's brackets; many elements are printed as bytes if `hexadecimal`."""
    array, element = attribute.array, attribute.type.element_type
    if isinstance(element, t.QuantizedType):
        element = element.storage
    assert isinstance(element, t.ElementType)
    if array.size == 0:
        return ""
    if attrs.all_the_same(array):
        return format_elements(_first(array), element)[0]
    if hexadecimal and array.size > HEX_FROM:
        return f'"0x{_raw(array, element).hex().upper()}"'
    return nested(format_elements(np.ascontiguousarray(array).reshape(-1), element), array.shape)


def _first(array: Array) -> Array:
    return np.ascontiguousarray(array[(0,) * array.ndim]).reshape(1)


def _raw(array: Array, element: t.ElementType) -> bytes:
    """Return the elements' bytes, little-endian."""
    if element.bits < 8 and not element.is_float:
        return (np.ascontiguousarray(array).view(np.uint8) & np.uint8(mask(element))).tobytes()
    data = np.ascontiguousarray(array)
    return data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()


def nested(texts: list[str], shape: tuple[int, ...]) -> str:
    """Return the texts of elements, one at least, in the brackets of `shape`."""
    for extent in reversed(shape):
        texts = ["[" + ", ".join(texts[i : i + extent]) + "]" for i in range(0, len(texts), extent)]
    return texts[0]


# --- attributes ------------------------------------------------------------------------------------------------------


def format_attribute(attribute: attrs.Attribute, *, typed: bool = True, nested: bool = False) -> str:
    """Return an attribute's text. `typed` adds a number's type; `nested` omits that of 64-bit integers."""
    printer = _PRINTERS.get(type(attribute))
    if printer is not None:
        return printer(attribute)
    if isinstance(attribute, attrs.IntegerAttr):
        plain = not typed or (nested and attribute.type is t.I64)
        return str(attribute.value) if plain else f"{attribute.value} : {attribute.type}"
    if isinstance(attribute, attrs.FloatAttr):
        text = format_float(attribute.value, attribute.bits, attribute.type)
        return f"{text} : {attribute.type}" if typed else text
    if isinstance(attribute, attrs.StringAttr):
        suffix = f" : {attribute.type}" if attribute.type is not None else ""
        return quoted(attribute.data) + suffix
    return _format_struct(attribute)


def format_stripped(attribute: attrs.Attribute, *, typed: bool = True) -> str:
    """Return the shortest text, for use where the declaration of the form determines the rest."""
    if isinstance(attribute, attrs.EnumAttr):
        return attribute.value
    if isinstance(attribute, attrs.DenseArrayAttr):
        return "[" + ", ".join(_array_elements(attribute)) + "]"
    if isinstance(attribute, StructAttribute):
        return struct_body(attribute)
    return format_attribute(attribute, typed=typed)


def format_entries(entries: Mapping[str, attrs.Attribute]) -> str:
    """Return `name = value, unit`, sorted by name, as MLIR keeps them."""
    return ", ".join(
        format_key(name) if isinstance(value, attrs.UnitAttr) else f"{format_key(name)} = {format_attribute(value)}"
        for name, value in sorted(entries.items())
    )


def _format_struct(attribute: attrs.Attribute) -> str:
    assert isinstance(attribute, StructAttribute), f"no text for {type(attribute).__name__}"
    body = struct_body(attribute)
    if body.startswith("<"):
        return f"#{attribute.DIALECT}.{attribute.MNEMONIC}{body}"
    gap = " " if body[:1].isalnum() or body[:1] == "_" else ""
    return f"#{attribute.DIALECT}<{attribute.MNEMONIC}{gap}{body}>"


def struct_body(attribute: AttributeValue) -> str:
    """Return the text after `#dialect.mnemonic`."""
    printer = STRUCT_PRINTERS.get(type(attribute))
    if printer is not None:
        return printer(attribute)
    if hasattr(attribute, "format"):
        return str(attribute.format())
    parts = []
    for field in fields(attribute):
        value = getattr(attribute, field.name)
        if field.default is MISSING or value != field.default:
            parts.append(f"{field.name} = {_format_field(value)}")
    return f"<{', '.join(parts)}>"


def _format_field(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return _TRUE_OR_FALSE[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _with_point(repr(value))
    if isinstance(value, str):
        return quoted(_encoded(value))
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_format_field, value)) + "]"
    if isinstance(value, t.Type):
        return str(value)
    return format_attribute(value)


def _array_elements(attribute: attrs.DenseArrayAttr) -> list[str]:
    element = attribute.element_type
    return format_elements(np.array(attribute.values, dtype=element.dtype), element)


def _format_dense_array(attribute: attrs.DenseArrayAttr) -> str:
    if not attribute.values:
        return f"array<{attribute.element_type}>"
    return f"array<{attribute.element_type}: {', '.join(_array_elements(attribute))}>"


def _format_array(attribute: attrs.ArrayAttr) -> str:
    return "[" + ", ".join(format_attribute(element, nested=True) for element in attribute.elements) + "]"


def _format_resource(attribute: attrs.DenseResourceAttr) -> str:
    return f"dense_resource<{format_key(attribute.key)}> : {attribute.type}"


_PRINTERS: dict[type, Callable[[AttributeValue], str]] = {
    attrs.UnitAttr: lambda attribute: "unit",
    attrs.BoolAttr: lambda attribute: _TRUE_OR_FALSE[attribute.value],
    attrs.SymbolRefAttr: lambda attribute: "::".join(map(format_symbol, attribute.path)),
    attrs.TypeAttr: lambda attribute: str(attribute.type),
    attrs.ArrayAttr: _format_array,
    attrs.DictAttr: lambda attribute: "{" + format_entries(attribute.entries) + "}",
    attrs.DenseArrayAttr: _format_dense_array,
    attrs.DenseAttr: format_dense,
    attrs.DenseResourceAttr: _format_resource,
    attrs.EnumAttr: lambda attribute: f"#{attribute.dialect}<{attribute.mnemonic} {attribute.value}>",
    attrs.OpaqueAttr: lambda attribute: attribute.text,
    attrs.LocationAttr: lambda attribute: attribute.text,
    attrs.AffineMapAttr: lambda attribute: attribute.text,
}
