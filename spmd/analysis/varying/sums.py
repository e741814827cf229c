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
from spmd.dialects.mesh_groups import given_groups
from spmd.ir import Module, Op, Value

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
_MOST_TERMS = 64
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
            module, result = analysis.module, meeting.op.results[at]
            if not (_is_share(repeated, size, module) or _is_divided(result, size, users, module)):
                analysis.report(Kind.REPEATED_SUM, meeting.op, _text(analysis, operand, repeated, size), certain=False)


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
    terms = [operand]
    for term in terms:  # which grows
        op = _handed_on(term).defining_op
        if op is not None and op.name == "stablehlo.add" and len(terms) < _MOST_TERMS:
            terms += op.operands
    for term in terms[1:]:
        same = not meeting.groups.apart(analysis.fact(term).may, None)
        size = meeting.groups.members.shape[1]
        if same and depends_on_data(term) and not _is_share(term, size, analysis.module):
            return term
    return None


def _handed_on(value: Value) -> Value:
    """Return the value whose elements `value` has, moved or in another type."""
    while (op := value.defining_op) is not None and op.name in _HANDING_ON and len(op.operands) == 1:
        value = op.operands[0]
    return value


def _is_share(value: Value, size: int, module: Module) -> bool:
    """Return whether `value` is one of `size` shares: then their sum is what was divided. A mean is no share."""
    op = _handed_on(value).defining_op
    if op is None or op.name not in ("stablehlo.divide", "stablehlo.multiply"):
        return False
    if any(of is not None and of.name in _SUMS for of in (_handed_on(each).defining_op for each in op.operands)):
        return False
    if op.name == "stablehlo.divide":
        return _is(op.operands[1], size, module)
    return any(_is(operand, 1 / size, module) for operand in op.operands)


def _text(analysis: Analysis, operand: Value, repeated: Value, size: int) -> str:
    what = "what is summed"
    if repeated is not operand:
        value = _handed_on(repeated)
        op = value.defining_op
        term = argument_text(analysis, value) if op is None else f"{op.name} at {op.location}"
        what = f"a term of what is summed, {term},"
    return f"{what} is the same on all {size} processes of a group: it counts {size} times"


def _users(analysis: Analysis) -> dict[Value, list[Op]]:
    users: dict[Value, list[Op]] = {}
    for op in analysis.module.walk():
        for operand in op.operands:
            users.setdefault(operand, []).append(op)
    return users


def _is_divided(value: Value, size: int, users: dict[Value, list[Op]], module: Module) -> bool:
    """Return whether each use of `value` divides it by `size`: then it is a mean."""
    uses = users.get(value, [])
    return bool(uses) and all(_divides(op, value, size, users, module) for op in uses)


def _divides(op: Op, value: Value, size: int, users: dict[Value, list[Op]], module: Module) -> bool:
    if op.name in _HANDING_ON:
        return all(_is_divided(result, size, users, module) for result in op.results)
    if op.name == "stablehlo.divide" and op.operands[0] is value:
        return _is(op.operands[1], size, module)
    if op.name == "stablehlo.multiply":
        return any(other is not value and _is(other, 1 / size, module) for other in op.operands)
    return False


def _is(value: Value, number: float, module: Module) -> bool:
    """Return whether `value` is the constant `number`, in its type's precision."""
    value, times = _handed_on(value), 1
    op = value.defining_op
    if op is not None and op.name == _SUMS[0]:  # of a constant: how many processes there are
        value, times = op.operands[0], given_groups(op, module).shape[1] if _is_sum(op) else 1
    scalar = constant_scalar(value)
    if scalar is None or scalar.dtype.kind not in "iuf":
        return False
    return abs(float(scalar) * times - number) <= _TOLERANCE * number
