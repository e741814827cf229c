"""Finds sums across processes of values that are equal on all: n times too large unless divided by n."""

from __future__ import annotations

from spmd.analysis.constants import constant_scalar
from spmd.analysis.reducers import monoid_of
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.events import CollectiveEvent, Event, collective_events
from spmd.analysis.varying.findings import FindingKind
from spmd.analysis.varying.partitions import Partition
from spmd.analysis.varying.reasons import argument_text
from spmd.analysis.varying.sources import depends_on_data
from spmd.dialects.mesh_groups import given_groups
from spmd.ir import Module, Op, Value

#: Ops that return their operand's elements, moved, negated or converted.
_MOVING = frozenset(
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
    """Report sums among `events` of values that are equal on all processes of a group."""
    users: dict[Value, list[Op]] | None = None
    for collective in collective_events(events):
        size = collective.groups.members.shape[1] if collective.groups.members.size else 0
        if size < 2 or not _is_sum(collective.op):
            continue
        for at, (operand, partition) in enumerate(
            zip(collective.op.operands, collective.operand_partitions, strict=False)
        ):
            repeated = _repeated(analysis, collective, operand, partition)
            if repeated is None:
                continue
            users = _users(analysis) if users is None else users
            module, result = analysis.module, collective.op.results[at]
            if not (_is_share(repeated, size, module) or _is_divided(result, size, users, module)):
                analysis.report(
                    FindingKind.REPEATED_SUM, collective.op, _text(analysis, operand, repeated, size), certain=False
                )


def _is_sum(op: Op) -> bool:
    if op.name not in _SUMS:
        return False
    if not op.regions:
        return True
    monoid = monoid_of(op.regions[0])
    return monoid is not None and monoid.kind == "add"


def _repeated(analysis: Analysis, collective: CollectiveEvent, operand: Value, partition: Partition) -> Value | None:
    """Return the operand of the sum, or a term of it, that is equal within each group; None if there is none."""
    if not collective.groups.divided(partition, None):
        return operand if depends_on_data(operand) else None
    terms = [operand]
    for term in terms:  # grows
        op = _moved_from(term).defining_op
        if op is not None and op.name == "stablehlo.add" and len(terms) < _MOST_TERMS:
            terms += op.operands
    for term in terms[1:]:
        same = not collective.groups.divided(analysis.fact(term).may, None)
        size = collective.groups.members.shape[1]
        if same and depends_on_data(term) and not _is_share(term, size, analysis.module):
            return term
    return None


def _moved_from(value: Value) -> Value:
    """Return the value from which `value` is moved or converted."""
    while (op := value.defining_op) is not None and op.name in _MOVING and len(op.operands) == 1:
        value = op.operands[0]
    return value


def _is_share(value: Value, size: int, module: Module) -> bool:
    """Return whether `value` is a term divided by `size`, so that the sum is the term; a mean is not."""
    op = _moved_from(value).defining_op
    if op is None or op.name not in ("stablehlo.divide", "stablehlo.multiply"):
        return False
    if any(of is not None and of.name in _SUMS for of in (_moved_from(each).defining_op for each in op.operands)):
        return False
    if op.name == "stablehlo.divide":
        return _is(op.operands[1], size, module)
    return any(_is(operand, 1 / size, module) for operand in op.operands)


def _text(analysis: Analysis, operand: Value, repeated: Value, size: int) -> str:
    what = "the summed value"
    if repeated is not operand:
        value = _moved_from(repeated)
        op = value.defining_op
        term = argument_text(analysis, value) if op is None else f"{op.name} at {op.location}"
        what = f"a term of the summed value, {term},"
    return f"{what} is the same on all {size} processes of a group: it is counted {size} times"


def _users(analysis: Analysis) -> dict[Value, list[Op]]:
    users: dict[Value, list[Op]] = {}
    for op in analysis.module.walk():
        for operand in op.operands:
            users.setdefault(operand, []).append(op)
    return users


def _is_divided(value: Value, size: int, users: dict[Value, list[Op]], module: Module) -> bool:
    """Return whether each use of `value` divides it by `size`, which makes it a mean."""
    uses = users.get(value, [])
    return bool(uses) and all(_divides(op, value, size, users, module) for op in uses)


def _divides(op: Op, value: Value, size: int, users: dict[Value, list[Op]], module: Module) -> bool:
    if op.name in _MOVING:
        return all(_is_divided(result, size, users, module) for result in op.results)
    if op.name == "stablehlo.divide" and op.operands[0] is value:
        return _is(op.operands[1], size, module)
    if op.name == "stablehlo.multiply":
        return any(other is not value and _is(other, 1 / size, module) for other in op.operands)
    return False


def _is(value: Value, number: float, module: Module) -> bool:
    """Return whether `value` is the constant `number` to its type's precision."""
    value, times = _moved_from(value), 1
    op = value.defining_op
    if op is not None and op.name == _SUMS[0]:  # of a constant: the number of processes
        value, times = op.operands[0], given_groups(op, module).shape[1] if _is_sum(op) else 1
    scalar = constant_scalar(value)
    if scalar is None or scalar.dtype.kind not in "iuf":
        return False
    return abs(float(scalar) * times - number) <= _TOLERANCE * number
