"""Fragments of assembly forms shared by many ops, in the notation of spmd/syntax/assembly.py."""

from __future__ import annotations

#: `: (operand types) -> result types`
TYPED = "attr-dict `:` functional-type(operands, results)"


def one_type(*names: str) -> str:
    """Return the form `attr-dict : type` if all of `names` (the result last) have one type, else the full one."""
    types = ", ".join(f"type(${name})" for name in names)
    return f"attr-dict `:` custom<SameOperandsAndResultType>({types})"
