"""Rounding of element types: unit roundoff, smallest numbers, exactly representable numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from spmd.support.arrays import Array, DType
from spmd.types import ElementType, TensorType, Type


def is_inexact(type: Type) -> bool:
    """Return whether `type` is a tensor of real or complex floats."""
    element = type.element_type if isinstance(type, TensorType) else None
    return isinstance(element, ElementType) and (element.is_float or element.is_complex)


def unit_roundoff(element: ElementType) -> float:
    """Return half the distance from 1 to the next larger number of a float type, or of a complex type's parts."""
    return float(format_of(element.dtype).eps) / 2


def smallest_normal(element: ElementType) -> float:
    """Return the smallest positive normal number of a float type, or of a complex type's parts."""
    return float(format_of(element.dtype).smallest_normal)


def representation_error(array: Array) -> Array:
    """Return how far constants may be from the numbers that are meant, float64 of the shape of `array`.

    Whole numbers, and those of at most half of the type's digits (0.5, 0.75), are exact; others (0.1) are the nearest
    of their type.
    """
    if array.dtype.kind == "c":
        return representation_error(array.real) + representation_error(array.imag)
    wide, eps = array.astype(np.float64), float(format_of(array.dtype).eps)
    with np.errstate(all="ignore"):
        digits = np.frexp(wide)[0] * 2.0 ** (round(1 - np.log2(eps)) // 2)
        exact = (digits == np.rint(digits)) | (wide == np.rint(wide)) | ~np.isfinite(wide)
        return np.where(exact, 0.0, np.abs(wide) * (eps / 2))


#: Number of occurrences from which a constant of both programs counts as the same, even if one has more of them.
_MANY = 4


@dataclass(frozen=True)
class Meant:
    """Constants that are meant exactly, by dtype in increasing order."""

    values: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def by_both(cls, left: Iterable[Array], right: Iterable[Array]) -> Meant:
        """Return the constants that two programs have equally often, or both many times.

        If both have 0.1, it is the same rounded number in both. If one has it once more, it may stand for another
        number there; a program with more unrolled steps of a loop has it many times.
        """
        ours, theirs = _counted(left), _counted(right)
        shared = {}
        for name in ours.keys() & theirs.keys():
            common, at, other_at = np.intersect1d(ours[name][0], theirs[name][0], return_indices=True)
            counts = ours[name][1][at], theirs[name][1][other_at]
            shared[name] = common[(counts[0] == counts[1]) | (np.minimum(*counts) >= _MANY)]
        return cls(shared)

    def errors(self, array: Array) -> Array:
        """Return how far each element may be from the number that is meant, float64."""
        if array.dtype.kind == "c":
            return self.errors(array.real) + self.errors(array.imag)
        known = self.values.get(array.dtype.name)
        apart = representation_error(array)
        return apart if known is None else np.where(np.isin(array.astype(np.float64), known), 0.0, apart)


def _counted(arrays: Iterable[Array]) -> dict[str, tuple[Array, Array]]:
    """Return the numbers in constants by dtype, and their counts; a splat counts once."""
    found: dict[str, list[Array]] = {}
    for array in arrays:
        parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
        for part in parts:
            splat = part.size > 0 and not any(part.strides)
            numbers = (part.reshape(-1)[:1] if splat else part.reshape(-1)).astype(np.float64)
            found.setdefault(part.dtype.name, []).append(numbers[numbers == numbers])
    return {name: np.unique(np.concatenate(each), return_counts=True) for name, each in found.items()}


def format_of(dtype: DType) -> ml_dtypes.finfo:
    """Return the floating-point format of `dtype`, or of a complex number's parts."""
    return ml_dtypes.finfo(np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype)  # type: ignore[no-untyped-call]


def as_wide(array: Array) -> Array:
    """Return the elements as float64 or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
