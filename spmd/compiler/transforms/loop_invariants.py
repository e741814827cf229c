"""What a loop computes alike at each turn is computed once, before it, where reading it costs less than doing so again.

Pure ops alone leave a loop: one that makes no turn has done them for nothing, and no harm. What is cheap, or makes much
of little, stays where it is used.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from spmd.compiler.schedule.fusibility import cost_of, is_fusible
from spmd.compiler.schedule.reductions import is_reduction
from spmd.compiler.transforms.simplify import remove_dead
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value, captured_values, copy_op
from spmd.types import TensorType

WHILE = "stablehlo.while"
#: Ops that choose what is computed, or how often.
_CONTROL = (WHILE, "stablehlo.if", "stablehlo.case")
#: Operations of an element that cost more than to read it, and bytes that are no burden, whatever they are made of.
_DEAR, _SMALL = 16, 1 << 20


def hoist_invariants(block: Block) -> None:
    """Moves what loops of `block` and of the regions inside it need not compute at each turn; in place."""
    ops: list[Op] = []
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                hoist_invariants(inner)
        if op.name == WHILE:
            ops += _hoisted(op)
        ops.append(op)
    block.ops = ops


def _hoisted(loop: Op) -> list[Op]:
    """Takes what is worth it out of the body of `loop`; the ops that compute it outside."""
    body = loop.regions[1].block
    outside = _kept(loop)
    alike = _alike(body, outside)
    hoisted: list[Op] = []
    replaced: dict[Value, Value] = {}
    if not alike:
        return hoisted
    others = [op for op in body.ops if op not in alike]
    for value in dict.fromkeys(value for op in others for value in _read(op)):
        if value.defining_op in alike and value not in replaced:
            ops = _needed(value, alike)
            if _is_worth(value, ops):
                _copy(ops, outside, replaced, hoisted)
    for op in others if hoisted else ():
        for inner in op.walk():
            inner.replace_operands(replaced)
    if hoisted:
        remove_dead(body)
    return hoisted


def _kept(loop: Op) -> dict[Value, Value]:
    """What the arguments of the body that each turn hands on as they are are before the loop."""
    body = loop.regions[1].block
    pairs = zip(body.arguments, body.terminator.operands, loop.operands, strict=True)
    return {argument: first for argument, after, first in pairs if after is argument}


def _read(op: Op) -> list[Value]:
    return [*op.operands, *(captured_values(op) if op.regions else ())]


def _alike(body: Block, outside: Iterable[Value]) -> set[Op]:
    """The ops of `body` that give the same at each turn, and do nothing else."""
    alike: set[Op] = set()
    inside = {value for op in body.ops for value in op.results} | set(body.arguments) - set(outside)
    for op in body.ops[:-1]:
        if op.name not in _CONTROL and is_pure(op) and not any(value in inside for value in _read(op)):
            alike.add(op)
            inside.difference_update(op.results)
    return alike


def _needed(value: Value, alike: Container[Op]) -> list[Op]:
    """The ops among `alike` that compute `value`, in an order in which they may run."""
    ordered: dict[Op, None] = {}
    stack = [(value.defining_op, False)]
    while stack:
        op, is_ready = stack.pop()
        if op is None or op not in alike or op in ordered:
            continue
        if is_ready:
            ordered[op] = None
            continue
        stack.append((op, True))
        stack += [(each.defining_op, False) for each in _read(op)]
    return list(ordered)


def _is_worth(value: Value, ops: Sequence[Op]) -> bool:
    """Whether `value`, which `ops` compute, is rather computed once."""
    if any(not is_fusible(op) or is_reduction(op) for op in ops):
        return True
    made = {result for op in ops for result in op.results}
    leaves = {read for op in ops for read in _read(op) if read not in made}
    most = max(_SMALL, 2 * sum(map(_nbytes, leaves)))
    return sum(map(cost_of, ops)) >= _DEAR and _nbytes(value) <= most


def _copy(ops: Sequence[Op], outside: dict[Value, Value], replaced: dict[Value, Value], hoisted: list[Op]) -> None:
    """Appends `ops` to `hoisted`, but for those that are there already."""
    for op in ops:
        if any(result in replaced for result in op.results):
            continue
        values = {**outside, **replaced}
        hoisted.append(copy_op(op, values))
        replaced.update((result, values[result]) for result in op.results)


def _nbytes(value: Value) -> int:
    return value.tensor.nbytes if isinstance(value.type, TensorType) and value.tensor.is_static else 0
