"""Short counted loops written out step by step.

What a loop carries from step to step is stored whole; written out, the steps of an elementwise body run together in
one loop nest, and what depends on the counter is folded. JAX's random bits are such a loop of five steps.
"""

from __future__ import annotations

from spmd.analysis.constants import constant_integer
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value, copy_op
from spmd.types import ElementType, storage_range

#: Ops that one loop may become.
_LARGEST = 400


def unroll(block: Block) -> None:
    """Writes short counted loops out, in `block` and the regions inside it."""
    replaced: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in block.ops:
        if replaced:
            for nested in op.walk():
                nested.replace_operands(replaced)
        for region in op.regions:
            for inner in region.blocks:
                unroll(inner)
        steps = _steps(op)
        if steps is None:
            ops.append(op)
        else:
            replaced.update(zip(op.results, _write_out(op, steps, ops), strict=True))
    block.ops = ops


def _write_out(op: Op, steps: int, ops: list[Op]) -> list[Value]:
    """Appends the body of the loop `op` to `ops` as often as it runs; the values that the loop ends with."""
    body = op.regions[1].block
    state = list(op.operands)
    for _ in range(steps):
        values = dict(zip(body.arguments, state, strict=True))
        ops += [copy_op(inner, values) for inner in body.ops[:-1]]
        state = [values.get(value, value) for value in body.terminator.operands]
    return state


def _steps(op: Op) -> int | None:
    """How often the loop `op` runs, when that is known, and it is pure and short; else None."""
    if op.name != "stablehlo.while":
        return None
    body = op.regions[1].block
    if not all(is_pure(inner) for region in op.regions for inner in region.block.ops[:-1]):
        return None
    steps = turns_of(op)
    return steps if steps is not None and steps * len(body.ops) <= _LARGEST else None


def turns_of(op: Op) -> int | None:
    """How often the body of `op`, a while, runs: known when it counts up to a constant in constant steps."""
    condition, body = (region.block for region in op.regions)
    compare = condition.terminator.operands[0].defining_op
    if compare is None or compare.name != "stablehlo.compare" or compare["comparison_direction"] != "LT":
        return None
    counter, bound = compare.operands[0], constant_integer(compare.operands[1])
    if counter.owner is not condition or bound is None:
        return None
    start = constant_integer(op.operands[counter.index])
    step = _step(body.terminator.operands[counter.index], body.arguments[counter.index])
    if start is None or step is None or step <= 0:
        return None
    steps = max(0, -((start - bound) // step))
    element = body.arguments[counter.index].tensor.element_type
    if not isinstance(element, ElementType) or start + steps * step > storage_range(element)[1]:
        return None  # the counter wraps on its way to the bound
    return steps


def _step(value: Value, argument: Value) -> int | None:
    """The constant that is added to `argument` to give `value`."""
    add = value.defining_op
    if add is None or add.name != "stablehlo.add" or argument not in add.operands:
        return None
    return constant_integer(add.operands[1] if add.operands[0] is argument else add.operands[0])
