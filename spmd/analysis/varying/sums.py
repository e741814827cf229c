"""Sums over processes of what is the same on all of them: n times too large, unless they are divided by n."""

from __future__ import annotations

from spmd.analysis.constants import constant_scalar
from spmd.analysis.reducers import monoid_of
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.events import Event, Meeting, meetings
from spmd.analysis.varying.findings import Kind
from spmd.analysis.varying.partitions import Partition
from spmd.analysis.varying.reasons import argument_text
from spmd.analysis.varying.sources import depends_on_data
from spmd.ir import Op, Value

#: Ops that hand a value's elements on, moved or in another type; the sum's share is found by way of them.
_HANDING_ON = frozenset(
    f"stablehlo.{name}"
    for name in ("convert", "reshape", "broadcast_in_dim", "transpose", "negate", "slice", "optimization_barrier")
)
_SUMS = (
    "stablehlo.all_reduce",
    "stablehlo.reduce_scatter",
    "stablehlo.cross-replica-sum",
    "stablehlo.collective_reduce",
)
_TOLERANCE = 1e-3


def check_sums(analysis: Analysis, events: list[Event]) -> None:
    """Reports sums among `events` of what is the same on all processes of a group."""
    users: dict[Value, list[Op]] | None = None
    for meeting in meetings(events):
        size = meeting.groups.members.shape[1] if meeting.groups.members.size else 0
        if size < 2 or not _is_sum(meeting.op):
            continue
        for at, (operand, part) in enumerate(zip(meeting.op.operands, meeting.given, strict=False)):
            repeated = _repeated(analysis, meeting, operand, part)
            if repeated is None:
                continue
            users = _users(analysis) if users is None else users
            if not _is_divided(meeting.op.results[at], size, users):
                analysis.report(Kind.REPEATED_SUM, meeting.op, _text(operand, repeated, size), certain=False)


def _is_sum(op: Op) -> bool:
    if op.name not in _SUMS:
        return False
    if not op.regions:
        return True
    monoid = monoid_of(op.regions[0])
    return monoid is not None and monoid.kind == "add"


def _repeated(analysis: Analysis, meeting: Meeting, operand: Value, part: Partition) -> Value | None:
    """What of the sum's `operand` is the same within each group: itself, or a term of it; None for nothing."""
    if not meeting.groups.apart(part, None):
        return operand if depends_on_data(operand) else None
    op = operand.defining_op
    while op is not None and op.name in _HANDING_ON and len(op.operands) == 1:
        op = op.operands[0].defining_op
    if op is None or op.name != "stablehlo.add":
        return None
    for term in op.operands:
        if not meeting.groups.apart(analysis.fact(term).may, None) and depends_on_data(term):
            return term
    return None


def _text(operand: Value, repeated: Value, size: int) -> str:
    what = "what is summed"
    if repeated is not operand:
        op = repeated.defining_op
        what = f"a term of what is summed, {argument_text(repeated) if op is None else f'{op.name} at {op.location}'},"
    return f"{what} is the same on all {size} processes of a group: it counts {size} times"


def _users(analysis: Analysis) -> dict[Value, list[Op]]:
    users: dict[Value, list[Op]] = {}
    for op in analysis.module.walk():
        for operand in op.operands:
            users.setdefault(operand, []).append(op)
    return users


def _is_divided(value: Value, size: int, users: dict[Value, list[Op]]) -> bool:
    """Whether each use of `value` divides it by `size`: then it is a mean."""
    uses = users.get(value, [])
    return bool(uses) and all(_divides(op, value, size, users) for op in uses)


def _divides(op: Op, value: Value, size: int, users: dict[Value, list[Op]]) -> bool:
    if op.name in _HANDING_ON:
        return all(_is_divided(result, size, users) for result in op.results)
    if op.name == "stablehlo.divide" and op.operands[0] is value:
        return _is(op.operands[1], size)
    if op.name == "stablehlo.multiply":
        return any(other is not value and _is(other, 1 / size) for other in op.operands)
    return False


def _is(value: Value, number: float) -> bool:
    """Whether `value` is the constant `number`, in its type's precision."""
    scalar = constant_scalar(value)
    if scalar is None or scalar.dtype.kind not in "iuf":
        return False
    return abs(float(scalar) - number) <= _TOLERANCE * number
