"""Explains why a value varies: the chain of ops back to the origin of the difference, as lines of text."""

from __future__ import annotations

from spmd.analysis.varying.analysis import Analysis
from spmd.ir import Function, Op, Value

_MOST_LINES = 8


def reasons(analysis: Analysis, value: Value) -> list[str]:
    """Return a line per op on the way from `value` back to the origin of the difference, which comes last.

    Equal consecutive lines are merged; a long chain is shortened in the middle.
    """
    lines: list[str] = []
    seen: set[Value] = set()
    while True:
        seen.add(value)
        cause = analysis.causes.get(value)
        if cause is None or cause in seen:
            break
        line = _line(value)
        if line and (not lines or lines[-1] != line):
            lines.append(line)
        value = cause
    if len(lines) > _MOST_LINES:
        left_out = len(lines) - _MOST_LINES
        lines[_MOST_LINES // 2 : -_MOST_LINES // 2] = [f"    ... {left_out} more"]
    return [*lines, f"    {_origin(analysis, value)}"]


def _origin(analysis: Analysis, value: Value) -> str:
    """Return a description of where the difference between processes originates."""
    op = value.defining_op
    if op is not None:
        return f"{op.name} at {op.location}, which differs between processes"
    return f"{argument_text(analysis, value)}, which may differ: it is not declared the same on all processes"


def argument_text(analysis: Analysis, value: Value) -> str:
    """Return `argument 1 (%x)`, preferring the argument's display name."""
    name = analysis.names.get(value) or (f"%{value.name_hint}" if value.name_hint else "")
    return f"argument {value.index}{f' ({name})' if name else ''}"


def _line(value: Value) -> str:
    owner: object = value.owner
    if isinstance(owner, Op) and not isinstance(owner, Function):
        return f"    {owner.name} at {owner.location}"
    return ""
