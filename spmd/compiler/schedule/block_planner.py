"""Planning of blocks: which units run as one step, and their buffers.

Steps are planned in execution order, so that memory is reused as soon as it is dead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from spmd.compiler.schedule.batch_tiling import plan_batches
from spmd.compiler.schedule.buffers import Buffer, BufferAssignment, Home, PlanFrame, nbytes, through_views
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.conv_input_fusion import fused_images
from spmd.compiler.schedule.costs import cost_of_unit
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.in_place import (
    BlockUses,
    early_placements,
    may_overwrite,
    place_update,
    reuse_operand_buffer,
)
from spmd.compiler.schedule.loop_plan import planned
from spmd.compiler.schedule.row_groups import plan_rows
from spmd.compiler.schedule.rows import row_groups
from spmd.compiler.schedule.steps import (
    BlockSchedule,
    Branches,
    CallbackStep,
    Carried,
    LibraryCall,
    LoopNests,
    Step,
    ViewStep,
    WhileLoop,
)
from spmd.compiler.schedule.tasks import plan_tasks
from spmd.compiler.schedule.units import nests_of
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Op, Value, captured_values

#: Largest loop-carried value, in bytes, that is copied back after each iteration; larger ones swap pointers.
_COPIED = 4096


def plan_results(
    memory: BufferAssignment,
    units: Sequence[Unit],
    results: Sequence[Value],
    targets: Sequence[Buffer],
    free: Collection[Buffer] = (),
) -> BlockSchedule:
    """Return the steps of a block whose `results` end in `targets`, even if one value is several results.

    Targets in `free` may hold other values before.
    """
    placed: dict[Value, Buffer] = {}
    for result, target in zip(results, targets, strict=True):
        placed.setdefault(result, target)
    memory.free |= set(free)
    block = plan_block(memory, units, results, placed, {v: buffer for v, buffer in placed.items() if buffer in free})
    block.targets = targets
    return block


def plan_block(
    memory: BufferAssignment,
    units: Sequence[Unit],
    results: Sequence[Value],
    placed: Mapping[Value, Buffer],
    free: Mapping[Value, Buffer] = MappingProxyType({}),
) -> BlockSchedule:
    """Return the steps of a block; values in `placed` end in their buffers, and those in `free` may hold
    others before.
    """
    units = without_images(memory, units, results)
    last_reads = memory.last_reads(units, results)
    frame = PlanFrame(units, last_reads, through_views(placed))
    frame.early = early_placements(BlockUses(units, last_reads), frame.placed, free)
    groups = row_groups(units)
    memory.depth += 1
    memory.is_one_nest &= len(groups) <= 1
    steps = list(_steps(memory, groups, frame))
    memory.depth -= 1
    frame.index = len(units) + 1
    memory.release(frame)
    return BlockSchedule(steps, results, placed)


def without_images(memory: BufferAssignment, units: Sequence[Unit], results: Sequence[Value]) -> list[Unit]:
    """Return `units` without those fused into a convolution as producers of its input."""
    memory.images |= fused_images(units, results, memory.target)
    fused = {images.unit for images in memory.images.values()}
    return [unit for unit in units if unit not in fused]


def _steps(memory: BufferAssignment, groups: Sequence[Sequence[Unit]], frame: PlanFrame) -> Iterator[Step]:
    number = 0
    while number < len(groups):
        run = plan_batches(memory, groups, number, frame)
        if run is not None:
            number += len(run.groups)
            yield _done(memory, frame, run)
            continue
        group = groups[number]
        number += 1
        rows = plan_rows(memory, group, frame) if len(group) > 1 else None
        if rows is not None:
            yield _done(memory, frame, rows)
            continue
        for unit in group:
            yield _done(memory, frame, _step(memory, unit, frame))


def _done(memory: BufferAssignment, frame: PlanFrame, step: Step) -> Step:
    """Return `step` with its new buffers, and release those that are dead after it."""
    step.made, frame.made = frame.made, []
    memory.release(frame)
    frame.index += 1
    return step


def _step(memory: BufferAssignment, unit: Unit, frame: PlanFrame) -> Step:
    if unit.fused:
        return _loop_nests(memory, unit, frame)
    (op,) = unit.outputs
    if not memory.target.supports(op):
        _allocate_results(memory, op, frame)
        return CallbackStep([unit])
    if unit.is_view:
        for operand, result in zip(op.operands, op.results, strict=True):
            memory.assign(result, memory.of(operand))
        return ViewStep([unit])
    if has_trait(op, Trait.LOOP):
        return _LoopPlanner(memory, op, frame).plan(unit)
    if has_trait(op, Trait.BRANCH):
        return _branches(memory, unit, frame)
    images = memory.images.get(op)
    plan = memory.target.plan(op, images.nbytes if images else None)
    _allocate_results(memory, op, frame)
    return LibraryCall([unit], [], plan, [memory.scratch(frame, size) for size in plan.scratch], images)


def _allocate_results(memory: BufferAssignment, op: Op, frame: PlanFrame) -> list[Buffer]:
    return [memory.allocate(frame, result) for result in op.results]


def _loop_nests(memory: BufferAssignment, unit: Unit, frame: PlanFrame) -> LoopNests:
    nests = nests_of(unit)
    initial = list(place_update(memory, nests[0], unit.outputs[0], frame)) if unit.is_update else []
    written = [value for op in unit.outputs for value in op.results]
    for value in () if unit.is_update else written:
        if value in frame.placed or value in frame.early or not reuse_operand_buffer(memory, nests, value, frame):
            memory.allocate(frame, value)
    tasked = [plan_tasks(memory, planned(collapse(nest)), frame, written) for nest in nests]
    return LoopNests([unit], [], tasked, initial)


def _branches(memory: BufferAssignment, unit: Unit, frame: PlanFrame) -> Branches:
    (op,) = unit.outputs
    targets = _allocate_results(memory, op, frame)
    blocks = []
    for region in op.regions:
        results = region.block.terminator.operands
        blocks.append(plan_results(memory, memory.units_of(region.block, results), results, targets))
    return Branches([unit], [], blocks)


class _LoopPlanner:
    """Plans the loop-carried values of a `while` and the steps of an iteration."""

    def __init__(self, memory: BufferAssignment, op: Op, frame: PlanFrame) -> None:
        self.memory, self.op, self.frame = memory, op, frame
        self.condition, self.body = (region.block for region in op.regions)
        results = self.body.terminator.operands
        self.units = without_images(memory, memory.units_of(self.body, results), results)
        self.units_of_body = BlockUses(self.units, memory.last_reads(self.units, ()))

    def plan(self, unit: Unit) -> WhileLoop:
        memory = self.memory
        carried = [self._carried(index) for index in range(len(self.op.results))]
        for index, state in enumerate(carried):
            for argument in (state.argument, self.condition.arguments[index]):
                memory.buffer_of[argument] = Buffer(state.buffer.home, state.buffer.nbytes, alias=state.buffer)
        (holds,) = self.condition.terminator.operands
        condition = plan_block(memory, memory.units_of(self.condition, [holds]), [holds], {})
        placed: dict[Value, Buffer] = {}
        for state in carried:
            if state.successor is not None:
                placed.setdefault(state.result, state.successor)
            if state.successor is state.buffer:  # an in-place update writes to the carried buffer itself
                memory.buffer_of[state.argument] = state.buffer
        body = plan_block(memory, self.units, self.body.terminator.operands, placed)
        for state, result in zip(carried, self.op.results, strict=True):
            for swapped in (state.home, state.spare) if state.swaps else ():
                assert swapped is not None
                swapped.values.append(result)
            memory.assign(result, state.buffer)
        work = sum(cost.operations + cost.bytes for cost in map(cost_of_unit, self.units))
        return WhileLoop([unit], [], carried, work=work, condition=condition, body=body)

    def _carried(self, index: int) -> Carried:
        """Return the buffers of the carried value `index`."""
        memory, frame = self.memory, self.frame
        first, result = self.op.operands[index], self.op.results[index]
        argument, after = self.body.arguments[index], self.body.terminator.operands[index]
        before = memory.of(first)
        if self._is_invariant(index):
            return Carried(argument, after, None, before, None, before, None)
        # Values copied before this one are dead; the last of several copies of one value may therefore reuse its
        # memory.
        others = [
            operand for k, operand in enumerate(self.op.operands) if k > index or (k < index and self._is_invariant(k))
        ]
        others += captured_values(self.op)  # live throughout the loop
        begin: Buffer | None = None
        is_free = frame.is_mine(before) and frame.is_last_read(before) and result not in frame.placed
        if is_free and not any(memory.buffer_of.get(other) is before for other in others):
            buffer = before
        else:
            buffer, begin = memory.allocate(frame, result), before
            buffer.values.remove(result)
        if self._in_place(index):
            return Carried(argument, after, begin, buffer, None, buffer, buffer)
        spare = memory.scratch(frame, nbytes(result))
        if nbytes(result) <= _COPIED:
            return Carried(argument, after, begin, buffer, spare, buffer, spare)
        here, there = (Buffer(Home.SWAPPED, buffer.nbytes) for _ in range(2))
        return Carried(argument, after, begin, buffer, spare, here, there)

    def _is_invariant(self, index: int) -> bool:
        """Return whether carried value `index` is loop-invariant."""
        return self.body.terminator.operands[index] is self.body.arguments[index]

    def _in_place(self, index: int) -> bool:
        """Return whether the next value may overwrite the current one: that has no later or concurrent reader."""
        results, argument = self.body.terminator.operands, self.body.arguments[index]
        if any(result is argument for result in results):
            return False
        if sum(result is results[index] for result in results) > 1:
            return False
        return may_overwrite(self.units_of_body, argument, results[index])
