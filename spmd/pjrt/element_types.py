"""The element types of buffers: PJRT's numbers, and the dtypes of NumPy that hold them here.

Source: pjrt_c_api.h, PJRT_Buffer_Type. An element of fewer than eight bits has a byte of its own.
"""

from __future__ import annotations

from spmd.pjrt.errors import unimplemented
from spmd.support.arrays import DType
from spmd.types import TokenType, Type
from spmd.types.element import ELEMENT_TYPES
from spmd.types.tensor import TensorType

_NAMES = (
    "", "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64", "bf16", "complex<f32>",
    "complex<f64>", "f8E5M2", "f8E4M3FN", "f8E4M3B11FNUZ", "f8E5M2FNUZ", "f8E4M3FNUZ", "i4", "ui4", "token", "i2",
    "ui2", "f8E4M3", "f8E3M4", "f8E8M0FNU", "f4E2M1FN",
)  # fmt: skip
TOKEN = _NAMES.index("token")
_DTYPES = {number: ELEMENT_TYPES[name].dtype for number, name in enumerate(_NAMES) if name in ELEMENT_TYPES}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}


def dtype_of(number: int) -> DType:
    """Return the dtype that holds elements of a type of PJRT; PjrtError for one that no array has."""
    dtype = _DTYPES.get(number)
    if dtype is None:
        raise unimplemented(f"buffers of PJRT's element type {number} are not supported")
    return dtype


def number_of(dtype: DType) -> int:
    """Return PJRT's number of a dtype; PjrtError for one that it has none for."""
    number = _NUMBERS.get(dtype)
    if number is None:
        raise unimplemented(f"PJRT has no element type for {dtype}")
    return number


def described(type: Type) -> tuple[int, tuple[int, ...]]:
    """Return PJRT's element type and the shape of an argument or a result; PjrtError for what is no buffer."""
    if isinstance(type, TokenType):
        return TOKEN, ()
    if not isinstance(type, TensorType) or not type.is_static or type.is_quantized:
        raise unimplemented(f"an argument or a result of type {type} is no buffer")
    return number_of(type.dtype), type.static_shape
