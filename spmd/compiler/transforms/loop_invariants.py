"""Loop-invariant code motion, where loading a value costs less than recomputing it.

Only pure ops are hoisted: a loop without iterations has then wasted work, and no more. Ops that are cheap, or expand
small operands, stay in the loop.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from spmd.compiler.schedule.fusibility import cost_of, is_fusible
from spmd.compiler.schedule.reductions import is_reduction
from spmd.compiler.transforms.simplify import remove_dead
from spmd.dialects.core import Trait, has_trait, is_pure
from spmd.ir import Block, Op, Value, captured_values, copy_op
from spmd.types import TensorType

#: Least operations per element to hoist, and largest value in bytes that is hoisted whatever its operands.
_EXPENSIVE, _SMALL = 16, 1 << 20


def hoist_invariants(block: Block) -> None:
    """Hoist invariant ops out of loops in `block` and its regions; in place."""
    ops: list[Op] = []
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                hoist_invariants(inner)
        if has_trait(op, Trait.LOOP):
            ops += _hoisted(op)
        ops.append(op)
    block.ops = ops


def _hoisted(loop: Op) -> list[Op]:
    """Remove ops worth hoisting from the body of `loop`; return them."""
    body = loop.regions[1].block
    outside = _invariant_arguments(loop)
    invariant = _invariant_ops(body, outside)
    hoisted: list[Op] = []
    replaced: dict[Value, Value] = {}
    if not invariant:
        return hoisted
    others = [op for op in body.ops if op not in invariant]
    for value in dict.fromkeys(value for op in others for value in _read(op)):
        if value.defining_op in invariant and value not in replaced:
            ops = _producers(value, invariant)
            if _is_worth(value, ops):
                _copy(ops, outside, replaced, hoisted)
    for op in others if hoisted else ():
        for inner in op.walk():
            inner.replace_operands(replaced)
    if hoisted:
        remove_dead(body)
    return hoisted


def _invariant_arguments(loop: Op) -> dict[Value, Value]:
    """Return the initial values of loop-invariant arguments of the body."""
    body = loop.regions[1].block
    pairs = zip(body.arguments, body.terminator.operands, loop.operands, strict=True)
    return {argument: first for argument, after, first in pairs if after is argument}


def _read(op: Op) -> list[Value]:
    return [*op.operands, *(captured_values(op) if op.regions else ())]


def _invariant_ops(body: Block, outside: Iterable[Value]) -> set[Op]:
    """Return the pure ops of `body` that compute the same in every iteration."""
    invariant: set[Op] = set()
    inside = {value for op in body.ops for value in op.results} | set(body.arguments) - set(outside)
    for op in body.ops[:-1]:
        if not has_trait(op, Trait.RUNS_REGIONS) and is_pure(op) and not any(value in inside for value in _read(op)):
            invariant.add(op)
            inside.difference_update(op.results)
    return invariant


def _producers(value: Value, invariant: Container[Op]) -> list[Op]:
    """Return the ops among `invariant` that compute `value`, in execution order."""
    ordered: dict[Op, None] = {}
    stack = [(value.defining_op, False)]
    while stack:
        op, is_ready = stack.pop()
        if op is None or op not in invariant or op in ordered:
            continue
        if is_ready:
            ordered[op] = None
            continue
        stack.append((op, True))
        stack += [(each.defining_op, False) for each in _read(op)]
    return list(ordered)


def _is_worth(value: Value, ops: Sequence[Op]) -> bool:
    """Return whether hoisting `value`, which `ops` compute, pays."""
    if any(not is_fusible(op) or is_reduction(op) for op in ops):
        return True
    made = {result for op in ops for result in op.results}
    leaves = {read for op in ops for read in _read(op) if read not in made}
    most = max(_SMALL, 2 * sum(map(_nbytes, leaves)))
    return sum(map(cost_of, ops)) >= _EXPENSIVE and _nbytes(value) <= most


def _copy(ops: Sequence[Op], outside: dict[Value, Value], replaced: dict[Value, Value], hoisted: list[Op]) -> None:
    """Append copies of `ops` to `hoisted`, except those that are in it."""
    for op in ops:
        if any(result in replaced for result in op.results):
            continue
        values = {**outside, **replaced}
        hoisted.append(copy_op(op, values))
        replaced.update((result, values[result]) for result in op.results)


def _nbytes(value: Value) -> int:
    return value.tensor.nbytes if isinstance(value.type, TensorType) and value.tensor.is_static else 0
