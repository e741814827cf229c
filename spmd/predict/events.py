"""The schedule of one process as a sequence of events with predicted seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collectives.operations import CollectivePermute
from spmd.analysis.collectives import DESCRIPTIONS, Collective, messages_of
from spmd.analysis.loops import trip_count
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.schedule.costs import Work, bytes_of, ready_time
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.show import title
from spmd.compiler.schedule.step_costs import UnitFacts, cost_of_step, temporaries
from spmd.compiler.schedule.steps import CallbackStep, KernelCall, Step
from spmd.compiler.schedule.watching import name_of, place_of
from spmd.ir import Function, Op, Value, captured_values
from spmd.predict.machine import Machine
from spmd.support.amounts import amount

#: The assumed trip count of loops whose trip count is unknown.
UNKNOWN_TURNS = 1
#: Working-set size, in bytes, of the calibration programs except products.
_MEASURED_ON = 1 << 18
_BRANCHES = ("stablehlo.if", "stablehlo.case")
_POINT_TO_POINT = ("stablehlo.send", "stablehlo.recv")


@dataclass(frozen=True, eq=False)
class PricedEvent:
    """An event of a process: a unit of computation, or its part in a collective.

    `seconds` is the computing time of one execution, `turns` the number of executions by surrounding loops.
    `collective` is the communication; it is asynchronous if `starts`, until the event whose `finishes` refers to it.
    `sent` are the messages of a send, for their bytes. `ops` are the program's ops. `work` and `moved`, the bytes read
    and written, are per execution.
    """

    title: str
    place: str
    seconds: float = 0.0
    turns: int = 1
    collective: Collective | None = None
    starts: bool = False
    finishes: PricedEvent | None = None
    sent: tuple[CollectivePermute, ...] = ()
    ops: tuple[Op, ...] = ()
    work: tuple[Work, ...] = ()
    moved: int = 0


@dataclass(frozen=True)
class Footprint:
    """Memory of one process in bytes: arguments, results, and the peak of all other live values."""

    arguments: int
    results: int
    temporaries: int

    @property
    def total(self) -> int:
        """The sum."""
        return self.arguments + self.results + self.temporaries


@dataclass(frozen=True)
class PricedPart:
    """A step of the entry block and its events.

    `continues`: it continues native code of the previous step, in one call from Python.
    """

    step: Step
    events: tuple[PricedEvent, ...]
    continues: bool


@dataclass(frozen=True)
class PricedSchedule:
    """The events of one process in a step, its memory, and notes on assumptions."""

    function: Function
    parts: tuple[PricedPart, ...]
    footprint: Footprint
    notes: tuple[str, ...]

    @property
    def events(self) -> tuple[PricedEvent, ...]:
        """All events in order."""
        return tuple([event for part in self.parts for event in part.events])


def price_schedule(
    lowering: ModuleLowering, function: Function, machine: Machine, turns: int = UNKNOWN_TURNS
) -> PricedSchedule:
    """Return the priced schedule of a process on `machine`; `turns` is assumed for unknown trip counts."""
    flat = lowering.flatten(function)
    pricer = _SchedulePricer(lowering, machine, turns)
    arguments = sum(map(bytes_of, flat.body.arguments))
    results = sum(map(bytes_of, flat.body.terminator.operands))
    schedule = lowering.schedule(flat.body)
    footprint = Footprint(arguments, results, temporaries(schedule, lowering.schedule))
    pricer.step = pricer.traffic(schedule.steps)
    parts = tuple(pricer.parts(schedule.steps, 1, False))
    return PricedSchedule(flat, parts, footprint, tuple(dict.fromkeys(pricer.notes)))


@dataclass
class _SchedulePricer:
    lowering: ModuleLowering
    machine: Machine
    turns: int
    #: Bytes that a step touches: the reuse distance of values not touched before in the step.
    step: float = 0.0
    clock: float = 0.0
    touched: dict[Value, float] = field(default_factory=dict)
    started: dict[Value, PricedEvent] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _facts: dict[Unit, UnitFacts] = field(default_factory=dict)

    # --- the schedule ---

    def facts(self, unit: Unit) -> UnitFacts:
        """Return the facts of `unit`, cached."""
        facts_of_unit = self._facts.get(unit)
        if facts_of_unit is None:
            facts_of_unit = self._facts[unit] = UnitFacts.of(unit)
        return facts_of_unit

    def events(self, steps: Sequence[Step], turns: int, inside: bool) -> Iterator[PricedEvent]:
        """Yield the events of steps that run `turns` times; `inside` native code nothing is called from Python."""
        for part in self.parts(steps, turns, inside):
            yield from part.events

    def parts(self, steps: Sequence[Step], turns: int, inside: bool) -> Iterator[PricedPart]:
        """Yield the priced steps."""
        running = inside
        for step in steps:
            before = set(self.touched)
            native = not isinstance(step, KernelCall)
            is_view = step.units[0].is_view
            entering = native and not running and not is_view
            continues = native and running and not is_view
            if not is_view:
                running = native
            yield PricedPart(step, tuple(self._step(step, turns, native, entering, before)), continues)

    def _step(self, step: Step, turns: int, native: bool, entering: bool, before: set[Value]) -> Iterator[PricedEvent]:
        op = step.units[0].outputs[0]
        overhead = self.machine.overhead["call"] if entering else 0.0
        if step.units[0].is_view:
            for operand, result in zip(op.operands, op.results, strict=True):
                self.touched[result] = self.touched.get(operand, self.clock - self.step)
        elif op.name == "stablehlo.while":
            yield from self._loop(step, op, turns, native, overhead)
        elif op.name in _BRANCHES:
            yield from self._branches(step, op, turns, native, overhead)
        elif op.name == "func.call":
            yield from self._call(op, turns)
        elif isinstance(step, KernelCall | CallbackStep) and (described := self._communication(op, turns)) is not None:
            yield described
        else:
            seconds = sum(self._seconds(unit, native, step, before) for unit in step.all_units) + overhead
            facts = [self.facts(unit) for unit in step.all_units]
            work = tuple([each for of_unit in facts for each in of_unit.work])
            moved = cost_of_step(step).bytes
            yield PricedEvent(
                _label(step), place_of(step.ops), seconds, turns, ops=tuple(step.ops), work=work, moved=moved
            )

    def _inner(self, step: Step, op: Op) -> list[Sequence[Step]]:
        """Return the steps of each region of `op`."""
        return [block.steps for block in step.blocks] or [self.lowering.schedule(r.block).steps for r in op.regions]

    # --- seconds ---

    def _seconds(self, unit: Unit, native: bool, step: Step, before: set[Value]) -> float:
        """Return the seconds of a unit: for a loop nest, the maximum of computing and memory.

        For other ops, mainly products, the time to load operands from beyond the caches is added to the measured rate,
        which was measured with operands in cache.
        """
        machine, facts = self.machine, self.facts(unit)
        reads, written = facts.reads, facts.cost.written
        results = [value for op in unit.outputs for value in op.results]
        together = len(step.all_units) > 1
        distances = [(n, self._distance(value, n, together, before)) for value, n in reads.items() if n]
        around = sum(map(bytes_of, results)) if together else self.step
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

    def _distance(self, value: Value, size: int, together: bool, before: set[Value]) -> float:
        """Return the reuse distance of `value` in bytes, of which `size` are read."""
        if together and value in self.touched and value not in before:
            return 0.0  # just produced in the same row
        return self.clock - self.touched.get(value, self.clock - self.step) + size

    def traffic(self, steps: Sequence[Step]) -> float:
        """Return the bytes read and written by one run of `steps`."""
        return float(sum(self.facts(unit).cost.bytes for step in steps for unit in step.all_units))

    # --- control flow ---

    def _loop(self, step: Step, op: Op, turns: int, native: bool, overhead: float) -> Iterator[PricedEvent]:
        count = trip_count(op)
        if count is None:
            count = self.turns
            trips = f"{count} turn{'s' * (count != 1)}"
            self.notes.append(f"{op.location}: the trip count of the loop is unknown: assumed {trips}")
        condition, body = self._inner(step, op)
        each = 0.0 if native else self.machine.overhead["kernel"]
        around = self.step
        self.step = self.traffic(body)
        events = [
            list(self.events(inner, turns * n, native)) if n else []
            for inner, n in ((condition, count + 1), (body, count))
        ]
        self.step = around
        computing = sum(event.seconds * event.turns for event in events[1]) / max(1, turns)
        waiting = max(0.0, count * self._longest_way(body) - computing) if native else 0.0
        yield PricedEvent("while", str(op.location), overhead + each * (count + 1) + waiting, turns)
        yield from (event for branch in events for event in branch)
        self.touched |= dict.fromkeys(op.results, self.clock)

    def _longest_way(self, steps: Sequence[Step]) -> float:
        """Return the latency, in seconds, of the longest dependence chain through the loop nests of a block.

        Loops of few points are bounded by it, however much the processor overlaps.
        """
        reached: dict[Value, float] = {}
        for step in steps:
            for unit in step.all_units:
                end = max((reached.get(value, 0.0) for value in _read(unit, self.facts(unit))), default=0.0)
                if unit.fused:
                    end = ready_time(self.facts(unit).nests, reached)
                reached |= dict.fromkeys((value for op in unit.outputs for value in op.results), end)
        return max(reached.values(), default=0.0) / self.machine.rates["serial"]

    def _branches(self, step: Step, op: Op, turns: int, native: bool, overhead: float) -> Iterator[PricedEvent]:
        """Yield the events of the slowest branch."""
        clock, touched = self.clock, dict(self.touched)
        branches = []
        for steps in self._inner(step, op):
            self.clock, self.touched = clock, dict(touched)
            branches.append(list(self.events(steps, turns, native)))
        longest = max(branches, key=lambda events: sum(event.seconds * event.turns for event in events))
        yield PricedEvent(op.name.removeprefix("stablehlo."), str(op.location), overhead, turns)
        yield from longest
        self.touched |= dict.fromkeys(op.results, self.clock)

    def _call(self, op: Op, turns: int) -> Iterator[PricedEvent]:
        callee = self.lowering.lookup(op["callee"], op)
        yield PricedEvent("call", str(op.location), self.machine.overhead["kernel"], turns)
        yield from self.events(self.lowering.schedule(self.lowering.flatten(callee).body).steps, turns, False)

    # --- communication ---

    def _communication(self, op: Op, turns: int) -> PricedEvent | None:
        """Return the communication event of `op`; None for an op that computes."""
        place = str(op.location)
        inner = op.regions[0].block.ops[0] if op.name == "stablehlo.async_start" else op
        if inner.name in DESCRIPTIONS:
            collective = DESCRIPTIONS[inner.name](inner, self.lowering)
            starts = inner is not op
            name = inner.name.removeprefix("stablehlo.") + (" started" if starts else "")
            size = sum(map(bytes_of, inner.operands))
            self.clock += size + sum(map(bytes_of, op.results))
            self.touched |= dict.fromkeys([*op.operands, *op.results], self.clock)
            label = f"{name} of {amount(size)}"
            event = PricedEvent(label, place, 0.0, turns, collective, starts, ops=(op,))
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
            sent = messages_of(op, self.lowering.options.grid) if op.name == "stablehlo.send" else ()
            title = f"{op.name.removeprefix('stablehlo.')} of {amount(size)}"
            return PricedEvent(title, place, seconds, turns, sent=sent, ops=(op,))
        return None


def _read(unit: Unit, facts: UnitFacts) -> list[Value]:
    if unit.fused:
        return [*facts.reads, *(v for op in unit.outputs if unit.is_update for v in op.operands)]
    return [v for op in unit.outputs for v in (*op.operands, *(captured_values(op) if op.regions else ()))]


def _label(step: Step) -> str:
    """Return the title of a step and the names of its ops."""
    label = title(step).removeprefix("stablehlo.")
    return f"{label}: {name_of(step.ops)}" if step.units[0].fused or len(step.units) > 1 else label
