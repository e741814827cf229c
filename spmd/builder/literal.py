"""Literals: concrete inputs and outputs of a computation, with their memory layout and HLO text.

Source: "Moving data into and out of XLA" and "Layout" of the TensorFlow compiler framework document; the text is
HLO's for constants.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spmd.builder.layout import Layout
from spmd.builder.shape import ElementLike, PrimitiveType, Shape
from spmd.support.arrays import Array, DType, Nested, extreme


class Literal:
    """An array or a tuple of literals.

    `value` is anything NumPy accepts, or a tuple of values; plain Python numbers become S32, F32, PRED or C64 (S64
    if 32 bits are too few). `shape` fixes element type, dimensions and layout; `layout` the layout alone.
    """

    def __init__(self, value: object, shape: Shape | None = None, layout: Layout | Sequence[int] | None = None) -> None:
        self._elements: tuple[Literal, ...] = ()
        self._array: Array | None = None
        if isinstance(value, Literal):
            value = value.value()
        if isinstance(value, tuple) and (shape is None or shape.is_tuple()):
            parts = shape.parts if shape is not None else (None,) * len(value)
            if len(parts) != len(value):
                raise ValueError(f"literal: {len(value)} values for the tuple shape {shape}")
            self._elements = tuple(Literal(v, part) for v, part in zip(value, parts, strict=True))
            self._shape = Shape.tuple_shape([element.shape() for element in self._elements])
            return
        array = as_array(value, None if shape is None else shape.primitive_type)
        if shape is not None and array.shape != shape.sizes:
            raise ValueError(f"literal: an array of dimensions {list(array.shape)} for the shape {shape.brief}")
        if layout is not None and not isinstance(layout, Layout):
            layout = Layout(layout)
        own_shape = shape or Shape.array_shape(array.dtype, array.shape)
        self._shape = own_shape if layout is None else own_shape.with_layout(layout)
        self._array = array

    @classmethod
    def from_memory(cls, memory: object, shape: Shape) -> Literal:
        """Return the literal whose linear memory, in the layout of `shape`, is `memory` (padding is dropped)."""
        flat = np.asarray(memory, dtype=shape.element_type())
        if shape.order is None:
            raise ValueError(f"a value of shape {shape} has no linear memory")
        return cls(shape.order.from_memory(flat, shape.sizes), shape)

    def shape(self) -> Shape:
        return self._shape

    def value(self) -> Nested:
        """Return the array, or a tuple of arrays."""
        return tuple(element.value() for element in self._elements) if self._array is None else self._array

    to_numpy = value

    def tuple_elements(self) -> tuple[Literal, ...]:
        return self._elements

    def memory(self) -> Array:
        """Return linear memory: the elements in layout order, padding included, as a 1-dimensional array."""
        array = self.array()
        assert self._shape.order is not None
        return self._shape.order.to_memory(array)

    def array(self) -> Array:
        """Return the array; raise ValueError for a tuple."""
        if self._array is None:
            raise ValueError(f"a literal of shape {self._shape} is no array")
        return self._array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.array(), dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        """Compare shapes and values; NaN equals NaN."""
        if not isinstance(other, Literal) or not self._shape.compatible(other._shape):
            return False
        if self._array is None:
            return self._elements == other._elements
        one, two = self._array, other.array()
        return bool(np.all((one == two) | ((one != one) & (two != two))))

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """Return `s32[3] {0, 5, 6}`; a tuple in parentheses."""
        if self._array is None:
            return "(" + ", ".join(map(str, self._elements)) + ")"
        return f"{self._shape.brief} {literal_text(self._array)}"

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str) -> Literal:
        """Read `s32[3] {0, 5, 6}`, also with a layout before the values; ValueError for anything else."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no literal such as s32[3] {{0, 5, 6}}")
        shape = Shape.parse(match["type"] + (match["layout"] or ""))
        return cls(parse_values(match["values"], shape), shape)


#: A brace followed by only numbers and then something else is a layout.
_TEXT = re.compile(r"(?P<type>\w+\[[^\]]*\])\s*(?P<layout>\{[\d,\s]*\}(?=\s*\S))?\s*(?P<values>.*)", re.S)


def as_array(value: object, type: ElementLike | None = None) -> Array:
    """Return `value` as a new C-ordered array; see Literal for the element types of Python numbers."""
    if type is not None:
        return np.array(value, dtype=PrimitiveType.of(type).dtype, order="C")
    array = np.array(value, order="C")
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        return array
    narrow = {"f": np.float32, "c": np.complex64, "i": np.int32, "u": np.int32}.get(array.dtype.kind)
    if array.dtype.kind in "iu" and array.size and not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31:
        return array
    if narrow is None and array.dtype != np.bool_:
        raise ValueError(f"{value!r} is no array of numbers")
    return array if narrow is None or _holds_numpy(value) else array.astype(narrow)


def _holds_numpy(value: object) -> bool:
    """Return whether the leaves of nested lists include NumPy scalars, whose type is known."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (np.generic, np.ndarray))


def literal_text(array: Array) -> str:
    """Return the values in HLO's syntax: `{ { 1, 2 }, { 3, 4 } }`, a vector `{1, 2}`, a scalar `1`."""
    items = _items(array)
    if array.ndim == 0:
        return str(items[0])
    for depth, size in enumerate(reversed(array.shape)):
        flat = array.ndim == 1 and depth == 0
        count = max(1, int(np.prod(array.shape[: array.ndim - 1 - depth], dtype=np.int64)))
        if array.size == 0 and 0 in array.shape[: array.ndim - 1 - depth]:
            items = []
            continue
        rows = [items[i * size : (i + 1) * size] for i in range(count)]
        items = ["{" + ", ".join(row) + "}" if flat else "{ " + ", ".join(row) + " }" for row in rows]
    return items[0] if items else "{}"


def _items(array: Array) -> list[str]:
    flat = array.reshape(-1)
    if array.dtype == np.bool_:
        return ["1" if x else "0" for x in flat.tolist()]
    if array.dtype.kind in "iu":
        return list(map(str, flat.tolist()))
    if array.dtype.kind == "c":
        return [f"({real}, {imag})" for real, imag in zip(_items(flat.real), _items(flat.imag), strict=True)]
    return [str(x).removesuffix(".0") for x in flat]  # the shortest text that reads back to the same value


_WORDS = {"true": "1", "false": "0"}


def parse_values(text: str, shape: Shape) -> Array:
    """Return the array of `shape` spelled by HLO's `text`; raise ValueError if the count or a value is wrong."""
    if "..." in text:
        raise ValueError(
            f"the values of a constant of shape {shape} are left out ({{...}}): print large constants, by XLA's "
            "HloPrintOptions.print_large_constants or --xla_dump_large_constants"
        )
    text = re.sub(r"/\*.*?\*/", "", text)
    dtype = shape.element_type()
    if dtype.kind == "c":
        pairs = re.findall(r"\(([^()]*)\)", text)
        parts = [part.strip() for pair in pairs for part in pair.split(",")]
        flat = _numbers(parts, np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)).view(dtype)
    else:
        words = (
            re.sub(r"nan\(0x[0-9a-fA-F]+\)", "nan", text).replace("{", " ").replace("}", " ").replace(",", " ").split()
        )
        flat = _numbers(words, dtype)
    if flat.size == 1 and "{" not in text and shape.rank():
        return _first(flat, shape)
    if flat.size != shape.size():
        raise ValueError(f"{flat.size} values for a constant of shape {shape}, which holds {shape.size()}")
    if flat.size and _braces(text) != _expected_braces(shape.sizes):
        raise ValueError(f"the values of a constant of shape {shape} stand in other braces than its dimensions")
    return flat.reshape(shape.sizes)


_MOST = 1 << 28


def _first(value: Array, shape: Shape) -> Array:
    """Return the array with first element `value` and zeros elsewhere: XLA's reading of a number for an array."""
    if not value.any():
        return np.broadcast_to(value.reshape(()), shape.sizes)
    if shape.size() > _MOST:
        raise ValueError(f"one value for a constant of shape {shape.brief}, of which {_MOST} elements are read at most")
    array = np.zeros(shape.sizes, value.dtype)
    array.reshape(-1)[:1] = value[: array.size]
    return array


def _braces(text: str) -> str:
    """Return the braces and commas of a constant's text, with a letter in place of each value."""
    text = re.sub(r"\([^()]*\)|\s", lambda match: "v" if match[0][0] == "(" else "", text)
    return re.sub(r"[^{},]+", "v", text)


def _expected_braces(sizes: Sequence[int]) -> str:
    text = "v"
    for size in reversed(sizes):
        text = "{" + ",".join([text] * size) + "}"
    return text


def _numbers(words: list[str], dtype: DType) -> Array:
    if dtype == np.bool_:
        return np.array([_WORDS.get(word, word) for word in words], dtype=np.str_).astype(np.int64).astype(np.bool_)
    if not words:
        return np.zeros(0, dtype)
    texts = np.array(words, dtype=np.str_)
    if dtype == np.uint64 and words[0].startswith("-"):  # as the bits of a signed number
        return texts.astype(np.int64).view(dtype)
    wide = dtype if dtype.kind in "iu" and dtype.itemsize >= 1 and dtype.char != "V" else np.dtype(np.float64)
    return texts.astype(np.float64 if wide.kind == "f" else wide).astype(dtype)


class LiteralUtil:
    """The literal constructors of XLA's C++ interface."""

    @staticmethod
    def CreateR0(value: object, type: ElementLike | None = None) -> Literal:
        return _of_rank(value, 0, type)

    @staticmethod
    def CreateR1(values: object, type: ElementLike | None = None) -> Literal:
        return _of_rank(values, 1, type)

    @staticmethod
    def CreateR2(values: object, type: ElementLike | None = None) -> Literal:
        return _of_rank(values, 2, type)

    @staticmethod
    def MinValue(type: ElementLike) -> Literal:
        """Return the least value: -inf if the type has it. The identity of a maximum."""
        return Literal(extreme(PrimitiveType.of(type).dtype, largest=False))

    @staticmethod
    def MaxValue(type: ElementLike) -> Literal:
        """Return the largest value: inf if the type has it. The identity of a minimum."""
        return Literal(extreme(PrimitiveType.of(type).dtype, largest=True))

    @staticmethod
    def Zero(type: ElementLike) -> Literal:
        return Literal(np.zeros((), PrimitiveType.of(type).dtype))

    @staticmethod
    def One(type: ElementLike) -> Literal:
        return Literal(np.ones((), PrimitiveType.of(type).dtype))


def _of_rank(value: object, rank: int, type: ElementLike | None) -> Literal:
    array = as_array(value, type)
    if array.ndim != rank:
        raise ValueError(f"the value must have rank {rank}, got {array.ndim}")
    return Literal(array)
