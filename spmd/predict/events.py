"""A program as what one process does, event after event, each with its expected time: the schedule, priced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spmd.analysis.collectives import DESCRIPTIONS, Collective
from spmd.analysis.loops import trip_count
from spmd.backends.llvm.native_region import is_native
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.schedule.costs import (
    Cost,
    Work,
    arrival,
    bytes_of,
    bytes_read,
    cost_of_nests,
    cost_of_unit,
    work_of_unit,
)
from spmd.compiler.schedule.fusion import VIEWS, Unit, fuse
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import row_groups
from spmd.compiler.schedule.show import lines_of, names_of, title
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Block, Function, Op, Value, captured_values
from spmd.predict.machine import Machine
from spmd.support.amounts import amount

#: Turns that are taken as read in a loop that does not say how many it makes.
UNKNOWN_TURNS = 1
#: Bytes that the programs go over by which other work than products was measured.
_MEASURED_ON = 1 << 18
_BRANCHES = ("stablehlo.if", "stablehlo.case")
_POINT_TO_POINT = ("stablehlo.send", "stablehlo.recv")


@dataclass(frozen=True, eq=False)
class PricedEvent:
    """One thing that a process does: a unit that it computes, or a collective that it takes part in.

    `seconds` is what the process computes in one turn; `turns` how often loops around it make it so. `collective` is
    what processes do together; `starts` an asynchronous one goes on while the process does, until the event whose
    `finishes` is it. `ops` are what it stands for in the program.
    """

    title: str
    place: str
    seconds: float = 0.0
    turns: int = 1
    collective: Collective | None = None
    starts: bool = False
    finishes: PricedEvent | None = None
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True)
class Footprint:
    """Bytes of memory of one process: arguments, results, and the most that lies beside them at any time."""

    arguments: int
    results: int
    temporaries: int

    @property
    def total(self) -> int:
        return self.arguments + self.results + self.temporaries


@dataclass(frozen=True)
class PricedPart:
    """Units of the program's own block that run as one, and the events that they are."""

    units: tuple[Unit, ...]
    events: tuple[PricedEvent, ...]


@dataclass(frozen=True)
class PricedSchedule:
    """All that one process does in a step, its memory, and what had to be assumed."""

    function: Function
    parts: tuple[PricedPart, ...]
    footprint: Footprint
    notes: tuple[str, ...]

    @property
    def events(self) -> tuple[PricedEvent, ...]:
        return tuple([event for part in self.parts for event in part.events])


def price_schedule(
    lowering: ModuleLowering, function: Function, machine: Machine, turns: int = UNKNOWN_TURNS
) -> PricedSchedule:
    """What a process of the program does on `machine`. `turns`: of loops that do not say how many they make."""
    flat = lowering.flatten(function)
    pricer = _SchedulePricer(lowering, machine, turns)
    arguments = sum(map(bytes_of, flat.body.arguments))
    results = sum(map(bytes_of, flat.body.terminator.operands))
    footprint = Footprint(arguments, results, max(0, pricer.peak(flat.body) - results))
    pricer.step = pricer.traffic(flat.body)
    parts = tuple(pricer.parts(flat.body, 1, False))
    return PricedSchedule(flat, parts, footprint, tuple(dict.fromkeys(pricer.notes)))


@dataclass(frozen=True)
class _Facts:
    """What a unit does: bytes that it reads of each value, its cost, its work by kind, and its nests if it has some."""

    reads: dict[Value, int]
    cost: Cost
    work: list[Work]
    nests: Sequence[Nest] = ()

    @classmethod
    def of(cls, unit: Unit) -> _Facts:
        if not unit.fused:
            read = {value: bytes_of(value) for value in unit.outputs[0].operands}
            return cls(read, cost_of_unit(unit), work_of_unit(unit))
        nests = nests_of(unit)
        results = [value for op in unit.outputs for value in op.results]
        return cls(bytes_read(nests), cost_of_nests(nests, results), work_of_unit(unit, nests), nests)


@dataclass
class _SchedulePricer:
    lowering: ModuleLowering
    machine: Machine
    turns: int
    #: Bytes that a step touches: what is not touched before in a step was touched so long ago.
    step: float = 0.0
    clock: float = 0.0
    touched: dict[Value, float] = field(default_factory=dict)
    started: dict[Value, PricedEvent] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _facts: dict[Unit, _Facts] = field(default_factory=dict)
    _units: dict[Block, list[list[Unit]]] = field(default_factory=dict)

    # --- the schedule ---

    def units(self, block: Block) -> list[list[Unit]]:
        """The units of a block, those that run row by row together."""
        units_of_block = self._units.get(block)
        if units_of_block is None:
            if "llvm" in self.lowering.options.backends:
                units_of_block = row_groups(fuse(block, block.terminator.operands))
            else:
                ops = [op for op in block.ops[:-1] if not _is_constant(op)]
                units_of_block = [[Unit(False, place, outputs=[op])] for place, op in enumerate(ops)]
            self._units[block] = units_of_block
        return units_of_block

    def facts(self, unit: Unit) -> _Facts:
        facts_of_unit = self._facts.get(unit)
        if facts_of_unit is None:
            facts_of_unit = self._facts[unit] = _Facts.of(unit)
        return facts_of_unit

    def native(self, unit: Unit) -> bool:
        return "llvm" in self.lowering.options.backends and is_native(unit)

    def block(self, block: Block, turns: int, inside: bool) -> Iterator[PricedEvent]:
        """The events of a block that runs `turns` times; `inside` native code, where nothing is called from Python."""
        for part in self.parts(block, turns, inside):
            yield from part.events

    def parts(self, block: Block, turns: int, inside: bool) -> Iterator[PricedPart]:
        running = inside
        for group in self.units(block):
            before = set(self.touched)
            events: list[PricedEvent] = []
            for unit in group:
                native = self.native(unit)
                entering = native and not running and not _is_view(unit)
                if not _is_view(unit):
                    running = native
                events += self._unit(unit, turns, native, entering, group, before)
            yield PricedPart(tuple(group), tuple(events))

    def _unit(
        self, unit: Unit, turns: int, native: bool, entering: bool, group: Sequence[Unit], before: set[Value]
    ) -> Iterator[PricedEvent]:
        op = unit.outputs[0]
        overhead = self.machine.overhead["call"] if entering else 0.0
        if _is_view(unit):
            for operand, result in zip(op.operands, op.results, strict=True):
                self.touched[result] = self.touched.get(operand, self.clock - self.step)
        elif op.name == "stablehlo.while":
            yield from self._loop(op, turns, native, overhead)
        elif op.name in _BRANCHES:
            yield from self._branches(op, turns, native, overhead)
        elif op.name == "func.call":
            yield from self._call(op, turns)
        elif not unit.fused and (described := self._communication(op, turns)) is not None:
            yield described
        else:
            seconds = self._seconds(unit, native, group, before) + overhead
            yield PricedEvent(_told(unit), lines_of(unit.ops), seconds, turns, ops=tuple(unit.ops))

    # --- seconds ---

    def _seconds(self, unit: Unit, native: bool, group: Sequence[Unit], before: set[Value]) -> float:
        """Of a loop nest, computing and memory go side by side, and what takes longer counts.

        Other ops, products above all, first bring near what they go over more than once: how fast they are was measured
        where it was near, and so what it takes to come from further away is added.
        """
        machine, facts = self.machine, self.facts(unit)
        reads, written = facts.reads, facts.cost.written
        results = [value for op in unit.outputs for value in op.results]
        distances = [(n, self._distance(value, n, group, before)) for value, n in reads.items() if n]
        around = sum(map(bytes_of, results)) if len(group) > 1 else self.step
        memory = sum(machine.reading(n, distance) for n, distance in distances) + machine.writing(written, around)
        moved = sum(reads.values()) + written
        self.clock += moved
        self.touched |= dict.fromkeys([*reads, *results], self.clock)
        computing = sum(map(machine.seconds, facts.work))
        if unit.fused:
            return max(computing, memory)
        overhead = 0.0 if native else machine.overhead["kernel"]
        if not computing:
            return overhead + (memory if native else max(memory, moved / machine.rates["kernel"]))
        reach = moved if facts.work[0].kind == "product" else min(moved, _MEASURED_ON)
        near = sum(machine.reading(n, min(reach, distance)) for n, distance in distances)
        near += machine.writing(written, min(reach, around))
        return overhead + max(computing + memory - near, memory)

    def _distance(self, value: Value, size: int, group: Sequence[Unit], before: set[Value]) -> float:
        """How many bytes have been touched since the first of the `size` that are read of `value` was."""
        if len(group) > 1 and value in self.touched and value not in before:
            return 0.0  # of the same row, just now
        return self.clock - self.touched.get(value, self.clock - self.step) + size

    def traffic(self, block: Block) -> float:
        """The bytes that one run of a block reads and writes."""
        total = 0.0
        for group in self.units(block):
            for unit in group:
                if not _is_view(unit):
                    total += self.facts(unit).cost.bytes
        return total

    # --- control flow ---

    def _loop(self, op: Op, turns: int, native: bool, overhead: float) -> Iterator[PricedEvent]:
        count = trip_count(op)
        if count is None:
            count = self.turns
            told = f"{count} turn{'s' * (count != 1)}"
            self.notes.append(f"{op.location}: how often the loop runs is not known: taken as {told}")
        condition, body = (region.block for region in op.regions)
        each = 0.0 if native else self.machine.overhead["kernel"]
        around = self.step
        self.step = self.traffic(body)
        events = [
            list(self.block(inner, turns * n, native)) if n else []
            for inner, n in ((condition, count + 1), (body, count))
        ]
        self.step = around
        computing = sum(event.seconds * event.turns for event in events[1]) / max(1, turns)
        waiting = max(0.0, count * self._longest_way(body) - computing) if native else 0.0
        yield PricedEvent("while", str(op.location), overhead + each * (count + 1) + waiting, turns)
        yield from (event for told in events for event in told)
        self.touched |= dict.fromkeys(op.results, self.clock)

    def _longest_way(self, block: Block) -> float:
        """Seconds from the first to the last of the operations of loop nests that wait for each other in a block.

        Loops of few points are no quicker, however many operations a processor does side by side.
        """
        reached: dict[Value, float] = {}
        for group in self.units(block):
            for unit in group:
                end = max((reached.get(value, 0.0) for value in self._read(unit)), default=0.0)
                if unit.fused:
                    end = arrival(self.facts(unit).nests, reached)
                reached |= dict.fromkeys((value for op in unit.outputs for value in op.results), end)
        return max(reached.values(), default=0.0) / self.machine.rates["serial"]

    def _branches(self, op: Op, turns: int, native: bool, overhead: float) -> Iterator[PricedEvent]:
        """The branch that takes the longest."""
        clock, touched = self.clock, dict(self.touched)
        told = []
        for region in op.regions:
            self.clock, self.touched = clock, dict(touched)
            told.append(list(self.block(region.block, turns, native)))
        longest = max(told, key=lambda events: sum(event.seconds * event.turns for event in events))
        yield PricedEvent(op.name.removeprefix("stablehlo."), str(op.location), overhead, turns)
        yield from longest
        self.touched |= dict.fromkeys(op.results, self.clock)

    def _call(self, op: Op, turns: int) -> Iterator[PricedEvent]:
        callee = self.lowering.lookup(op["callee"], op)
        yield PricedEvent("call", str(op.location), self.machine.overhead["kernel"], turns)
        yield from self.block(self.lowering.flatten(callee).body, turns, False)

    # --- communication ---

    def _communication(self, op: Op, turns: int) -> PricedEvent | None:
        """What `op` has to do with other processes; None for an op that computes."""
        place = str(op.location)
        inner = op.regions[0].block.ops[0] if op.name == "stablehlo.async_start" else op
        if inner.name in DESCRIPTIONS:
            collective = DESCRIPTIONS[inner.name](inner, self.lowering)
            starts = inner is not op
            name = inner.name.removeprefix("stablehlo.") + (" started" if starts else "")
            size = sum(map(bytes_of, inner.operands))
            self.clock += size + sum(map(bytes_of, op.results))
            self.touched |= dict.fromkeys([*op.operands, *op.results], self.clock)
            told = f"{name} of {amount(size)}"
            event = PricedEvent(told, place, 0.0, turns, collective, starts, ops=(op,))
            if starts:
                self.started[op.results[0]] = event
            return event
        if op.name == "stablehlo.async_done" and op.operands[0] in self.started:
            first = self.started[op.operands[0]]
            self.touched |= dict.fromkeys(op.results, self.clock)
            return PricedEvent("wait for " + first.title.removesuffix(" started"), place, 0.0, turns, finishes=first)
        if op.name in _POINT_TO_POINT:
            link = self.machine.link
            size = sum(map(bytes_of, op.operands if op.name == "stablehlo.send" else op.results))
            seconds = self.machine.overhead["kernel"] + link.latency + size / link.bandwidth
            return PricedEvent(
                f"{op.name.removeprefix('stablehlo.')} of {amount(size)}", place, seconds, turns, ops=(op,)
            )
        return None

    # --- memory ---

    def peak(self, block: Block) -> int:
        """The most bytes that results of units take at the same time while a block runs."""
        units = [unit for group in self.units(block) for unit in group]
        last: dict[Value, int] = {}
        for number, unit in enumerate(units):
            for value in self._read(unit):
                last[value] = number
        last |= dict.fromkeys(block.terminator.operands, len(units))
        leaving: dict[int, list[Value]] = {}
        live = most = 0
        for number, unit in enumerate(units):
            within = 0
            for op in unit.outputs:
                for region in op.regions if not unit.fused else ():
                    within = max([within, *(self.peak(inner) for inner in region.blocks)])
            if not _is_view(unit):
                for value in (value for op in unit.outputs for value in op.results):
                    live += bytes_of(value)
                    leaving.setdefault(self._end(value, last, units, number), []).append(value)
            most = max(most, live + within)
            live -= sum(map(bytes_of, leaving.pop(number, ())))
        return most

    def _end(self, value: Value, last: dict[Value, int], units: Sequence[Unit], start: int) -> int:
        """The last unit that reads `value`, or a view of it."""
        end = last.get(value, start)
        for number in range(start + 1, min(end + 1, len(units))):
            unit = units[number]
            if _is_view(unit) and value in unit.outputs[0].operands:
                end = max([end, *(self._end(result, last, units, number) for result in unit.outputs[0].results)])
        return end

    def _read(self, unit: Unit) -> list[Value]:
        if unit.fused:
            return [*self.facts(unit).reads, *(v for op in unit.outputs if unit.is_update for v in op.operands)]
        return [v for op in unit.outputs for v in (*op.operands, *(captured_values(op) if op.regions else ()))]


def _told(unit: Unit) -> str:
    """What a unit is, and what it is made of."""
    told = title(unit).removeprefix("stablehlo.")
    return f"{told}: {names_of(unit.ops)}" if unit.fused else told


def _is_view(unit: Unit) -> bool:
    return not unit.fused and unit.outputs[0].name in VIEWS


def _is_constant(op: Op) -> bool:
    return op.name == "stablehlo.constant"
