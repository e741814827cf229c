"""Finds results that must be replicated but differ, and names the missing reduction."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.analysis.collectives import COMMUNICATING
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.reasons import argument_text, reasons
from spmd.ir import Function, Op, Value, captured_values

#: Ops after which values may be equal without the analysis knowing: a ring of messages, data from the host.
_UNSEEN = frozenset(
    f"stablehlo.{name}"
    for name in ("collective_permute", "all_to_all", "send", "recv", "infeed", "custom_call", "async_start")
)
_MOST_VISITED = 10_000


def check_result(analysis: Analysis, entry: Function, index: int) -> None:
    """Report result `index` of `entry` if it differs between processes."""
    value = entry.body.terminator.operands[index]
    fact = analysis.fact(value)
    if fact.is_uniform:
        return
    pair = fact.may.disagreeing(range(analysis.partitions.size))
    assert pair is not None
    state = _state(analysis, entry, index)
    text = f"result {index} must be the same on all processes, but differs between processes {pair[0]} and {pair[1]}"
    if state is not None:
        text += f" (it is computed from {argument_text(analysis, state)})"
    text += missing_reduction(analysis, value)
    analysis.report_result(value, entry, text, is_certain(analysis, value), reasons(analysis, value))


def missing_reduction(analysis: Analysis, value: Value) -> str:
    """Return a description of the missing reduction; empty if there is communication on the way to the difference."""
    partial = analysis.fact(value).partial
    if partial is not None:
        return (
            f": it is a partial sum: {partial.name} at {partial.location} sums the elements of each process, and no "
            "all_reduce (psum or pmean in JAX) follows"
        )
    if any(op.name in COMMUNICATING for op in _communication_before(analysis, value)):
        return ""
    return ": no collective (all_reduce, or pmean in JAX) follows what differs"


def is_certain(analysis: Analysis, value: Value) -> bool:
    """Return whether `value` differs for certain: no message, host or branch on the way may have made it equal."""
    path = _communication_before(analysis, value)
    return not any(op.name in _UNSEEN or (op.regions and op.name not in COMMUNICATING) for op in path)


def _state(analysis: Analysis, entry: Function, index: int) -> Value | None:
    """Return the uniform argument of the same type that result `index` depends on: the state that it updates."""
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


def _communication_before(analysis: Analysis, value: Value) -> Iterator[Op]:
    """Yield the communication, and control flow around it, through which varying values reach `value`."""
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
