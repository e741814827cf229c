"""Rounding errors of computations in a precision: the program's own types, or 64-bit floats for all."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, sqrt

from spmd.analysis.reducers import Monoid
from spmd.comparison.formats import is_inexact, smallest_normal, unit_roundoff
from spmd.types import F64, ElementType, TensorType, Type

#: Units in the last place by which good libraries are off in functions that are not correctly rounded.
FUNCTION_UNITS = 8
#: NumPy sums 64-bit floats pairwise: so many steps per row of _PAIRWISE_ROW elements, and one per doubling.
_PAIRWISE_ROW, _PAIRWISE_STEPS = 128, 32
#: Rounding errors of n steps add up to at most this times the square root of n, except with a probability of 1 in
#: 10^13. Source: Higham and Mary, "A new approach to probabilistic rounding error analysis" (2019), theorem 2.4.
_PROBABLE = 8.0


@dataclass(frozen=True)
class RunPrecision:
    """The program's own types, or, `wide`, 64-bit floats in place of all others."""

    wide: bool

    def unit(self, type: Type) -> float:
        """Return the unit roundoff for values of `type`; 0 for exact types."""
        element = _element(type)
        if element is None or not is_inexact(type):
            return 0.0
        return unit_roundoff(F64 if self.wide else element)

    def smallest(self, type: Type) -> float:
        """Return the additional error of results where subnormal numbers are flushed to zero."""
        element = _element(type)
        return 0.0 if self.wide or element is None or not is_inexact(type) else smallest_normal(element)

    def sum_unit(self, type: Type, terms: int) -> float:
        """Return the error of a sum of `terms` terms, in any order, relative to the sum of their magnitudes."""
        element = _element(type)
        if element is None or not is_inexact(type):
            return 0.0
        if self.wide:
            return min(float(terms), _PROBABLE * sqrt(terms)) * unit_roundoff(F64)
        return terms * unit_roundoff(Monoid("add", element).accumulator) + FUNCTION_UNITS * unit_roundoff(element)

    def reduction_unit(self, type: Type, terms: int) -> float:
        """Return the same for a reduction, in which NumPy adds 64-bit floats pairwise."""
        doublings = ceil(log2(max(terms / _PAIRWISE_ROW, 1)))
        pairwise = (_PAIRWISE_STEPS + doublings) * self.unit(type)
        return min(self.sum_unit(type, terms), pairwise) if self.wide else self.sum_unit(type, terms)


def _element(type: Type) -> ElementType | None:
    element = type.element_type if isinstance(type, TensorType) else None
    return element if isinstance(element, ElementType) else None


#: The precisions in which bounds are computed.
OWN, WIDE = RunPrecision(wide=False), RunPrecision(wide=True)
