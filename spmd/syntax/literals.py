"""Convert the text of numbers and strings to values, whole arrays at once.

A decimal is rounded once to the element type, ties to even: never by way of a wider type, which could round twice.
 Source: specification, "Constants"; MLIR's builtin attributes for hexadecimal and raw forms.

MLIR accepts some literals that the specification does not: those out of range, which wrap around or overflow, and
hexadecimal floats of fewer digits than the type has. Functions that may meet one append it to `notes`.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np

from spmd.support.arrays import Array, DType, bits_dtype
from spmd.types import ElementType, storage_range

#: Constraints of the specification that literals violate: label and message of each.
Notes = list[tuple[str, str]]

_HEX_DIGITS = "0123456789abcdefABCDEF"
#: Runs of escapes of one kind are matched together: a string may consist of nothing else.
_ESCAPE = re.compile(
    rb'((?:\\[0-9A-Fa-f][0-9A-Fa-f])++)|((?:\\\\)++)|((?:\\")++)|((?:\\n)++)|((?:\\t)++)|\\(.?)', re.DOTALL
)
_PLAIN_ESCAPES = {2: b"\\", 3: b'"', 4: b"\n", 5: b"\t"}


def unquote(token: str) -> bytes:
    """Return the bytes of a string literal without quotes and escapes; raise ValueError for an unknown escape."""
    data = token[1:-1].encode("utf-8", "surrogateescape")
    if b"\\" not in data:
        return data

    def replace(match: re.Match[bytes]) -> bytes:
        kind = match.lastindex
        if kind == 1:
            return bytes.fromhex(match[0].replace(b"\\", b"").decode())
        if kind in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[kind] * (len(match[0]) // 2)
        raise ValueError(f"unknown escape in string: \\{match[6].decode(errors='replace')}")

    return _ESCAPE.sub(replace, data)


def mask(element: ElementType) -> int:
    """Return the mask of all bits of an element."""
    return int((1 << element.bits) - 1)


# --- floats ----------------------------------------------------------------------------------------------------------


def float_array(values: Array, texts: Callable[[], list[str]], element: ElementType) -> Array:
    """Return float64 `values` rounded once to `element`; `texts` gives their decimals, needed only near ties."""
    if element.bits == 64:
        return values
    rounded = _round(values, element.dtype)
    # A decimal next to a tie of the narrow type may have become that tie in float64: compare the exact decimal.
    below = _round(np.nextafter(values, -np.inf), element.dtype)
    above = _round(np.nextafter(values, np.inf), element.dtype)
    width = bits_dtype(element.dtype)
    doubtful = np.flatnonzero((below.view(width) != above.view(width)) & (values != 0) & np.isfinite(values))
    if doubtful.size:
        _settle(rounded, doubtful, below, above, texts())
    return rounded


def _settle(rounded: Array, doubtful: Array, below: Array, above: Array, texts: list[str]) -> None:
    for index in doubtful.tolist():
        low, high = float(below[index]), float(above[index])
        if np.isfinite(low) and np.isfinite(high) and len(texts[index]) < 4096:
            exact, middle = Fraction(texts[index]), (Fraction(low) + Fraction(high)) / 2
            if exact != middle:
                rounded[index] = below[index] if exact < middle else above[index]


def _round(values: Array, dtype: DType) -> Array:
    """Return float64 values rounded once to a narrower float."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if dtype in (np.float32, np.float16):
            return values.astype(dtype)
        if dtype == ml_dtypes.float8_e8m0fnu:
            return _round_to_power(values).view(dtype)
        return _to_odd(values).astype(dtype)


def _round_to_power(values: Array) -> Array:
    """Return float64 values as f8E8M0FNU exponents: powers of two, the smallest for zero; NaN for negative ones."""
    fraction, exponent = np.frexp(np.abs(values))
    code = np.where(values == 0, 0, np.maximum(exponent + 126 + (fraction >= 0.75), 0))
    return np.where((code > 254) | (values < 0) | ~np.isfinite(values), 255, code).astype(np.uint8)


def _to_odd(values: Array) -> Array:
    """Return float64 values as float32, rounded to odd: rounding those again to far fewer bits rounds once."""
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    inexact = (back != values) & np.isfinite(back)
    bits = single.view(np.uint32)
    even = inexact & ((bits & 1) == 0)
    if even.any():
        # One step back towards the exact value; from zero, the smallest subnormal of its sign.
        outward = np.abs(values) > np.abs(back)
        step = np.where(outward, 1, -1).astype(np.int64)
        moved = (bits.astype(np.int64) + step).astype(np.uint32)
        moved = np.where(single == 0, (np.signbit(values).astype(np.uint32) << 31) | np.uint32(1), moved)
        bits = np.where(even, moved, bits)
        single = bits.view(np.float32)
    overflow = np.isinf(back) & np.isfinite(values)
    largest = np.copysign(np.finfo(np.float32).max, values).astype(np.float32)
    return np.where(overflow, largest, single)


def _note(notes: Notes | None, label: str, message: str) -> None:
    if notes is not None:
        notes.append((label, message))


def _note_overflow(notes: Notes | None, array: Array, texts: list[str], element: ElementType) -> None:
    """Append to `notes` the first decimal that became infinite or NaN: no decimal is."""
    if notes is not None and not np.isfinite(array).all():
        first = texts[int(np.argmin(np.isfinite(array)))]
        _note(notes, "C1", f"is_wellformed(float_literal, float_type), got {_shown(first)} for {element}")


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


def scalar_bits(text: str, element: ElementType, notes: Notes | None = None) -> int:
    """Return the bit pattern in `element` of a decimal or of `0x` bits; raise ValueError for too many bits."""
    return int(parse_decimals([text], element, notes).view(bits_dtype(element.dtype))[0])


def float_bits(text: str, element: ElementType) -> int:
    """Return the bit pattern of a decimal in `element`."""
    value = np.array([float(text)])
    return int(float_array(value, lambda: [text], element).view(bits_dtype(element.dtype))[0])


# --- arrays from text ------------------------------------------------------------------------------------------------


def parse_decimals(texts: list[str], element: ElementType, notes: Notes | None = None) -> Array:
    """Return floating-point elements from decimals and `0x` bit patterns; raise ValueError for anything else."""
    joined = ",".join(texts)
    if "x" not in joined:
        array = float_array(np.array(texts, dtype=np.float64), lambda: texts, element)
        _note_overflow(notes, array, texts, element)
        return array
    hexadecimal = [index for index, text in enumerate(texts) if "x" in text]
    plain = list(texts)
    for index in hexadecimal:
        plain[index] = "0.0"
    array = float_array(np.array(plain, dtype=np.float64), lambda: plain, element)
    _note_overflow(notes, array, plain, element)
    bits = array.view(bits_dtype(element.dtype))
    for index in hexadecimal:
        bits[index] = hex_bits(texts[index], element, notes)
    return array


def hex_bits(text: str, element: ElementType, notes: Notes | None = None) -> int:
    """Return the bit pattern of `0x...`; raise ValueError when it has more bits than `element`."""
    bits = int(text, 16)
    if text[0] == "-":
        raise ValueError(f"the bits of a float have no sign, got {text}")
    if bits > mask(element):
        raise ValueError(f"{text} has more than the {element.bits} bits of {element}")
    digits, expected = len(text) - len("0x"), -(-element.bits // 4)
    if digits != expected:
        rule = "size(hexadecimal_digits) = num_bits(float_type) / 4"
        _note(notes, "C2", f"{rule}, got {digits} in {_shown(text)} and {expected} for {element}")
    return bits


def parse_integers(texts: list[str], element: ElementType, notes: Notes | None = None) -> Array:
    """Return integer elements from decimals and `0x` literals; raise ValueError when one is out of range."""
    low, high = _integer_range(element)
    try:
        wide = np.array(texts, dtype=np.int64)
        if not (wide.size and (int(wide.min()) < low or int(wide.max()) > high)):
            return wide.astype(element.dtype)
    except (ValueError, OverflowError):
        pass
    values = [parse_integer(text, element, notes) for text in texts]
    wide = np.array(values, dtype=np.int64 if low < 0 else np.uint64)
    return wide.astype(element.dtype)


def _integer_range(element: ElementType) -> tuple[int, int]:
    return storage_range(element) if element.is_integer else (-(2**63), 2**63 - 1)


def parse_integer(text: str, element: ElementType, notes: Notes | None = None) -> int:
    """Return an integer element from a decimal or `0x` literal; raise ValueError when it is out of range."""
    low, high = _integer_range(element)
    if len(text) > 64:
        raise ValueError(f"integer constant of {len(text)} digits is out of range for {element}")
    if "x" in text:
        bits = int(text, 16)
        if not low <= bits <= mask(element):
            raise ValueError(f"integer constant {text} is out of range for {element}")
        return _wrapped(bits, text, element, notes) if bits > high else bits
    value = int(text)
    if low < 0 and high < value <= mask(element):
        return _wrapped(value, text, element, notes)
    if not low <= value <= high:
        raise ValueError(f"integer constant {text} is out of range for {element}")
    return value


def _wrapped(value: int, text: str, element: ElementType, notes: Notes | None) -> int:
    """Return the signed integer whose bit pattern is `value`: MLIR accepts the unsigned spelling, e.g. 255 for i8."""
    _note(notes, "C1", f"is_wellformed(integer_literal, integer_type), got {text} for {element}")
    return value - (1 << element.bits)


def parse_booleans(texts: list[str], notes: Notes | None = None) -> Array:
    """Return booleans from `true`, `false`, and the integers 0 and 1, which MLIR accepts."""
    for text in sorted(set(texts) - {"true", "false"})[:1]:
        _note(notes, "C1", f"is_wellformed(boolean_literal, i1), got {_shown(text)}")
    known = {"true": True, "false": False, "1": True, "0": False, "-1": True, "0x1": True, "0x0": False}
    try:
        return np.array([known[text] for text in texts], dtype=np.bool_)
    except KeyError as error:
        raise ValueError(f"expected true or false, got '{error.args[0]}'") from None


def parse_elements(texts: list[str], element: ElementType, notes: Notes | None = None) -> Array:
    """Return a flat array of `element` (not complex) from its elements' texts; raise ValueError for a wrong one."""
    if element.is_boolean:
        return parse_booleans(texts, notes)
    if element.is_float:
        return parse_decimals(texts, element, notes)
    return parse_integers(texts, element, notes)


# --- raw bytes -------------------------------------------------------------------------------------------------------


def hex_bytes(digits: str) -> bytes:
    """Return the bytes of hexadecimal digits; raise ValueError for an odd number of digits or any other character."""
    if len(digits) % 2:
        raise ValueError("hex string has an odd number of digits")
    try:
        return binascii.unhexlify(digits)
    except (binascii.Error, ValueError):
        odd = next((c for c in digits if c not in _HEX_DIGITS), "?")
        raise ValueError(f"hex string has the character {odd!r}") from None


def raw_array(data: bytes | memoryview, element: ElementType, count: int) -> Array:
    """Return a flat array from little-endian element storage, of `count` elements or one (a splat); ValueError for
    others.

    Booleans may be packed, eight per byte, or one per byte; sub-byte integers and floats have a byte each.
    """
    if element.is_boolean:
        return _raw_booleans(data, count)
    width = element.dtype.itemsize
    if len(data) not in (count * width, width):
        raise ValueError(f"{len(data)} bytes of data for {count} elements of type {element}, {width} bytes each")
    return _canonical(np.frombuffer(data, dtype=element.dtype.newbyteorder("<")), element)


def _canonical(array: Array, element: ElementType) -> Array:
    """Return sub-byte integers as ml_dtypes keeps them; the unused bits are ignored."""
    if element.bits >= 8 or element.is_float:
        return array
    return array.view(np.uint8).astype(np.int64).astype(np.int8).astype(element.dtype)


def _raw_booleans(data: bytes | memoryview, count: int) -> Array:
    if len(data) == count and count != 1:
        return np.frombuffer(data, dtype=np.uint8).astype(np.bool_)
    if len(data) == (count + 7) // 8 or len(data) == 1:
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        return bits[:count].astype(np.bool_) if len(data) != 1 or count <= 8 else _splat_of_booleans(data)
    raise ValueError(f"{len(data)} bytes of data for {count} booleans")


def _splat_of_booleans(data: bytes | memoryview) -> Array:
    if data[0] not in (0, 1, 255):
        raise ValueError("one byte of data for more than 8 booleans must be 00, 01 or ff")
    return np.array([data[0] != 0])
