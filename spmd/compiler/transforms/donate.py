"""Loop bodies that overwrite what they carry.

A loop's state belongs to the loop: once an iteration has read a carried array for the last time, the next value may
be written over it, which turns JAX's scans (a dynamic_update_slice of the stacked results in each iteration) from
quadratic into linear. That is sound for a carried position when every iteration hands on memory that nobody else
holds; the loop then needs a copy of the first value only.
"""

from __future__ import annotations

from spmd.backends.kernels import Program
from spmd.compiler.pipeline.block_compiler import BlockCompiler
from spmd.compiler.plan.emit import emit
from spmd.compiler.plan.steps import Plan, fresh_values, is_whole
from spmd.ir import Op


def loop_body(lowering: BlockCompiler, op: Op, index: int) -> tuple[Program, tuple[int, ...]]:
    """The body of a loop, and the carried positions that it overwrites."""
    donated = frozenset(range(len(op.regions[index].block.arguments)))
    while True:
        plan = lowering.region_plan(op, index, donated)
        kept = frozenset(position for position in donated if _hands_on_own_memory(plan, donated, position))
        if kept == donated:
            return emit(plan, lowering.options.watch), tuple(sorted(_overwritten_in_time(plan)))
        donated = kept


def _overwritten_in_time(plan: Plan) -> set[int]:
    """Carried positions whose first memory some iteration overwrites: it may move to another position before."""
    overwrites = set(plan.overwrites)
    carried = len(plan.results)
    moves = [
        (source, target)
        for source, parameter in enumerate(plan.parameters[:carried])
        for target, result in enumerate(plan.results)
        if parameter in plan.alias_sets[result]
    ]
    while more := {source for source, target in moves if target in overwrites} - overwrites:
        overwrites |= more
    return overwrites


def _hands_on_own_memory(plan: Plan, donated: frozenset[int], position: int) -> bool:
    """Whether the body's result at `position` is the whole of memory that no other result shares."""
    owned = fresh_values(plan) | {plan.parameters[k] for k in donated}
    value = plan.results[position]
    if not is_whole(value, plan.alias_sets, owned):
        return False
    alias_set = plan.alias_sets[value]
    return not any(
        alias_set & plan.alias_sets[other]
        for other_position, other in enumerate(plan.results)
        if other_position != position
    )
