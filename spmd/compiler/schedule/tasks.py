"""Tasks: units split among the threads of a process.

A task is a range of one parallel loop; every point is computed alike whichever thread runs it and however many tasks
there are. A reduction to few results is split into the blocks in which it is computed anyway (fold_blocks): partial
results are stored and combined in order. So results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Variable
from spmd.compiler.schedule.buffers import Buffer, BufferAssignment, PlanFrame
from spmd.compiler.schedule.costs import cost_of_nests
from spmd.compiler.schedule.fold_blocks import ReductionBlocks, shared_blocks
from spmd.compiler.schedule.lanes import SIDE
from spmd.compiler.schedule.loop_plan import PlannedNest
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rates import nanoseconds
from spmd.ir import Value

#: Least nanoseconds of a unit to be split, and of a task.
_LEAST_UNIT, _LEAST_TASK = 50_000, 4_000
#: Least points of a nest to be considered.
_LEAST_POINTS = 1 << 10
#: Tasks per thread, for load balance.
_EACH = 4
#: Least points of a nest that is outlined: equal nests are then compiled once. Inside a loop or branch more, since each
#: iteration pays for the call.
_LEAST_OUTLINED, _LEAST_OUTLINED_INSIDE = 1 << 3, 1 << 9


@dataclass(frozen=True)
class Cut:
    """A loop split into `count` tasks of `size` iterations each; the last one also takes the remainder."""

    variable: Variable
    size: int
    count: int


@dataclass(frozen=True)
class FoldCut:
    """A reduction split into `count` tasks of `size` of the `blocks` each, the last one with the remainder; `memory`
    holds their results.
    """

    size: int
    count: int
    memory: Buffer
    blocks: ReductionBlocks


@dataclass(frozen=True)
class TaskedNest:
    """A loop nest and its split into tasks, if any; else whether it is `outlined` as a function of its own."""

    nest: PlannedNest
    cut: Cut | FoldCut | None = None
    outlined: bool = False


def tasks_of_nests(nests: Sequence[Nest], results: Sequence[Value], threads: int) -> int:
    """Return how many tasks the nests that compute `results` are split into; 1 if that does not pay."""
    if threads == 1 or max(prod(nest.extents) for nest in nests) < _LEAST_POINTS:
        return 1
    return tasks_of_time(time_of_nests(nests, results), threads)


def time_of_nests(nests: Sequence[Nest], results: Sequence[Value]) -> int:
    """Return the approximate time in nanoseconds of the nests that compute `results`."""
    cost = cost_of_nests(nests, results)
    return nanoseconds("operations", cost.operations) + nanoseconds("bytes", cost.bytes)


def tasks_of_time(time: int, threads: int) -> int:
    """Return how many tasks a unit of `time` nanoseconds is split into; 1 if that does not pay."""
    return 1 if threads == 1 or time < _LEAST_UNIT else max(1, min(time // _LEAST_TASK, _EACH * threads))


def plan_tasks(memory: BufferAssignment, nest: PlannedNest, frame: PlanFrame, results: Sequence[Value]) -> TaskedNest:
    """Return `nest`, which computes `results`, split into tasks if that pays."""
    threads = memory.target.threads
    count = tasks_of_nests([nest], results, threads)
    if count == 1 or any(stage.updates for stage in nest.stages):
        return TaskedNest(nest, None, is_outlined(memory, nest))
    cut = cut_loop(nest, count)
    found = 1 if cut is None else cut.count
    blocks = _blocks(nest) if found < threads else None
    if blocks is None or blocks.count <= found:
        return TaskedNest(nest, cut, is_outlined(memory, nest))
    size = -(-blocks.count // count)
    return TaskedNest(nest, FoldCut(size, blocks.count // size, memory.scratch(frame, blocks.nbytes), blocks))


def is_outlined(memory: BufferAssignment, nest: Nest) -> bool:
    """Return whether `nest` is a function of its own if it is not split: not if it has few points or is the only one.

    Updates always are: inline, with registers live across the copy of the operand, store addresses were mispredicted,
    and a histogram took 2.7 times as long.
    """
    if memory.is_one_nest and not any(stage.updates for stage in nest.stages):
        return False
    return prod(nest.extents) >= (_LEAST_OUTLINED_INSIDE if memory.depth > 1 else _LEAST_OUTLINED)


def _blocks(nest: PlannedNest) -> ReductionBlocks | None:
    """Return the blocks of a nest that reduces one long loop at few points; None for any other nest."""
    if nest.outer or len(nest.stages) != 1:
        return None
    return shared_blocks(nest, nest.stages[0], nest.plans[0].lanes, nest.plans[0].levels)


def cut_loop(nest: PlannedNest, num_tasks: int) -> Cut | None:
    """Return the split of `nest` at its outermost sufficiently long loop, or the longest; None if it has none."""
    best: Cut | None = None
    for variable, iterations in _cuttable(nest):
        extent = nest.extents[variable]
        size = -(-extent // (num_tasks * iterations)) * iterations
        count = extent // size
        if count > (1 if best is None else best.count):
            best = Cut(variable, size, count)
        if count * 4 >= num_tasks * 3:
            break
    return best


def _cuttable(nest: PlannedNest) -> list[tuple[Variable, int]]:
    """Return the loops that may be split, and the granularity of each in iterations."""
    if nest.outer:
        return [(variable, 1) for variable in nest.outer]
    if len(nest.stages) != 1 or nest.plans[0].unrolled:
        return []
    ((stage,), (plan,)) = nest.stages, nest.plans
    sizes = plan.lanes.tile_sizes()
    if plan.transposed is not None:
        sizes[plan.transposed] = SIDE
    return [(variable, sizes.get(variable, 1)) for variable in stage.parallel if variable != plan.lanes.inner]
