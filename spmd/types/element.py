"""Element types, and the NumPy dtype that holds each. Source: StableHLO specification, "Types"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from spmd.support.arrays import DType
from spmd.types.base import Type


@dataclass(frozen=True, eq=False, repr=False)
class ElementType(Type):
    """A scalar type. `kind` is one of i1, signed, unsigned, float, complex, index, or other (no StableHLO type).

    `bits` is the storage width the specification gives; `numpy` the dtype that holds one element (ml_dtypes for
    bf16, f8, f6, f4 and the 2- and 4-bit integers), None where no array can hold the type.
    """

    name: str
    kind: str
    bits: int
    numpy: DType | None = None
    #: Predicates of element types by `kind`; i1 is not an integer (specification: "Types", BooleanType is separate).
    is_boolean: ClassVar[bool]
    is_signed: ClassVar[bool]
    is_unsigned: ClassVar[bool]
    is_integer: ClassVar[bool]
    is_float: ClassVar[bool]
    is_complex: ClassVar[bool]
    is_index: ClassVar[bool]

    def __post_init__(self) -> None:
        kind = self.kind
        vars(self).update(
            is_boolean=kind == "i1",
            is_signed=kind == "signed",
            is_unsigned=kind == "unsigned",
            is_integer=kind in ("signed", "unsigned"),
            is_float=kind == "float",
            is_complex=kind == "complex",
            is_index=kind == "index",
        )

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def dtype(self) -> DType:
        """The NumPy dtype; TypeError for a type no array can hold."""
        if self.numpy is None:
            raise TypeError(f"no array holds elements of type {self.name}")
        return self.numpy

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
TF32 = ElementType("tf32", "float", 19)  # a precision in dot algorithms, never a tensor's element type
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


def element_type_of(dtype: DType | type | str) -> ElementType:
    """The element type whose arrays have `dtype`; TypeError when there is none."""
    element_type = _BY_DTYPE.get(np.dtype(dtype))
    if element_type is None:
        raise TypeError(f"no StableHLO element type is held by dtype {np.dtype(dtype)}")
    return element_type
