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

#: Numbers that stand for each other are one that was changed where they are a part of it apart: beyond what folding
#: constants in 32-bit floats rounds, and below what a formula that is written in another way needs.
_FOLDED, _OTHER = 2.0**21, 2.0**4


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

    def and_changed(self, pairs: Iterable[tuple[Array, Array]]) -> Meant:
        """Return these and the numbers that stand for each other, a little apart, in constants of one program twice.

        What differs by a part in _FOLDED and more is no rounding of a number that was computed beforehand: in a type
        of few digits, too, where it is the next number.
        """
        values = dict(self.values)
        for left, right in pairs:
            ours, theirs = np.broadcast_arrays(*(as_wide(_distinct(each)) for each in (left, right)))
            with np.errstate(invalid="ignore"):
                apart, size = np.abs(ours - theirs), np.abs(ours)
                changed = (apart >= size / _FOLDED) & (apart > 0) & (apart <= size / _OTHER)
            numbers = np.concatenate([ours[changed], theirs[changed]])
            name = left.real.dtype.name
            values[name] = np.unique([*values.get(name, ()), *numbers.real, *numbers.imag])
        return Meant(values)

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
            numbers = _distinct(part).astype(np.float64)
            found.setdefault(part.dtype.name, []).append(numbers[numbers == numbers])
    return {name: np.unique(np.concatenate(each), return_counts=True) for name, each in found.items()}


def _distinct(array: Array) -> Array:
    """The elements in a row; the one that all are of a splat."""
    splat = array.size > 0 and not any(array.strides)
    return array.reshape(-1)[:1] if splat else array.reshape(-1)


def format_of(dtype: DType) -> ml_dtypes.finfo:
    """Return the floating-point format of `dtype`, or of a complex number's parts."""
    return ml_dtypes.finfo(np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype)  # type: ignore[no-untyped-call]


def as_wide(array: Array) -> Array:
    """Return the elements as float64 or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
