"""Shapes of the builder's values: element type, dimensions and layout, `f32[2,3]{1,0}` as text.

Source: "Shapes and Layout" of the TensorFlow compiler framework document, and the notation of the XlaBuilder
operation semantics.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import overload

from spmd import types as t
from spmd.builder.layout import Layout
from spmd.support.arrays import DType


class PrimitiveType(enum.Enum):
    """Element types under XLA's names; the value is the spelling in HLO text."""

    PRED = "pred"
    S2 = "s2"
    S4 = "s4"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    U2 = "u2"
    U4 = "u4"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F4E2M1FN = "f4e2m1fn"
    F8E3M4 = "f8e3m4"
    F8E4M3 = "f8e4m3"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E4M3B11FNUZ = "f8e4m3b11fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0FNU = "f8e8m0fnu"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    C64 = "c64"
    C128 = "c128"
    TUPLE = "tuple"
    TOKEN = "token"
    OPAQUE_TYPE = "opaque"

    @property
    def element_type(self) -> t.ElementType:
        """Return the element type of a tensor; raise ValueError for tuple, token and opaque."""
        type = _ELEMENT_TYPES.get(self)
        if type is None:
            raise ValueError(f"{self.value} is no type of array elements")
        return type

    @property
    def is_float(self) -> bool:
        """Return whether elements are real floating-point numbers."""
        type = _ELEMENT_TYPES.get(self)
        return type is not None and type.is_float

    @property
    def dtype(self) -> DType:
        return self.element_type.dtype

    @classmethod
    def of(cls, type_name: PrimitiveType | t.ElementType | DType | type | str) -> PrimitiveType:
        """Return the primitive type named or held by an XLA name ("f32", "F32"), element type, or NumPy dtype."""
        if isinstance(type_name, PrimitiveType):
            return type_name
        if isinstance(type_name, t.ElementType):
            kind = _PRIMITIVE_TYPES.get(type_name)
            if kind is None:
                raise ValueError(f"XLA has no primitive type for {type_name}")
            return kind
        if isinstance(type_name, str) and type_name.lower() in _BY_TEXT:
            return _BY_TEXT[type_name.lower()]
        return cls.of(t.element_type_of(type_name))


def _element_name(primitive: PrimitiveType) -> str | None:
    text = primitive.value
    fixed = {"pred": "i1", "c64": "complex<f32>", "c128": "complex<f64>"}
    if text in fixed:
        return fixed[text]
    if re.fullmatch(r"[su]\d+", text):
        return ("i" if text[0] == "s" else "ui") + text[1:]
    return next((name for name in t.ELEMENT_TYPES if name.lower() == text), None)


_BY_TEXT = {primitive.value: primitive for primitive in PrimitiveType}
_ELEMENT_TYPES = {p: t.ELEMENT_TYPES[name] for p in PrimitiveType if (name := _element_name(p)) is not None}
_PRIMITIVE_TYPES = {element: primitive for primitive, element in _ELEMENT_TYPES.items()}

PRED, TUPLE, TOKEN, OPAQUE_TYPE = (PrimitiveType[name] for name in ("PRED", "TUPLE", "TOKEN", "OPAQUE_TYPE"))
S2, S4, S8, S16, S32, S64 = (PrimitiveType[f"S{bits}"] for bits in (2, 4, 8, 16, 32, 64))
U2, U4, U8, U16, U32, U64 = (PrimitiveType[f"U{bits}"] for bits in (2, 4, 8, 16, 32, 64))
F16, BF16, F32, F64 = (PrimitiveType[name] for name in ("F16", "BF16", "F32", "F64"))
C64, C128 = PrimitiveType.C64, PrimitiveType.C128

ElementLike = PrimitiveType | t.ElementType | DType | type | str


@dataclass(frozen=True, init=False, repr=False)
class Shape:
    """The shape of an array, a tuple or a token.

    `sizes` are the dimensions' sizes, or bounds if `dynamic` marks the dimension; `order` is the layout of an array,
    row-major unless given. `compatible` ignores layouts, which do not affect values.
    """

    primitive_type: PrimitiveType
    sizes: tuple[int, ...]
    dynamic: tuple[bool, ...]
    parts: tuple[Shape, ...]
    order: Layout | None

    def __init__(
        self,
        type: PrimitiveType | str,
        dimensions: Sequence[int] = (),
        dynamic_dimensions: Sequence[bool] = (),
        tuple_shapes: Sequence[Shape] = (),
        layout: Layout | Sequence[int] | None = None,
    ) -> None:
        if isinstance(type, str) and ("[" in type or "(" in type):
            parsed = Shape.parse(type)
            for field in fields(Shape):
                object.__setattr__(self, field.name, getattr(parsed, field.name))
            return
        sizes = tuple(int(d) for d in dimensions)
        if any(size < 0 for size in sizes):
            raise ValueError(f"shape: negative dimension size in {list(sizes)}")
        if not isinstance(layout, Layout) and (layout is not None or type not in (TUPLE, TOKEN)):
            layout = Layout.row_major(len(sizes)) if layout is None else Layout(layout)
        if layout is not None:
            layout.check(sizes)
        dynamic = tuple(bool(d) for d in dynamic_dimensions) or (False,) * len(sizes)
        if len(dynamic) != len(sizes):
            raise ValueError(f"shape: {len(dynamic)} dynamic_dimensions for {len(sizes)} dimensions")
        object.__setattr__(self, "primitive_type", PrimitiveType.of(type))
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "dynamic", dynamic)
        object.__setattr__(self, "parts", tuple(tuple_shapes))
        object.__setattr__(self, "order", layout)

    @classmethod
    def array_shape(
        cls,
        type: ElementLike,
        dimensions: Sequence[int] = (),
        layout: Layout | Sequence[int] | None = None,
        dynamic_dimensions: Sequence[bool] = (),
    ) -> Shape:
        """Return an array's shape; `type` a PrimitiveType, NumPy dtype or name, `layout` a Layout or minor_to_major."""
        primitive = PrimitiveType.of(type)
        primitive.element_type  # noqa: B018  raises for tuple and token
        return cls(primitive, dimensions, dynamic_dimensions, layout=layout)

    @classmethod
    def scalar_shape(cls, type: ElementLike) -> Shape:
        return cls.array_shape(type)

    @classmethod
    def tuple_shape(cls, shapes: Sequence[Shape]) -> Shape:
        return cls(TUPLE, tuple_shapes=shapes)

    @classmethod
    def token_shape(cls) -> Shape:
        return cls(TOKEN)

    @classmethod
    def of(cls, type: t.Type) -> Shape:
        """Return the shape of a value of `type`; raise ValueError if XLA has none."""
        return _shape_of(type)

    @property
    def ir_type(self) -> t.Type:
        """Return the type of a value of this shape."""
        if self.is_tuple():
            return t.TupleType(tuple(shape.ir_type for shape in self.parts))
        return t.TOKEN if self.is_token() else self.tensor

    @property
    def tensor(self) -> t.TensorType:
        """Return the tensor type of an array; raise ValueError otherwise."""
        element = self.primitive_type.element_type
        if not any(self.dynamic):
            return t.TensorType(self.sizes, element)
        pairs = list(zip(self.sizes, self.dynamic, strict=True))
        bounds = tuple(size if dynamic else None for size, dynamic in pairs)
        return t.TensorType(tuple(None if dynamic else size for size, dynamic in pairs), element, bounds)

    @overload
    def dimensions(self, number: None = None) -> tuple[int, ...]: ...

    @overload
    def dimensions(self, number: int) -> int: ...

    def dimensions(self, number: int | None = None) -> tuple[int, ...] | int:
        """Return the sizes of all dimensions as a tuple, or the size of dimension `number`."""
        return self.sizes if number is None else self.sizes[number]

    def dynamic_dimensions(self) -> tuple[bool, ...]:
        return self.dynamic

    def tuple_shapes(self) -> tuple[Shape, ...]:
        return self.parts

    def layout(self) -> Layout | None:
        return self.order

    def minor_to_major(self) -> tuple[int, ...]:
        """Return the order of dimensions in memory, the fastest varying first."""
        return self.order.minor_to_major if self.order is not None else ()

    def element_type(self) -> DType:
        """Return the NumPy dtype of the elements; `xla_element_type` is the PrimitiveType."""
        return self.primitive_type.dtype

    numpy_dtype = element_type

    def xla_element_type(self) -> PrimitiveType:
        return self.primitive_type

    def is_array(self) -> bool:
        return not (self.is_tuple() or self.is_token())

    def is_tuple(self) -> bool:
        return self.primitive_type is TUPLE

    def is_token(self) -> bool:
        return self.primitive_type is TOKEN

    def is_static(self) -> bool:
        return not any(self.dynamic) and all(shape.is_static() for shape in self.parts)

    def is_dynamic(self) -> bool:
        return not self.is_static()

    def at_bounds(self) -> Shape:
        """Return the static shape with every dynamic dimension at its bound."""
        parts = [part.at_bounds() for part in self.parts]
        return Shape(self.primitive_type, self.sizes, (), parts, self.order)

    def rank(self) -> int:
        """Return the number of dimensions."""
        return len(self.sizes)

    def true_rank(self) -> int:
        """Return the number of dimensions whose size is greater than 1."""
        return sum(size > 1 for size in self.sizes)

    def size(self) -> int:
        """Return the number of elements of an array."""
        return math.prod(self.sizes)

    def leaves(self) -> tuple[Shape, ...]:
        """Return the arrays and tokens of a tuple in order; the shape itself otherwise."""
        return tuple(leaf for shape in self.parts for leaf in shape.leaves()) if self.is_tuple() else (self,)

    def leaf_count(self) -> int:
        return len(self.leaves())

    def with_layout(self, layout: Layout | Sequence[int] | None) -> Shape:
        return Shape(self.primitive_type, self.sizes, self.dynamic, self.parts, layout)

    def with_major_to_minor_layout_if_absent(self) -> Shape:
        """Return the shape itself: every array has a layout already."""
        return self

    def compatible(self, other: Shape) -> bool:
        """Return whether both shapes are equal apart from layouts."""
        return (
            self.primitive_type is other.primitive_type
            and self.sizes == other.sizes
            and self.dynamic == other.dynamic
            and len(self.parts) == len(other.parts)
            and all(map(Shape.compatible, self.parts, other.parts))
        )

    def __str__(self) -> str:
        return self._text(layouts=True)

    @property
    def brief(self) -> str:
        """Return the text without layouts: `f32[2,3]`."""
        return self._text(layouts=False)

    def _text(self, *, layouts: bool) -> str:
        if self.is_tuple():
            return "(" + ", ".join(part._text(layouts=layouts) for part in self.parts) + ")"
        marks = ("<=" if dynamic else "" for dynamic in self.dynamic)
        sizes = ",".join(f"{mark}{size}" for mark, size in zip(marks, self.sizes, strict=True))
        return f"{self.primitive_type.value}[{sizes}]{self.order if layouts and self.sizes else ''}"

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read `f32[2,3]{1,0}`, `(f32[], s32[<=4])`, `token[]`; ValueError for anything else."""
        shape, end = parse_shape(text, 0)
        if text[end:].strip():
            raise ValueError(f"{text!r} is no shape: {text[end:]!r} is left over")
        return shape


@lru_cache(maxsize=1 << 12)
def _shape_of(type: t.Type) -> Shape:
    if isinstance(type, t.TensorType) and isinstance(type.element_type, t.ElementType):
        bounds = type.bounds or (None,) * type.rank
        if any(size is None and bound is None for size, bound in zip(type.shape, bounds, strict=True)):
            raise ValueError(f"{type} has an unbounded dimension")
        sizes = [bound if size is None else size for size, bound in zip(type.shape, bounds, strict=True)]
        dynamic = [size is None for size in type.shape]
        return Shape(PrimitiveType.of(type.element_type), [s or 0 for s in sizes], dynamic)
    if isinstance(type, t.TupleType):
        return Shape.tuple_shape([_shape_of(part) for part in type.types])
    if isinstance(type, t.TokenType):
        return Shape.token_shape()
    raise ValueError(f"XLA has no shape for a value of type {type}")


#: Maximum nesting of tuples.
_DEEPEST = 64
_LARGEST = 2**63 - 1
_SIZE = re.compile(r"\d{1,19}", re.ASCII)
_ARRAY = re.compile(r"\s*([a-z]\w*)\[([^\]]*)\](?:\s*(\{[^{}]*\}))?")
_COMMENT = re.compile(r"(?:\s|/\*.*?\*/)*")


def parse_shape(text: str, start: int, depth: int = 1) -> tuple[Shape, int]:
    """Return the shape at `start` of `text` and its end; raise ValueError if there is none."""
    if depth > _DEEPEST:
        raise ValueError(f"tuple shapes nest deeper than {_DEEPEST} levels")
    start = _skip(text, start)
    if text[start : start + 1] == "(":
        parts: list[Shape] = []
        end = _skip(text, start + 1)
        while text[end : end + 1] != ")":
            part, end = parse_shape(text, end, depth + 1)
            parts.append(part)
            end = _skip(text, end)
            if text[end : end + 1] == ",":
                end = _skip(text, end + 1)
            elif text[end : end + 1] != ")":
                raise ValueError(f"expected , or ) in the tuple shape {text[start : end + 1]!r}")
        return Shape.tuple_shape(parts), end + 1
    match = _ARRAY.match(text, start)
    if match is None or match[1] not in _BY_TEXT:
        raise ValueError(f"{text[start : start + 40]!r} is no shape such as f32[2,3]{{1,0}}")
    return _array_shape(*match.groups()), match.end()


@lru_cache(maxsize=1 << 12)
def _array_shape(name: str, dimensions: str, layout: str | None) -> Shape:
    sizes, dynamic = [], []
    for part in [piece.strip() for piece in dimensions.split(",")] if dimensions.strip() else []:
        bounded = part.startswith("<=")
        size = part.removeprefix("<=")
        if not _SIZE.fullmatch(size) or int(size) > _LARGEST:
            raise ValueError(f"{f'{name}[{dimensions}]'[:80]!r}: {part[:40]!r} is no dimension size")
        sizes.append(int(size))
        dynamic.append(bounded)
    return Shape(_BY_TEXT[name], sizes, dynamic, layout=Layout.parse(layout) if layout else None)


def _skip(text: str, start: int) -> int:
    match = _COMMENT.match(text, start)
    return match.end() if match else start


@dataclass(frozen=True)
class ProgramShape:
    """The shapes of a computation's parameters and of its result."""

    parameter_shapes: tuple[Shape, ...]
    result_shape: Shape
    parameter_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({', '.join(shape.brief for shape in self.parameter_shapes)}) -> {self.result_shape.brief}"


class ShapeUtil:
    """The shape constructors of XLA's C++ interface."""

    @staticmethod
    def MakeShape(type: ElementLike, dimensions: Sequence[int] = ()) -> Shape:
        return Shape.array_shape(type, dimensions)

    @staticmethod
    def MakeShapeWithLayout(type: ElementLike, dimensions: Sequence[int], minor_to_major: Sequence[int]) -> Shape:
        return Shape.array_shape(type, dimensions, minor_to_major)

    @staticmethod
    def MakeTupleShape(shapes: Sequence[Shape]) -> Shape:
        return Shape.tuple_shape(shapes)

    @staticmethod
    def MakeTokenShape() -> Shape:
        return Shape.token_shape()
