"""How element types round: units, smallest numbers, and which numbers they hold exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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


#: How often both of two programs hold a number that is the same one, though one of them holds it more often.
_MANY = 4


@dataclass(frozen=True)
class Meant:
    """Constants that are meant as they are, by dtype in rising order, whatever number they may once have been."""

    values: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def by_both(cls, left: Iterable[Array], right: Iterable[Array]) -> Meant:
        """Those that two programs hold equally often, or both many times: of two that hold 0.1 both hold the same one.

        One that holds it once more may have another number there of which 0.1 is a part; one that has more steps of a
        loop, written out, has not.
        """
        ours, theirs = _counted(left), _counted(right)
        shared = {}
        for name in ours.keys() & theirs.keys():
            common, at, other_at = np.intersect1d(ours[name][0], theirs[name][0], return_indices=True)
            counts = ours[name][1][at], theirs[name][1][other_at]
            shared[name] = common[(counts[0] == counts[1]) | (np.minimum(*counts) >= _MANY)]
        return cls(shared)

    def errors(self, array: Array) -> Array:
        """How far each element may be from the number that is meant, float64."""
        if array.dtype.kind == "c":
            return self.errors(array.real) + self.errors(array.imag)
        known = self.values.get(array.dtype.name)
        apart = representation_error(array)
        return apart if known is None else np.where(np.isin(array.astype(np.float64), known), 0.0, apart)


def _counted(arrays: Iterable[Array]) -> dict[str, tuple[Array, Array]]:
    """Numbers that constants hold, by dtype, and how often: once for each splat."""
    found: dict[str, list[Array]] = {}
    for array in arrays:
        parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
        for part in parts:
            splat = part.size > 0 and not any(part.strides)
            numbers = (part.reshape(-1)[:1] if splat else part.reshape(-1)).astype(np.float64)
            found.setdefault(part.dtype.name, []).append(numbers[numbers == numbers])
    return {name: np.unique(np.concatenate(each), return_counts=True) for name, each in found.items()}


def format_of(dtype: DType) -> ml_dtypes.finfo:
    """The floating-point format of `dtype`, or of a complex number's parts."""
    return ml_dtypes.finfo(np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype)  # type: ignore[no-untyped-call]


def as_wide(array: Array) -> Array:
    """The elements as floats, or complex numbers, of 64 bits a part."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
