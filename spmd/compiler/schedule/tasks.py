"""Units cut in tasks, which the threads of a process run side by side.

A task is a stretch of one loop that is not folded: whichever thread runs it, and however many tasks there are, each
point is computed alike. A fold of everything, or of a few columns, is cut at the blocks that it is folded by anyway
(fold_blocks): their results are stored, and folded in their order when all are there. So no bit depends on the number
of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Variable
from spmd.compiler.schedule.buffers import Buffer, Frame, Memory
from spmd.compiler.schedule.costs import cost_of_nests
from spmd.compiler.schedule.fold_blocks import shared_blocks
from spmd.compiler.schedule.lanes import SIDE, is_written_out, lanes_of, turned_loop
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rates import nanoseconds
from spmd.ir import Value

#: Nanoseconds that a unit takes at least to be cut, and a task of it.
_LEAST_UNIT, _LEAST_TASK = 50_000, 4_000
#: Points of a nest that is looked at.
_LEAST_POINTS = 1 << 10
#: Tasks for each thread, so that one that comes late does not keep the others waiting.
_EACH = 4


@dataclass(frozen=True)
class Cut:
    """A loop in `count` tasks of `size` iterations each, and what is left over in the last one."""

    variable: Variable
    size: int
    count: int


@dataclass(frozen=True)
class FoldCut:
    """A fold in `count` tasks of `size` blocks each, the last with what is left over; `memory` takes their results."""

    size: int
    count: int
    memory: Buffer


@dataclass(frozen=True)
class TaskedNest:
    """A loop nest, and how it is cut for threads (None: it is not)."""

    nest: Nest
    cut: Cut | FoldCut | None = None


def tasks_of_nests(nests: Sequence[Nest], results: Sequence[Value], threads: int) -> int:
    """How many tasks the nests that write `results` are cut in: 1 where it is not worth it."""
    if threads == 1 or max(prod(nest.extents) for nest in nests) < _LEAST_POINTS:
        return 1
    return tasks_of_time(time_of_nests(nests, results), threads)


def time_of_nests(nests: Sequence[Nest], results: Sequence[Value]) -> int:
    """How many nanoseconds the nests that write `results` take, roughly."""
    cost = cost_of_nests(nests, results)
    return nanoseconds("operations", cost.operations) + nanoseconds("bytes", cost.bytes)


def tasks_of_time(time: int, threads: int) -> int:
    """How many tasks a unit is cut in that takes so many nanoseconds: 1 where it is not worth it."""
    return 1 if threads == 1 or time < _LEAST_UNIT else max(1, min(time // _LEAST_TASK, _EACH * threads))


def plan_tasks(memory: Memory, nest: Nest, frame: Frame, results: Sequence[Value]) -> TaskedNest:
    """`nest`, which writes `results`, in tasks where that pays."""
    threads = memory.target.threads
    count = tasks_of_nests([nest], results, threads)
    if count == 1 or any(stage.updates for stage in nest.stages):
        return TaskedNest(nest)
    cut = cut_loop(nest, count)
    found = 1 if cut is None else cut.count
    blocks = shared_blocks(nest) if found < threads else None
    if blocks is None or blocks.count <= found:
        return TaskedNest(nest, cut)
    size = -(-blocks.count // count)
    return TaskedNest(nest, FoldCut(size, blocks.count // size, memory.scratch(frame, blocks.nbytes)))


def cut_loop(nest: Nest, num_tasks: int) -> Cut | None:
    """Where `nest` is cut: at the outermost of the loops that are long enough, or the longest; None if it cannot be."""
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


def _cuttable(nest: Nest) -> list[tuple[Variable, int]]:
    """The loops of which a stretch can be run alone, and how many iterations of each are taken at a time."""
    if nest.outer:
        return [(variable, 1) for variable in nest.outer]
    if len(nest.stages) != 1 or is_written_out(nest, nest.stages[0]):
        return []
    (stage,) = nest.stages
    lanes = lanes_of(nest, stage)
    taken = lanes.taken()
    if (turned := turned_loop(nest, stage, lanes)) is not None:
        taken[turned] = SIDE
    return [(variable, taken.get(variable, 1)) for variable in stage.kept if variable != lanes.inner]
