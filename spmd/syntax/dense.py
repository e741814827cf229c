"""Parse `dense<...>` literals: from the text between the brackets to an array, without a loop over elements.

The nesting is checked as a whole: the text with a 0 for each element must be the pattern that the shape prescribes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import numpy as np

from spmd.ir.attributes import DenseAttr
from spmd.support.arrays import Array
from spmd.syntax.literals import Notes, float_array, hex_bytes, parse_elements, raw_array
from spmd.types import ElementType, QuantizedType, TensorType, storage_range

_BRACKETS = str.maketrans("", "", "[]()")
_SPACES = str.maketrans("", "", " \t\r\n")
_LEADING_BRACKETS = re.compile(r"[\[\s]*")
_NO_BRACKETS_OR_COMMAS = re.compile(r"[^\[\](),]+")
_SPOILT = re.compile(r"[^\s\d.eE+\-xa-fA-F,\[\]()]|\d\s+\d")
_SPOILT_BOOLEANS = re.compile(r"[^\struefals01x,\[\]\-]")
_COMPLEX = re.compile(r"\([^()]*\)")
_SIGN = re.compile(r"-[ \t]+(?=\d)")
_MANY = 64
_HIGHEST_RANK = 64


def dense(body: str, type: TensorType, notes: Notes) -> DenseAttr:
    """Return the constant `dense<body> : type`; ValueError says what is wrong with it.

    Constraints of the specification that it violates and MLIR does not have are appended to `notes`.
    """
    element, shape = checked_type(type)
    body = body.strip()
    if "- " in body:
        body = _SIGN.sub("-", body)
    part = element.real
    if (_SPOILT_BOOLEANS if element.is_boolean else _SPOILT).search(body):
        raise ValueError(f"expected elements of type {element}, got {_shortened(body)}")
    if not body:
        if type.size:
            raise ValueError(f"expected {type.size} elements for {type}, got none")
        return _dense_attribute(np.empty(shape, element.dtype), type)
    if "," in (_COMPLEX.sub("0", body) if element.is_complex else body) and body[0] != "[":
        body = f"[{body}]"  # elements of one dimension need no brackets (specification: DenseElements)
    if body[0] != "[":
        return splat(_scalar(body, element, notes), type)
    size = type.size
    if size > len(body):
        raise ValueError(f"inferred shape of elements literal does not match type {type}: it has too few elements")
    nesting = _NO_BRACKETS_OR_COMMAS.sub("0", body.translate(_SPACES))
    if nesting != _pattern(shape, "(0,0)" if element.is_complex else "0"):
        raise ValueError(f"inferred shape of elements literal ({_shape_of(body, element)}) does not match type {type}")
    count = size * (2 if element.is_complex else 1)
    if not size:
        if body.translate(_BRACKETS).translate(_SPACES).strip(","):
            raise ValueError(f"expected no elements for {type}")
        return _dense_attribute(np.empty(shape, element.dtype), type)
    flat = _numbers(body.translate(_BRACKETS), part, count, notes)
    return _dense_attribute(flat.view(element.dtype).reshape(shape), type)


def dense_hex(digits: str, type: TensorType) -> DenseAttr:
    """Return the constant `dense<"0xdigits"> : type`; the digits are the bytes of all elements or of one."""
    return dense_raw(hex_bytes(digits), type)


def dense_raw(data: bytes | memoryview, type: TensorType) -> DenseAttr:
    """Return the constant whose elements' bytes are `data`."""
    element, shape = checked_type(type)
    flat = raw_array(data, element, type.size)
    if flat.size == 1 and type.rank:
        return splat(flat.reshape(()), type)
    return _dense_attribute(flat.reshape(shape), type)


def splat(scalar: Array, type: TensorType) -> DenseAttr:
    """Return a broadcast view of one element; ValueError when NumPy has no array of that shape."""
    try:
        return DenseAttr(np.broadcast_to(_frozen(scalar), type.static_shape), type)
    except ValueError:
        raise ValueError(f"a constant of type {type} is larger than any array") from None


def checked_type(type: object) -> tuple[ElementType, tuple[int, ...]]:
    """Return the storage element type and the shape; ValueError for a type that constants cannot have."""
    if not isinstance(type, TensorType):
        raise ValueError(f"elements literal must be a shaped type, got {type}")
    if not type.is_static:
        raise ValueError(f"elements literal type must have static shape, got {type}")
    element = type.element_type.storage if isinstance(type.element_type, QuantizedType) else type.element_type
    if not isinstance(element, ElementType) or element.numpy is None:
        raise ValueError(f"no constant has elements of type {element}")
    if type.rank > _HIGHEST_RANK:
        raise ValueError(f"a constant has at most {_HIGHEST_RANK} dimensions")
    return element, type.static_shape


def _dense_attribute(array: Array, type: TensorType) -> DenseAttr:
    return DenseAttr(_frozen(array), type)


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _scalar(body: str, element: ElementType, notes: Notes) -> Array:
    if not element.is_complex:
        return parse_elements([body], element, notes).reshape(())
    parts = re.fullmatch(r"\(([^,()]*),([^,()]*)\)", body)
    if parts is None:
        raise ValueError(f"expected a pair such as (1.0, 2.0), got {_shortened(body)}")
    both = [parts[1].strip(), parts[2].strip()]
    return parse_elements(both, element.real, notes).view(element.dtype).reshape(())


def _pattern(shape: tuple[int, ...], leaf: str) -> str:
    text = leaf
    for extent in reversed(shape):
        text = "[" + ",".join([text] * extent) + "]"
    return text


def _shape_of(body: str, element: ElementType) -> str:
    """Return how many elements a nested list has, and how deep it is, for an error message."""
    depth = _LEADING_BRACKETS.match(body)[0].count("[")  # type: ignore[index]
    count = body.count("(") if element.is_complex else body.count(",") + 1
    return f"{count} element{'s' if count != 1 else ''} in {depth} level{'s' if depth != 1 else ''} of brackets"


def _shortened(text: str) -> str:
    return f"'{text[:40]}...'" if len(text) > 40 else f"'{text}'"


def _numbers(text: str, element: ElementType, count: int, notes: Notes) -> Array:
    def texts() -> list[str]:
        return [entry.strip() for entry in text.split(",")]

    if count > _MANY and not element.is_boolean and "x" not in text:
        many = _many_numbers(text, element, count, texts)
        if many is not None:
            return many
    return parse_elements(texts(), element, notes)


def _many_numbers(text: str, element: ElementType, count: int, texts: Callable[[], list[str]]) -> Array | None:
    """Return all numbers of a long list, parsed at once; None if the slower, exact parser is needed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            if element.is_float:
                values = np.fromstring(text, dtype=np.float64, sep=",")
                array = float_array(values, texts, element) if len(values) == count else None
                return array if array is not None and np.isfinite(array).all() else None
            values = np.fromstring(text, dtype=np.int64, sep=",")
        except (ValueError, DeprecationWarning):
            return None
    low, high = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))
    if element.is_integer:
        low, high = max(low + 1, storage_range(element)[0]), min(high - 1, storage_range(element)[1])
    if len(values) != count or "." in text or not (low <= int(values.min()) and int(values.max()) <= high):
        return None
    return values.astype(element.dtype)
