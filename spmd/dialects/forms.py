"""Pieces of assembly forms that many ops share, in the notation of spmd/syntax/assembly.py."""

from __future__ import annotations

#: `: (operand types) -> result types`
TYPED = "attr-dict `:` functional-type(operands, results)"


def one_type(*names: str) -> str:
    """Return `attr-dict : type` where all of `names` (the last is the result) have one type; the full form
    otherwise."""
    types = ", ".join(f"type(${name})" for name in names)
    return f"attr-dict `:` custom<SameOperandsAndResultType>({types})"
