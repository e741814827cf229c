"""Loop bodies that overwrite their carried values.

After the last read of a carried array in an iteration the next value may overwrite it, which makes JAX's scans (a
dynamic_update_slice of the stacked results per iteration) linear instead of quadratic. That is sound for a carried
position if every iteration returns memory that it alone owns; only the initial value is then copied.
"""

from __future__ import annotations

from spmd.backends.kernels import Program
from spmd.compiler.pipeline.block_compiler import BlockCompiler
from spmd.compiler.plan.emit import emit
from spmd.compiler.plan.steps import Plan, fresh_values, is_whole
from spmd.ir import Op


def loop_body(lowering: BlockCompiler, op: Op, index: int) -> tuple[Program, tuple[int, ...]]:
    """Return the program of a loop body, and the carried positions that it overwrites."""
    donated = frozenset(range(len(op.regions[index].block.arguments)))
    while True:
        plan = lowering.region_plan(op, index, donated)
        kept = frozenset(position for position in donated if _returns_own_memory(plan, donated, position))
        if kept == donated:
            return emit(plan, lowering.options.watch), tuple(sorted(_eventually_overwritten(plan)))
        donated = kept


def _eventually_overwritten(plan: Plan) -> set[int]:
    """Return the carried positions whose initial memory some iteration overwrites, possibly after it moved to another
    position.
    """
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


def _returns_own_memory(plan: Plan, donated: frozenset[int], position: int) -> bool:
    """Return whether the body's result at `position` is a whole buffer that no other result shares."""
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
