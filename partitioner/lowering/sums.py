"""Values as partial sums with a single non-zero term."""

from __future__ import annotations

from spmd.analysis.reducers import identity
from spmd.support.arrays import Array
from spmd.types import ElementType, TensorType


def additive_identity(type: TensorType) -> Array | None:
    """Return the identity of addition for elements of a type, which keeps signs of zeros; None if there is none."""
    element = type.element_type
    return identity("add", element) if isinstance(element, ElementType) else None


def summing_op(type: TensorType) -> str:
    """Return the op that sums partial values of a type of which all but one are the identity."""
    element = type.element_type
    return "stablehlo.or" if isinstance(element, ElementType) and element.is_boolean else "stablehlo.add"
