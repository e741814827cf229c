"""How element types round: units, smallest numbers, and which numbers they hold exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from spmd.support.arrays import Array, DType
from spmd.types import ElementType, TensorType, Type


def is_inexact(type: Type) -> bool:
    """Whether `type` is of tensors of real or complex floats."""
    element = type.element_type if isinstance(type, TensorType) else None
    return isinstance(element, ElementType) and (element.is_float or element.is_complex)


def unit_roundoff(element: ElementType) -> float:
    """Half of the distance from 1 to the next larger number of a floating-point type, or of a complex type's parts."""
    return float(format_of(element.dtype).eps) / 2


def smallest_normal(element: ElementType) -> float:
    """The smallest number above zero of full precision of a floating-point type, or of a complex type's parts."""
    return float(format_of(element.dtype).smallest_normal)


def representation_error(array: Array) -> Array:
    """How far constants of a program may be from the numbers that are meant, float64 of the shape of `array`.

    Whole numbers, and those of at most half of the type's digits (0.5, 0.75), are meant as they are; others (0.1) are
    the nearest of their type.
    """
    if array.dtype.kind == "c":
        return representation_error(array.real) + representation_error(array.imag)
    wide, eps = array.astype(np.float64), float(format_of(array.dtype).eps)
    with np.errstate(all="ignore"):
        digits = np.frexp(wide)[0] * 2.0 ** (round(1 - np.log2(eps)) // 2)
        exact = (digits == np.rint(digits)) | (wide == np.rint(wide)) | ~np.isfinite(wide)
        return np.where(exact, 0.0, np.abs(wide) * (eps / 2))


def format_of(dtype: DType) -> ml_dtypes.finfo:
    """The floating-point format of `dtype`, or of a complex number's parts."""
    return ml_dtypes.finfo(np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype)  # type: ignore[no-untyped-call]


def as_wide(array: Array) -> Array:
    """The elements as floats, or complex numbers, of 64 bits a part."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
