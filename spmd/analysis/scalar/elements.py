"""Element types in registers and in memory.

The register form of an element is a tuple of values of machine types:

- i1 is an i1; integers of 8 to 64 bits are themselves; those of 2 and 4 bits are extended to i8;
- f32 and f64 are themselves; every narrower float is an f32 that the type holds exactly;
- complex numbers are two floats;
- quantized numbers are those of their storage type.

In memory each of these values is one machine integer or float; `encode` and `decode` convert between the forms.
Legalization relies on this: a narrow type is widened on load, computed on wide, and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spmd.analysis.scalar.build import compare, mask, shift_left, shift_right, shorten, zero_extend
from spmd.analysis.scalar.expression import (
    F32,
    F64,
    I1,
    I8,
    Expression,
    MachineType,
    constant,
    constant_bits,
    integer_type,
)
from spmd.analysis.scalar.narrow import decode_float, encode_float, odd_single, round_float
from spmd.types import ElementType, QuantizedType

#: An element in register form.
Element = tuple[Expression, ...]


def register_types(element_type: ElementType | QuantizedType) -> tuple[MachineType, ...]:
    """Return the machine types of an element in register form; raises TypeError for a type that no tensor has."""
    if isinstance(element_type, QuantizedType):
        return register_types(element_type.storage)
    if element_type.is_boolean:
        return (I1,)
    if element_type.is_integer or element_type.is_index:
        return (integer_type(max(8, element_type.bits)),)
    if element_type.is_complex:
        return register_types(element_type.real) * 2
    if element_type.is_float and element_type.numpy is not None:
        return (F64,) if element_type.bits == 64 else (F32,)
    raise TypeError(f"no register holds elements of type {element_type}")


def memory_types(element_type: ElementType | QuantizedType) -> tuple[MachineType, ...]:
    """Return the machine types of an element in memory form."""
    if isinstance(element_type, QuantizedType):
        return memory_types(element_type.storage)
    if element_type.is_complex or element_type.bits >= 32:
        return register_types(element_type)
    return (integer_type(8 * element_type.dtype.itemsize),)


def decode(codes: Element, element_type: ElementType | QuantizedType) -> Element:
    """Return an element in register form, given its memory form."""
    if isinstance(element_type, QuantizedType):
        return decode(codes, element_type.storage)
    if element_type.is_boolean:
        return (compare("ne", codes[0], 0),)
    if element_type.is_integer and element_type.bits < 8:
        return (normalize(codes[0], element_type),)
    if element_type.is_float and element_type.bits < 32:
        return (decode_float(codes[0], element_type),)
    return codes


def encode(element: Element, element_type: ElementType | QuantizedType) -> Element:
    """Return an element in memory form, given its register form."""
    if isinstance(element_type, QuantizedType):
        return encode(element, element_type.storage)
    if element_type.is_boolean:
        return (zero_extend(element[0], I8),)
    if element_type.is_integer and element_type.bits < 8:
        return (mask(element[0], 2**element_type.bits - 1),)
    if element_type.is_float and element_type.bits < 32:
        return (encode_float(element[0], element_type),)
    return element


def normalize(value: Expression, element_type: ElementType) -> Expression:
    """Return an integer in register form, given its low bits: types of 2 and 4 bits are extended in their i8."""
    spare = value.type.bits - element_type.bits
    if spare <= 0:
        return value
    if element_type.is_unsigned:
        return mask(value, 2**element_type.bits - 1)
    return shift_right(shift_left(value, spare), spare, signed=True)


def round_to(element: Element, element_type: ElementType) -> Element:
    """Return an element rounded to a narrower float type, or wrapped to a 2- or 4-bit integer.

    An f64 is rounded once, whatever the type.
    """
    if element_type.is_integer:
        return (normalize(element[0], element_type),)
    if not element_type.is_float or element_type.bits > 32:
        return element
    value = element[0]
    if element_type.bits == 32:
        return (shorten(value),)
    return (round_float(odd_single(value) if value.type is F64 else value, element_type),)


def element_constant(value: object, element_type: ElementType) -> Element:
    """Return a number, or an array of one element, as an element constant; NaNs of f32 and f64 keep their bits."""
    array = np.asarray(value).astype(element_type.dtype).reshape(())
    types = register_types(element_type)
    if element_type.is_complex:
        return tuple(_float_constant(part, type) for part, type in zip((array.real, array.imag), types, strict=True))
    if element_type.is_float:
        return (_float_constant(array.astype(f"f{types[0].bits // 8}"), types[0]),)
    return (constant(int(array), types[0]),)


def _float_constant(value: Any, type: MachineType) -> Expression:
    return constant_bits(int.from_bytes(value.tobytes(), "little"), type)
