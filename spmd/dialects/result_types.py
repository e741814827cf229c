"""Constraints on result types shared by many ops."""

from __future__ import annotations

from spmd.dialects.checks import equal_elements
from spmd.dialects.core import OpDef


def keeps_element_type(declared: OpDef, label: str, text: str = "element_type(operand) = element_type(result)") -> None:
    """Declare the constraint `label` that the result has the first operand's element type."""
    declared.constraint(label, text, on_results=True)(lambda op: equal_elements(op.operands[0].type, op.result.type))


def keeps_type(declared: OpDef, label: str, text: str = "type(operand) = type(result)") -> None:
    """Declare the constraint `label` that the result has the first operand's type, which is also inferred."""
    keeps_element_type(declared, label, text)
    declared.infers(label, text)(lambda op: [op.operands[0].type])
