"""A schedule as a listing: the steps in order, with what each computes, reads and writes, and its source location."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.schedule import Schedule
from spmd.compiler.schedule.step_costs import cost_of_step
from spmd.compiler.schedule.steps import BatchRun, KernelCall, OpStep, RowGroup, Step
from spmd.compiler.schedule.watching import name_of, place_of
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Block, Op
from spmd.support.amounts import amount

_START = "stablehlo.async_start"


def show_schedule(schedule: Schedule, schedule_of: Callable[[Block], Schedule]) -> Iterator[str]:
    """Yield the listing of `schedule`; `schedule_of` gives the schedule of a block that Python runs."""
    return _steps(schedule.steps, schedule_of, "")


def _steps(steps: Sequence[Step], schedule_of: Callable[[Block], Schedule], indent: str) -> Iterator[str]:
    ends = _ends(steps)
    for number, step in enumerate(steps, 1):
        until = f" until {ends[step]}" if step in ends else ""
        where = " [numpy]" if isinstance(step, KernelCall) and not step.units[0].is_view else ""
        yield f"{indent}{number}. {title(step)}{until}{where}: {_price(step)}"
        yield f"{indent}   {name_of(step.ops)}  ({place_of(step.ops)})"
        for unit in step.all_units if len(step.all_units) > 1 else ():
            yield f"{indent}   - {unit_title(unit)}: {name_of(unit.ops)}"
        if isinstance(step, OpStep):
            for name, inner in _blocks(step, schedule_of):
                yield f"{indent}   {name}:"
                yield from _steps(inner, schedule_of, indent + "     ")


def _blocks(step: OpStep, schedule_of: Callable[[Block], Schedule]) -> Iterator[tuple[str, Sequence[Step]]]:
    """Yield the blocks of a step, by the names of their regions."""
    if not has_trait(step.op, Trait.RUNS_REGIONS):
        return
    inner = [block.steps for block in step.blocks] or [schedule_of(each.block).steps for each in step.op.regions]
    for position, steps in enumerate(inner):
        yield _region_name(step.op, position), steps


def _ends(steps: Sequence[Step]) -> dict[Step, int]:
    """Return the number of the step that waits for each asynchronous start."""
    ops = {step: step.op for step in steps if isinstance(step, OpStep)}
    starts = {op.results[0]: step for step, op in ops.items() if op.name == _START}
    waits = [(ops[step].operands, number) for number, step in enumerate(steps, 1) if step in ops]
    return {starts[operands[0]]: number for operands, number in waits if operands and operands[0] in starts}


def title(step: Step) -> str:
    """Return a title: what a step is, and its results."""
    if isinstance(step, RowGroup):
        rows = prod(step.nest.extents[variable] for variable in step.nest.outer)
        title = f"{len(step.units)} units row by row, {rows} rows"
    elif isinstance(step, BatchRun):
        title = f"{len(step.units)} units batch by batch, {step.count} batches"
    else:
        return unit_title(step.units[-1])
    private = step.private
    results = [value for unit in step.units for op in unit.outputs for value in op.results if value not in private]
    return f"{title} -> {', '.join(str(value.type) for value in results)}"


def unit_title(unit: Unit) -> str:
    """Return a title: what a unit is, and its results."""
    results = ", ".join(str(value.type) for op in unit.outputs for value in op.results)
    if unit.outputs[0].name == _START:
        inner = unit.outputs[0].regions[0].block.ops[0]
        return f"{inner.name} started -> {', '.join(map(str, inner.result_types))}"
    if not unit.fused:
        return f"{unit.outputs[0].name} -> {results}"
    kind = "update" if unit.is_update else "reduction" if unit.is_reduction else "loop nest"
    folded = f", dimensions {', '.join(map(str, unit.reduced))} folded" if unit.reduced else ""
    return f"{kind} over {_shape(unit.shape)}{folded} -> {results}"


def _shape(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents)) or "1"


def _price(step: Step) -> str:
    cost = cost_of_step(step)
    return f"{amount(cost.operations, '').strip()} operations, {amount(cost.read)} read, {amount(cost.written)} written"


def _region_name(op: Op, position: int) -> str:
    return op.definition.regions[min(position, len(op.definition.regions) - 1)].name if op.definition else str(position)
