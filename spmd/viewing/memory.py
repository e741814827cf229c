"""The memory of a process over its schedule: live values at each step, by line of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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
#: The bytes of a buffer, and the start and end of its lifetime (spmd.compiler.schedule.arena).
Lifetime = tuple[int, int, int]


@dataclass(frozen=True)
class Live:
    """`nbytes` of memory that are live from step `first` to step `last`; `op` defines the value in it."""

    nbytes: int
    first: int
    last: int
    op: Op
    what: str


def memory(schedule: Schedule, schedule_of: ScheduleOf, program: ProgramTables, origins: Origins) -> dict[str, Json]:
    """Return the steps in order, and live memory: [bytes, first step, last step, op, its place, kind].

    `arenas` holds the bytes of the arena of each native region, with its first and last step.
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
        self.shown: dict[Value, Value] = {}  # the viewed value of each view
        self.last_read = self._last_reads()

    def run(self) -> tuple[list[Step], list[Live], list[list[int]]]:
        """Return the steps, the live memory, and the arenas."""
        lives: list[Live] = []
        arenas: list[list[int]] = []
        returned = {self._memory(value) for value in self.schedule.block.terminator.operands}
        for part in self.schedule.entries:
            first, last = self._span(part)
            if isinstance(part, NativeRegion):
                if part.placement.size:
                    arenas.append([part.placement.size, first, last])
                lives += self._of_region(part)
                lives += self._forwarded(part.outputs, returned, first, last)
            else:
                lives += self._forwarded(part.op.results, returned, first, last)
                lives += self._within(part)
        return self.steps, lives, arenas

    def _span(self, part: NativeRegion | KernelCall) -> tuple[int, int]:
        """Return the first and last step of a part of the schedule."""
        steps = part.body.steps if isinstance(part, NativeRegion) else [part]
        return self.number[steps[0]], self.number[steps[-1]]

    def _memory(self, value: Value) -> Value:
        return self.shown.get(value, value)

    def _last_reads(self) -> dict[Value, int]:
        """Return the last step of the last part that reads each value: inputs stay live until a part ends."""
        last: dict[Value, int] = {}
        for part in self.schedule.entries:
            if isinstance(part, KernelCall) and part.units[0].is_view:
                pairs = zip(part.op.operands, part.op.results, strict=True)
                self.shown |= {new: self._memory(old) for old, new in pairs}
            reads = part.inputs if isinstance(part, NativeRegion) else _reads(part)
            last |= dict.fromkeys(map(self._memory, reads), self._span(part)[1])
        return last

    def _of_region(self, part: NativeRegion) -> Iterator[Live]:
        """Yield the buffers of an arena, by the steps at whose peak they are live."""
        lifetimes = part.memory.arena.lifetimes()
        own = [number for number, block in enumerate(part.placement.blocks) if block is None]
        made = {buffer.number: (buffer, step) for top in part.body.steps for buffer, step in _made(top)}
        peaks = _peaks(part.body.steps, lifetimes, own)
        first = self.number[part.body.steps[0]]
        for number in own:
            nbytes, begin, end = lifetimes[number]
            steps = [first + place for place, peak in enumerate(peaks) if begin <= peak < end]
            if steps:
                yield Live(nbytes, steps[0], steps[-1], _maker(*made[number]), "temporary")

    def _forwarded(self, values: Sequence[Value], returned: set[Value], first: int, last: int) -> Iterator[Live]:
        """Yield the values that a part of the schedule produces for others."""
        for value in values:
            op = value.defining_op
            if op is None or self._memory(value) is not value or value in returned:
                continue
            yield Live(bytes_of(value), first, self.last_read.get(value, last), op, "handed on")

    def _within(self, step: KernelCall) -> Iterator[Live]:
        """Yield the memory that a loop or branch run by Python needs at its peak."""
        number = self.number[step]
        regions = [region for op in step.ops if has_trait(op, Trait.RUNS_REGIONS) for region in op.regions]
        inner = [_Walk(self.schedule_of(region.block), self.schedule_of).run()[1] for region in regions]
        peaks = [list(_at_peak(lives)) for lives in inner]
        largest = max(peaks, key=lambda lives: sum(each.nbytes for each in lives), default=[])
        yield from (Live(each.nbytes, number, number, each.op, "inside") for each in largest)


def _made(step: Step) -> Iterator[tuple[Buffer, Step]]:
    """Yield the arena buffers that a step defines, including those in its blocks."""
    yield from ((buffer, step) for buffer in step.made if buffer.home is Home.ARENA)
    for block in step.blocks:
        for inner in block.steps:
            yield from _made(inner)


def _peaks(steps: Sequence[Step], lifetimes: Sequence[Lifetime], own: Sequence[int]) -> list[int]:
    """Return, for each step, the time in the arena's history at which the buffers `own` need the most bytes."""
    sizes, begins, ends = np.array([lifetimes[number] for number in own], np.int64).reshape(-1, 3).T

    def needed(now: int) -> int:
        return int(sizes[(begins <= now) & (now < ends)].sum())

    found: list[int] = []
    following = max((begin for _, begin, _ in lifetimes), default=0) + 1
    for step in reversed(steps):
        start = min((lifetimes[buffer.number][1] for buffer, _ in _made(step)), default=None)
        if start is None:
            found.append(following - 1)
            continue
        found.append(max([start, *begins[(begins >= start) & (begins < following)].tolist()], key=needed))
        following = start
    return found[::-1]


def _at_peak(lives: Sequence[Live]) -> Iterator[Live]:
    """Yield the memory that is live at the step of the peak."""
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
