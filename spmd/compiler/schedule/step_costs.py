"""The cost of steps, and the memory of schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from spmd.compiler.schedule.costs import Cost, Work, bytes_of, bytes_read, cost_of_nests, cost_of_unit, work_of_unit
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.schedule import NativeRegion, Schedule
from spmd.compiler.schedule.steps import Step
from spmd.compiler.schedule.units import nests_of
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Block, Value, captured_values


@dataclass(frozen=True)
class UnitFacts:
    """Bytes loaded from each value, cost, work by kind, and nests of a unit."""

    reads: dict[Value, int]
    cost: Cost
    work: list[Work]
    nests: Sequence[Nest] = ()

    @classmethod
    def of(cls, unit: Unit) -> UnitFacts:
        """Return the facts of `unit`; a view loads nothing."""
        if not unit.fused:
            read = {} if unit.is_view else {value: bytes_of(value) for value in unit.outputs[0].operands}
            return cls(read, cost_of_unit(unit), work_of_unit(unit))
        nests = nests_of(unit)
        results = [value for op in unit.outputs for value in op.results]
        return cls(bytes_read(nests), cost_of_nests(nests, results), work_of_unit(unit, nests), nests)


def cost_of_step(step: Step) -> Cost:
    """Return the cost of running `step` once.

    Private values are not counted; values that several of its units load are counted once.
    """
    operations = written = 0
    reads: dict[Value, int] = {}
    for unit in step.all_units:
        facts = UnitFacts.of(unit)
        for value, size in facts.reads.items():
            if value not in step.private:
                reads[value] = max(size, reads.get(value, 0))
        operations += facts.cost.operations
        written += _written(unit, facts, step.private)
    return Cost(operations, sum(reads.values()), written)


def _written(unit: Unit, facts: UnitFacts, private: Collection[Value]) -> int:
    results = [value for op in unit.outputs for value in op.results if value not in private]
    if not results:
        return 0
    return cost_of_nests(facts.nests, results).written if facts.nests else facts.cost.written


def temporaries(schedule: Schedule, schedule_of: Callable[[Block], Schedule]) -> int:
    """Return the peak bytes of memory besides arguments and results: arenas, and values between regions and calls.

    `schedule_of` gives the schedule of a block that Python runs.
    """
    made_of: dict[Value, Value] = {}  # the base of each view

    def memory(value: Value) -> Value:
        return made_of.get(value, value)

    results = list(schedule.block.terminator.operands)
    last: dict[Value, int] = {}
    for number, part in enumerate(schedule.entries):
        if not isinstance(part, NativeRegion) and part.units[0].is_view:
            made_of |= {new: memory(old) for old, new in zip(part.op.operands, part.op.results, strict=True)}
        last |= {memory(value): number for value in _read_by(part)}
    live_out = {memory(value) for value in results}
    live = most = 0
    freed: dict[int, int] = {}
    for number, part in enumerate(schedule.entries):
        for value in part.outputs if isinstance(part, NativeRegion) else part.op.results:
            if memory(value) is value and value not in live_out:
                live += bytes_of(value)
                end = last.get(value, number)
                freed[end] = freed.get(end, 0) + bytes_of(value)
        most = max(most, live + _within(part, schedule_of))
        live -= freed.pop(number, 0)
    return most


def _read_by(part: NativeRegion | Step) -> list[Value]:
    if isinstance(part, NativeRegion):
        return list(part.inputs)
    return [v for op in part.ops for v in (*op.operands, *(captured_values(op) if op.regions else ()))]


def _within(part: NativeRegion | Step, schedule_of: Callable[[Block], Schedule]) -> int:
    """Return the bytes that a part needs while it runs."""
    if isinstance(part, NativeRegion):
        return part.placement.size
    regions = [region for op in part.ops if has_trait(op, Trait.RUNS_REGIONS) for region in op.regions]
    return max((temporaries(schedule_of(region.block), schedule_of) for region in regions), default=0)
