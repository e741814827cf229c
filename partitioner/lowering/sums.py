"""Values as sums: of what one process has, and of nothing from the others."""

from __future__ import annotations

from spmd.analysis.reducers import identity
from spmd.support.arrays import Array
from spmd.types import ElementType, TensorType


def nothing_of(type: TensorType) -> Array | None:
    """What may be added to elements of a type without a change, zeros' signs included; None where nothing may."""
    element = type.element_type
    return identity("add", element) if isinstance(element, ElementType) else None


def sum_of(type: TensorType) -> str:
    """Return the op that adds up elements of a type of which one alone is not nothing."""
    element = type.element_type
    return "stablehlo.or" if isinstance(element, ElementType) and element.is_boolean else "stablehlo.add"
