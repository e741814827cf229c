"""Reduction regions that are one known op, and that op's identity element."""

from __future__ import annotations

from typing import Any

import numpy as np

from spmd.ir import Block
from spmd.types import ElementType, QuantizedType, TensorType, Type

#: Ops that fold in any order, by name.
MONOIDS = frozenset("stablehlo." + name for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
_PASSED_THROUGH = frozenset(("sdy.sharding_constraint",))


def monoid_of(block: Block) -> str | None:
    """The op that a reduction region of two scalars consists of; None for any other region."""
    ops = [op for op in block.ops if op.name not in _PASSED_THROUGH]
    if len(ops) != 2 or len(block.arguments) != 2 or len(ops[1].operands) != 1:
        return None
    op = ops[0]
    is_fold = op.name in MONOIDS and set(op.operands) == set(block.arguments) and len(op.results) == 1
    returned = ops[1].operands[0]
    while returned.defining_op is not None and returned.defining_op.name in _PASSED_THROUGH:
        returned = returned.defining_op.operands[0]
    return op.name if is_fold and returned is op.results[0] else None


def identity(name: str, type: Type) -> np.ndarray[Any, Any] | None:
    """The identity element of monoid `name` on elements of a tensor type, as a 0-d array; None where there is none."""
    if not isinstance(type, TensorType) or isinstance(type.element_type, QuantizedType):
        return None
    element = type.element_type
    if not isinstance(element, ElementType) or element.numpy is None:
        return None
    dtype = element.numpy
    if element.is_complex and name not in ("stablehlo.add", "stablehlo.multiply"):
        return None
    made = _identity(name, element, dtype)
    return None if made is None else np.array(made, dtype)


def _identity(name: str, element: ElementType, dtype: np.dtype[Any]) -> Any:
    operation = name.removeprefix("stablehlo.")
    if operation in ("add", "xor", "or"):
        return 0
    if operation == "multiply":
        return 1
    if operation == "and":
        return True if element.is_boolean else (dtype.type(-1) if element.is_signed else ~np.zeros((), dtype))
    if element.is_float:
        return -np.inf if operation == "maximum" else np.inf
    if element.is_boolean:
        return operation == "minimum"
    from spmd.types import storage_range

    low, high = storage_range(element)
    return low if operation == "maximum" else high
