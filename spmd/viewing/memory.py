"""The memory of a process over its schedule: what lives at each step, and of which line of the program it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spmd.compiler.schedule.buffers import Buffer, Home
from spmd.compiler.schedule.costs import bytes_of
from spmd.compiler.schedule.schedule import NativeRegion, Schedule
from spmd.compiler.schedule.show import title
from spmd.compiler.schedule.steps import KernelCall, Step
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Block, Op, Value, captured_values
from spmd.viewing.program import Origins, ProgramTables
from spmd.viewing.tables import Json

ScheduleOf = Callable[[Block], Schedule]


@dataclass(frozen=True)
class Live:
    """Memory of `nbytes` that is needed from step `first` to step `last`; `op` makes what lies in it."""

    nbytes: int
    first: int
    last: int
    op: Op
    what: str


def memory(schedule: Schedule, schedule_of: ScheduleOf, program: ProgramTables, origins: Origins) -> dict[str, Json]:
    """Steps in their order, and what lives over them: [bytes, first step, last step, op, its place, what it is].

    `arenas` are the bytes that the native regions are given, each with its first and its last step.
    """
    steps, lives, arenas = _Walk(schedule, schedule_of).run()
    return {
        "steps": [program.texts.of(title(step)) for step in steps],
        "stepOps": [origins.all(step.ops) for step in steps],
        "live": [
            [each.nbytes, each.first, each.last, origins(each.op), program.places.number(each.op), each.what]
            for each in lives
        ],
        "arenas": arenas,
    }


class _Walk:
    def __init__(self, schedule: Schedule, schedule_of: ScheduleOf) -> None:
        self.schedule, self.schedule_of = schedule, schedule_of
        self.steps: list[Step] = schedule.steps
        self.number = {step: number for number, step in enumerate(self.steps)}
        self.shown: dict[Value, Value] = {}  # by view, what it shows
        self.last_read = self._last_reads()

    def run(self) -> tuple[list[Step], list[Live], list[list[int]]]:
        lives: list[Live] = []
        arenas: list[list[int]] = []
        returned = {self._memory(value) for value in self.schedule.block.terminator.operands}
        for part in self.schedule.parts:
            if isinstance(part, NativeRegion):
                first, last = self.number[part.body.steps[0]], self.number[part.body.steps[-1]]
                if part.placement.size:
                    arenas.append([part.placement.size, first, last])
                lives += self._of_region(part)
                lives += self._handed_on(part.outputs, returned)
            else:
                lives += self._handed_on(part.op.results, returned)
                lives += self._within(part)
        return self.steps, lives, arenas

    def _memory(self, value: Value) -> Value:
        return self.shown.get(value, value)

    def _last_reads(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        for number, step in enumerate(self.steps):
            if isinstance(step, KernelCall) and step.units[0].is_view:
                pairs = zip(step.op.operands, step.op.results, strict=True)
                self.shown |= {new: self._memory(old) for old, new in pairs}
            for value in _reads(step):
                last[self._memory(value)] = last[value] = number
        return last

    def _of_region(self, part: NativeRegion) -> Iterator[Live]:
        """The buffers of the arena: from the step that makes each to the last that reads what stands on it."""
        for step in part.body.steps:
            first = self.number[step]
            for buffer in step.made:
                if buffer.home is Home.ARENA:
                    yield Live(buffer.nbytes, first, self._end(buffer, first), _maker(buffer, step), "temporary")
            yield from (
                Live(nbytes, first, first, op, "temporary of a loop") for nbytes, op in _inner_peak(step, set())
            )

    def _end(self, buffer: Buffer, first: int) -> int:
        return max((self.last_read.get(value, first) for value in buffer.values), default=first)

    def _handed_on(self, values: Sequence[Value], returned: set[Value]) -> Iterator[Live]:
        """What one part of the schedule makes for others."""
        for value in values:
            op = value.defining_op
            if op is None or self._memory(value) is not value or value in returned:
                continue
            first = next((number for number, step in enumerate(self.steps) if op in step.ops), 0)
            yield Live(bytes_of(value), first, self.last_read.get(value, first), op, "handed on")

    def _within(self, step: KernelCall) -> Iterator[Live]:
        """What a loop or branch that Python runs needs at its peak."""
        number = self.number[step]
        regions = [region for op in step.ops if has_trait(op, Trait.RUNS_REGIONS) for region in op.regions]
        inner = [_Walk(self.schedule_of(region.block), self.schedule_of).run()[1] for region in regions]
        peaks = [list(_at_peak(lives)) for lives in inner]
        largest = max(peaks, key=lambda lives: sum(each.nbytes for each in lives), default=[])
        yield from (Live(each.nbytes, number, number, each.op, "inside") for each in largest)


def _inner_peak(step: Step, seen: set[Buffer]) -> Iterator[tuple[int, Op]]:
    """The buffers of the blocks that a step runs, the larger ones of alternatives."""
    for block in step.blocks:
        for inner in block.steps:
            for buffer in inner.made:
                if buffer.home is Home.ARENA and buffer not in seen:
                    seen.add(buffer)
                    yield buffer.nbytes, _maker(buffer, inner)
            yield from _inner_peak(inner, seen)


def _at_peak(lives: Sequence[Live]) -> Iterator[Live]:
    """Those that live at the step at which the most bytes do."""
    changes: dict[int, int] = {}
    for each in lives:
        changes[each.first] = changes.get(each.first, 0) + each.nbytes
        changes[each.last + 1] = changes.get(each.last + 1, 0) - each.nbytes
    now = most = peak = 0
    for number in sorted(changes):
        now += changes[number]
        if now > most:
            most, peak = now, number
    return (each for each in lives if each.first <= peak <= each.last)


def _maker(buffer: Buffer, step: Step) -> Op:
    owners = [value.owner for value in buffer.values if isinstance(value.owner, Op)]
    return owners[0] if owners else step.ops[-1]


def _reads(step: Step) -> list[Value]:
    ops = step.ops
    return [value for op in ops for value in (*op.operands, *(captured_values(op) if op.regions else ()))]
