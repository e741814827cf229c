"""Types of the language: element types, tensors, quantized tensors, tokens, tuples, futures, functions.

Types are interned: two equal types are one object, so equality is identity and a type is a cheap dictionary key.
Source: StableHLO specification, "Types"; quantized types also "Quantized tensors" and the quant dialect's spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import ml_dtypes
import numpy as np

from spmd.arrays import Array

_T = TypeVar("_T")


class _Interned(type):
    """Makes a class hand out one instance for equal fields."""

    _table: ClassVar[dict[tuple[Any, ...], Any]] = {}

    def __call__(cls: type[_T], *args: Any, **kwargs: Any) -> _T:
        instance = super().__call__(*args, **kwargs)  # type: ignore[misc]
        key = (cls, *(getattr(instance, field.name) for field in fields(instance)))
        return _Interned._table.setdefault(key, instance)  # type: ignore[no-any-return]


#: What writes `str(type)` for types of many parts, which may share them (see `TypeOfTypes`).
Speller = Callable[["TypeOfTypes"], "str | None"]
_speller: ContextVar[Speller | None] = ContextVar("speller", default=None)

#: Of how many parts, each counted wherever it stands, and how deep, a type is written out.
MOST_PARTS = 1 << 18
DEEPEST = 200


@contextmanager
def spelled_by(speller: Speller) -> Iterator[None]:
    """While the types that `speller` has a text for are written as that text."""
    token = _speller.set(speller)
    try:
        yield
    finally:
        _speller.reset(token)


class Type(metaclass=_Interned):
    """A type of the language. `str(type)` is its textual form."""

    __slots__ = ()
    #: How many types it is made of, each counted wherever it stands, and how deep they nest.
    parts: ClassVar[int] = 1
    depth: ClassVar[int] = 1

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: dict[int, Any]) -> _T:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class ElementType(Type):
    """A scalar type. `kind` is one of i1, signed, unsigned, float, complex, index, or other (no StableHLO type).

    `bits` is the storage width the specification gives; `numpy` the dtype that holds one element (ml_dtypes for
    bf16, f8, f6, f4 and the 2- and 4-bit integers), None where no array can hold the type.
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype[Any] | None = None

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; TypeError for a type no array can hold."""
        if self.numpy is None:
            raise TypeError(f"no array holds elements of type {self.name}")
        return self.numpy

    @property
    def is_boolean(self) -> bool:
        return self.kind == "i1"

    @property
    def is_signed(self) -> bool:
        return self.kind == "signed"

    @property
    def is_unsigned(self) -> bool:
        return self.kind == "unsigned"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; i1 is not one (specification: "Types", BooleanType is apart)."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_index(self) -> bool:
        return self.kind == "index"

    @property
    def real(self) -> ElementType:
        """complex<f32> -> f32, complex<f64> -> f64; any other type is its own real part."""
        return {"complex<f32>": F32, "complex<f64>": F64}.get(self.name, self)

    @property
    def complex(self) -> ElementType:
        """f32 -> complex<f32>, f64 -> complex<f64>."""
        return {"f32": COMPLEX64, "f64": COMPLEX128}[self.name]


def _integers() -> list[ElementType]:
    element_types = []
    for bits in (2, 4, 8, 16, 32, 64):
        signed = getattr(ml_dtypes, f"int{bits}") if bits < 8 else f"int{bits}"
        unsigned = getattr(ml_dtypes, f"uint{bits}") if bits < 8 else f"uint{bits}"
        element_types.append(ElementType(f"i{bits}", "signed", bits, np.dtype(signed)))
        element_types.append(ElementType(f"ui{bits}", "unsigned", bits, np.dtype(unsigned)))
    return element_types


_SMALL_FLOATS = {
    "f4E2M1FN": 4,
    "f6E2M3FN": 6,
    "f6E3M2FN": 6,
    "f8E3M4": 8,
    "f8E4M3": 8,
    "f8E4M3FN": 8,
    "f8E4M3FNUZ": 8,
    "f8E4M3B11FNUZ": 8,
    "f8E5M2": 8,
    "f8E5M2FNUZ": 8,
    "f8E8M0FNU": 8,
}

I1 = ElementType("i1", "i1", 1, np.dtype(np.bool_))
BF16 = ElementType("bf16", "float", 16, np.dtype(ml_dtypes.bfloat16))
F16 = ElementType("f16", "float", 16, np.dtype(np.float16))
F32 = ElementType("f32", "float", 32, np.dtype(np.float32))
F64 = ElementType("f64", "float", 64, np.dtype(np.float64))
TF32 = ElementType("tf32", "float", 19)  # names a precision in dot algorithms; no tensor has it
COMPLEX64 = ElementType("complex<f32>", "complex", 64, np.dtype(np.complex64))
COMPLEX128 = ElementType("complex<f64>", "complex", 128, np.dtype(np.complex128))
INDEX = ElementType("index", "index", 64, np.dtype(np.int64))

#: Element types by their MLIR spelling.
ELEMENT_TYPES: dict[str, ElementType] = {
    element.name: element
    for element in (
        I1,
        *_integers(),
        *(
            ElementType(name, "float", bits, np.dtype(getattr(ml_dtypes, f"float{name[1]}_{name[2:].lower()}")))
            for name, bits in _SMALL_FLOATS.items()
        ),
        BF16,
        F16,
        F32,
        F64,
        TF32,
        COMPLEX64,
        COMPLEX128,
        INDEX,
    )
}
I2, I4, I8, I16, I32, I64 = (ELEMENT_TYPES[f"i{bits}"] for bits in (2, 4, 8, 16, 32, 64))
UI2, UI4, UI8, UI16, UI32, UI64 = (ELEMENT_TYPES[f"ui{bits}"] for bits in (2, 4, 8, 16, 32, 64))

_BY_DTYPE = {element.numpy: element for element in ELEMENT_TYPES.values() if element.numpy is not None}
_BY_DTYPE[np.dtype(np.int64)] = I64


def element_type_of(dtype: np.dtype[Any] | type | str) -> ElementType:
    """The element type whose arrays have `dtype`; TypeError when there is none."""
    element_type = _BY_DTYPE.get(np.dtype(dtype))
    if element_type is None:
        raise TypeError(f"no StableHLO element type is held by dtype {np.dtype(dtype)}")
    return element_type


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedType(Type):
    """A quantized element type (specification: "Quantized types"), per tensor, per axis, or per block.

    `scales` and `zero_points` hold one entry a slice along `quantization_dimension` (one entry in all when it is
    None). `block_sizes` maps dimension to block size for sub-channel quantization; entries are then in row-major
    order of blocks, `block_shape` the shape they have. Scales are Python floats of the expressed type's value.
    """

    storage: ElementType
    expressed: ElementType
    storage_min: int
    storage_max: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    quantization_dimension: int | None = None
    block_sizes: tuple[tuple[int, int], ...] = ()
    block_shape: tuple[int, ...] = ()

    @property
    def is_per_axis(self) -> bool:
        return self.quantization_dimension is not None

    @property
    def kind(self) -> str:
        return "quantized"

    @property
    def numpy(self) -> np.dtype[Any] | None:
        return self.storage.numpy

    @property
    def dtype(self) -> np.dtype[Any]:
        """Storage dtype: a quantized tensor is its storage array."""
        return self.storage.dtype

    @property
    def bits(self) -> int:
        return self.storage.bits

    is_boolean = is_signed = is_unsigned = is_integer = is_float = is_complex = is_index = False

    def __str__(self) -> str:
        return _format_quantized(self)

    __repr__ = __str__


def storage_range(storage: ElementType) -> tuple[int, int]:
    """(smallest, largest) integer of an integer storage type."""
    if storage.is_unsigned:
        return 0, 2**storage.bits - 1
    return -(2 ** (storage.bits - 1)), 2 ** (storage.bits - 1) - 1


def _format_quantized(quantized: QuantizedType) -> str:
    def parameter(scale: float, zero_point: int) -> str:
        text = _format_scale(scale)
        return f"{text}:{zero_point}" if zero_point else text

    text = quantized.storage.name.replace("ui", "u")
    if (quantized.storage_min, quantized.storage_max) != storage_range(quantized.storage):
        text += f"<{quantized.storage_min}:{quantized.storage_max}>"
    text += f":{quantized.expressed}"
    parameters = [parameter(*pair) for pair in zip(quantized.scales, quantized.zero_points, strict=True)]
    if quantized.block_sizes:
        blocks = ", ".join(f"{dimension}:{size}" for dimension, size in quantized.block_sizes)
        text += f":{{{blocks}}}, {_nest(parameters, quantized.block_shape)}"
    elif quantized.quantization_dimension is not None:
        text += f":{quantized.quantization_dimension}, {{{', '.join(parameters)}}}"
    else:
        text += f", {parameters[0]}"
    return f"!quant.uniform<{text}>"


def _nest(items: list[str], shape: tuple[int, ...]) -> str:
    if len(shape) <= 1:
        return "{" + ", ".join(items) + "}"
    step = len(items) // shape[0]
    return "{" + ", ".join(_nest(items[i : i + step], shape[1:]) for i in range(0, len(items), step)) + "}"


def _format_scale(scale: float) -> str:
    short = f"{scale:.6e}"
    text = short if float(short) == scale else repr(scale)
    return text if "." in text or "e" not in text else text.replace("e", ".0e", 1)


#: What the elements of an array are: most tensors have such, and other dialects' types besides.
ScalarType = ElementType | QuantizedType


@dataclass(frozen=True, eq=False, repr=False)
class TensorType(Type):
    """A ranked tensor. A dimension is an int, or None when dynamic (`?`).

    `bounds` (specification: bounded dynamism) has one entry a dimension, None where there is no bound. `encoding`
    is the text of any other MLIR encoding attribute, kept for printing.
    """

    shape: tuple[int | None, ...]
    element_type: Type
    bounds: tuple[int | None, ...] | None = None
    encoding: str | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape, known to be static; ValueError otherwise."""
        if None in self.shape:
            raise ValueError(f"{self} has dynamic dimensions")
        return self.shape  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements of a static tensor."""
        total = 1
        for dimension in self.static_shape:
            total *= dimension
        return total

    @property
    def scalar_type(self) -> ScalarType:
        """The element type, known to be one that arrays hold; TypeError otherwise."""
        if isinstance(self.element_type, (ElementType, QuantizedType)):
            return self.element_type
        raise TypeError(f"no array holds elements of type {self.element_type}")

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.scalar_type.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the NumPy array that holds a static tensor."""
        return self.size * self.dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        return isinstance(self.element_type, QuantizedType)

    def with_shape(self, shape: tuple[int | None, ...]) -> TensorType:
        """Same element type, another shape; no bounds."""
        return TensorType(shape, self.element_type)

    def with_element_type(self, element_type: Type) -> TensorType:
        return TensorType(self.shape, element_type, self.bounds, self.encoding)

    def __str__(self) -> str:
        dimensions = "".join("?x" if d is None else f"{d}x" for d in self.shape)
        suffix = ""
        if self.bounds is not None:
            suffix = ", #stablehlo.bounds<" + ", ".join("?" if b is None else str(b) for b in self.bounds) + ">"
        elif self.encoding is not None:
            suffix = ", " + self.encoding
        return f"tensor<{dimensions}{self.element_type}{suffix}>"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class UnrankedTensorType(Type):
    """`tensor<*xf32>`: parses and prints; no StableHLO op takes it."""

    element_type: Type

    def __str__(self) -> str:
        return f"tensor<*x{self.element_type}>"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class BufferType(Type):
    """`memref<...>`: a buffer (specification: "Buffer types"); `memory` is any text after the element type."""

    shape: tuple[int | None, ...]
    element_type: Type
    memory: str | None = None

    def __str__(self) -> str:
        dimensions = "".join("?x" if d is None else f"{d}x" for d in self.shape)
        suffix = f", {self.memory}" if self.memory is not None else ""
        return f"memref<{dimensions}{self.element_type}{suffix}>"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class TokenType(Type):
    """`!stablehlo.token`: orders side effects; as a value it is None."""

    def __str__(self) -> str:
        return "!stablehlo.token"

    __repr__ = __str__


class TypeOfTypes(Type):
    """A type made of other types. They may be shared, so that few objects are a type of very many parts."""

    def __post_init__(self) -> None:
        inner = self.inner
        object.__setattr__(self, "parts", 1 + sum([type.parts for type in inner]))
        object.__setattr__(self, "depth", 1 + max([type.depth for type in inner], default=0))

    @property
    def inner(self) -> tuple[Type, ...]:
        """The types that it is made of."""
        raise NotImplementedError

    def written(self) -> str:
        """The textual form, whatever the number of parts."""
        raise NotImplementedError

    def __str__(self) -> str:
        speller = _speller.get()
        text = speller(self) if speller is not None else None
        if text is None and (self.parts > MOST_PARTS or self.depth > DEEPEST):
            return f"(a type of 2^{self.parts.bit_length() - 1} parts or more, {self.depth} deep)"
        return self.written() if text is None else text

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class TupleType(TypeOfTypes):
    """`tuple<...>`; as a value it is a Python tuple."""

    types: tuple[Type, ...]

    @property
    def inner(self) -> tuple[Type, ...]:
        return self.types

    def written(self) -> str:
        return f"tuple<{', '.join(map(str, self.types))}>"


@dataclass(frozen=True, eq=False, repr=False)
class FutureType(TypeOfTypes):
    """`!stablehlo.future<...>`: what async_start gives and async_done takes."""

    types: tuple[Type, ...]

    @property
    def inner(self) -> tuple[Type, ...]:
        return self.types

    def written(self) -> str:
        return f"!stablehlo.future<{', '.join(map(str, self.types))}>"


@dataclass(frozen=True, eq=False, repr=False)
class FunctionType(TypeOfTypes):
    """`(inputs) -> results`."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    @property
    def inner(self) -> tuple[Type, ...]:
        return self.inputs + self.results

    def written(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> {format_results(self.results)}"


def format_results(types: tuple[Type, ...]) -> str:
    """Result types as MLIR prints them: parentheses unless there is exactly one and it is no function."""
    if len(types) == 1 and not isinstance(types[0], FunctionType):
        return str(types[0])
    return f"({', '.join(map(str, types))})"


@dataclass(frozen=True, eq=False, repr=False)
class OpaqueType(Type):
    """A type of a dialect nobody here knows, or a builtin type no op uses: its text."""

    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


TOKEN = TokenType()


def tensor_of(array: Array) -> TensorType:
    """The tensor type that `array` is a value of."""
    return TensorType(tuple(array.shape), element_type_of(array.dtype))
