"""Full unrolling of short counted loops.

Loop-carried values are stored to memory; unrolled, the iterations of an elementwise body are fused into one nest, and
the counter is folded. JAX's random bits are such a loop of five iterations.
"""

from __future__ import annotations

from spmd.analysis.loops import trip_count
from spmd.dialects.core import Trait, has_trait, is_pure
from spmd.ir import Block, Op, Value, copy_op

#: Most ops of an unrolled loop.
_LARGEST = 400


def unroll(block: Block) -> None:
    """Unroll short counted loops in `block` and its regions; in place."""
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
            replaced.update(zip(op.results, _append_iterations(op, steps, ops), strict=True))
    block.ops = ops


def _append_iterations(op: Op, steps: int, ops: list[Op]) -> list[Value]:
    """Append the body of the loop `op` to `ops` once per iteration; return the final carried values."""
    body = op.regions[1].block
    state = list(op.operands)
    for _ in range(steps):
        values = dict(zip(body.arguments, state, strict=True))
        ops += [copy_op(inner, values) for inner in body.ops[:-1]]
        state = [values.get(value, value) for value in body.terminator.operands]
    return state


def _steps(op: Op) -> int | None:
    """Return the trip count of the loop `op` if it is known, and it is pure and short; else None."""
    if not has_trait(op, Trait.LOOP):
        return None
    body = op.regions[1].block
    if not all(is_pure(inner) for region in op.regions for inner in region.block.ops[:-1]):
        return None
    steps = trip_count(op)
    return steps if steps is not None and steps * len(body.ops) <= _LARGEST else None
