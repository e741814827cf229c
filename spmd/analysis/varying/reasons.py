"""Why a value varies: the way from it back to where the difference begins, as lines of text."""

from __future__ import annotations

from spmd.analysis.varying.analysis import Analysis
from spmd.ir import Function, Op, Value

_MOST_LINES = 8


def reasons(analysis: Analysis, value: Value) -> list[str]:
    """Return a line for each op on the way from `value` back to what differs, the last one saying what that is.

    Lines of one place in the source stand once; a long way is shortened in the middle.
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
    """Where the difference between processes begins, in words."""
    op = value.defining_op
    if op is not None:
        return f"{op.name} at {op.location}, which differs between processes"
    return f"{argument_text(analysis, value)}, which may differ: nobody says that it is the same on all processes"


def argument_text(analysis: Analysis, value: Value) -> str:
    """`argument 1 (%x)`, or by the name that the argument has for who wrote the program."""
    name = analysis.names.get(value) or (f"%{value.name_hint}" if value.name_hint else "")
    return f"argument {value.index}{f' ({name})' if name else ''}"


def _line(value: Value) -> str:
    owner: object = value.owner
    if isinstance(owner, Op) and not isinstance(owner, Function):
        return f"    {owner.name} at {owner.location}"
    return ""
