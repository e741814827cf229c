"""Results that callers hold for the same on all processes, and that differ: the forgotten mean, named as such."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.analysis.collectives import COMMUNICATING
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.reasons import argument_text, reasons
from spmd.ir import Function, Op, Value, captured_values

#: Ops after which values may be the same though the analysis does not see it: a ring of messages, what a host gives.
_UNSEEN = frozenset(
    f"stablehlo.{name}"
    for name in ("collective_permute", "all_to_all", "send", "recv", "infeed", "custom_call", "async_start")
)
_MOST_VISITED = 10_000


def check_result(analysis: Analysis, entry: Function, index: int) -> None:
    """Reports that result `index` of `entry` differs between processes."""
    value = entry.body.terminator.operands[index]
    fact = analysis.fact(value)
    if fact.is_uniform:
        return
    pair = fact.may.disagreeing(range(analysis.partitions.size))
    assert pair is not None
    state = _state(analysis, entry, index)
    text = (
        f"result {index} is held for the same on all processes, and differs between processes {pair[0]} and {pair[1]}"
    )
    if state is not None:
        text += f" (it is made of {argument_text(analysis, state)})"
    text += forgotten(analysis, value)
    analysis.report_result(value, entry, text, is_certain(analysis, value), reasons(analysis, value))


def forgotten(analysis: Analysis, value: Value) -> str:
    """What is missing between `value` and what differs, in words; nothing where some communication is there."""
    owed = analysis.fact(value).owed
    if owed is not None:
        return (
            f": a sum over processes is owed: {owed.name} at {owed.location} sums what each process has of its own, "
            "and no all_reduce (psum or pmean in JAX) follows"
        )
    if any(op.name in COMMUNICATING for op in _way(analysis, value)):
        return ""
    return ": no collective (all_reduce, or pmean in JAX) stands between it and what differs"


def is_certain(analysis: Analysis, value: Value) -> bool:
    """Return whether what differs by its way surely differs: messages, hosts, and branches may make it the same
    unseen."""
    way = _way(analysis, value)
    return not any(op.name in _UNSEEN or (op.regions and op.name not in COMMUNICATING) for op in way)


def _state(analysis: Analysis, entry: Function, index: int) -> Value | None:
    """Return the argument, the same on all processes, of which result `index` is the next value."""
    result = entry.body.terminator.operands[index]
    waiting, seen = [result], {result}
    for value in waiting:  # which grows
        op = value.defining_op
        if op is None:
            if value.owner is entry.body and value.type == result.type and analysis.fact(value).is_uniform:
                return value
            continue
        for operand in op.operands:
            if operand not in seen and len(seen) < _MOST_VISITED:
                seen.add(operand)
                waiting.append(operand)
    return None


def _way(analysis: Analysis, value: Value) -> Iterator[Op]:
    """What made `value`, by way of values that vary: communication, and control flow that has some inside."""
    waiting, seen = [value], {value}
    while waiting:
        op = waiting.pop().defining_op
        if op is None:
            continue
        inside = [inner for inner in analysis.reached(op) if inner.name in _UNSEEN or inner.name in COMMUNICATING]
        yield from inside
        if inside and op.regions:
            yield op
        operands = [*op.operands, *(captured_values(op) if op.regions else ())]
        for operand in operands:
            if operand not in seen and not analysis.fact(operand).is_uniform:
                seen.add(operand)
                waiting.append(operand)
