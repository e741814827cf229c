"""A program as what one process does, event after event, each with its expected time: the schedule, priced."""

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
    `finishes` is it. `sent` are the messages that a send lets go, whose bytes count. `ops` are what it stands for in
    the program. `work` and `moved`, the bytes that are read and written, are those of one turn.
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
    """Bytes of memory of one process: arguments, results, and the most that lies beside them at any time."""

    arguments: int
    results: int
    temporaries: int

    @property
    def total(self) -> int:
        return self.arguments + self.results + self.temporaries


@dataclass(frozen=True)
class PricedPart:
    """A step of the program's own block, and the events that it is.

    `continues` native code that the step before began: one call of Python makes both.
    """

    step: Step
    events: tuple[PricedEvent, ...]
    continues: bool


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
    #: Bytes that a step touches: what is not touched before in a step was touched so long ago.
    step: float = 0.0
    clock: float = 0.0
    touched: dict[Value, float] = field(default_factory=dict)
    started: dict[Value, PricedEvent] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _facts: dict[Unit, UnitFacts] = field(default_factory=dict)

    # --- the schedule ---

    def facts(self, unit: Unit) -> UnitFacts:
        facts_of_unit = self._facts.get(unit)
        if facts_of_unit is None:
            facts_of_unit = self._facts[unit] = UnitFacts.of(unit)
        return facts_of_unit

    def events(self, steps: Sequence[Step], turns: int, inside: bool) -> Iterator[PricedEvent]:
        """Yield the events of steps that run `turns` times; `inside` native code, where nothing is called from
        Python."""
        for part in self.parts(steps, turns, inside):
            yield from part.events

    def parts(self, steps: Sequence[Step], turns: int, inside: bool) -> Iterator[PricedPart]:
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
                _told(step), place_of(step.ops), seconds, turns, ops=tuple(step.ops), work=work, moved=moved
            )

    def _inner(self, step: Step, op: Op) -> list[Sequence[Step]]:
        """Return the steps of each region of `op`."""
        return [block.steps for block in step.blocks] or [self.lowering.schedule(r.block).steps for r in op.regions]

    # --- seconds ---

    def _seconds(self, unit: Unit, native: bool, step: Step, before: set[Value]) -> float:
        """Of a loop nest, computing and memory go side by side, and what takes longer counts.

        Other ops, products above all, first bring near what they go over more than once: how fast they are was measured
        where it was near, and so what it takes to come from further away is added.
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
        """Return how many bytes have been touched since the first of the `size` that are read of `value` was."""
        if together and value in self.touched and value not in before:
            return 0.0  # of the same row, just now
        return self.clock - self.touched.get(value, self.clock - self.step) + size

    def traffic(self, steps: Sequence[Step]) -> float:
        """Return the bytes that one run of `steps` reads and writes."""
        return float(sum(self.facts(unit).cost.bytes for step in steps for unit in step.all_units))

    # --- control flow ---

    def _loop(self, step: Step, op: Op, turns: int, native: bool, overhead: float) -> Iterator[PricedEvent]:
        count = trip_count(op)
        if count is None:
            count = self.turns
            told = f"{count} turn{'s' * (count != 1)}"
            self.notes.append(f"{op.location}: how often the loop runs is not known: taken as {told}")
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
        yield from (event for told in events for event in told)
        self.touched |= dict.fromkeys(op.results, self.clock)

    def _longest_way(self, steps: Sequence[Step]) -> float:
        """Seconds from the first to the last of the operations of loop nests that wait for each other in a block.

        Loops of few points are no quicker, however many operations a processor does side by side.
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
        """Yield the branch that takes the longest."""
        clock, touched = self.clock, dict(self.touched)
        told = []
        for steps in self._inner(step, op):
            self.clock, self.touched = clock, dict(touched)
            told.append(list(self.events(steps, turns, native)))
        longest = max(told, key=lambda events: sum(event.seconds * event.turns for event in events))
        yield PricedEvent(op.name.removeprefix("stablehlo."), str(op.location), overhead, turns)
        yield from longest
        self.touched |= dict.fromkeys(op.results, self.clock)

    def _call(self, op: Op, turns: int) -> Iterator[PricedEvent]:
        callee = self.lowering.lookup(op["callee"], op)
        yield PricedEvent("call", str(op.location), self.machine.overhead["kernel"], turns)
        yield from self.events(self.lowering.schedule(self.lowering.flatten(callee).body).steps, turns, False)

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
            sent = messages_of(op, self.lowering.options.grid) if op.name == "stablehlo.send" else ()
            title = f"{op.name.removeprefix('stablehlo.')} of {amount(size)}"
            return PricedEvent(title, place, seconds, turns, sent=sent, ops=(op,))
        return None


def _read(unit: Unit, facts: UnitFacts) -> list[Value]:
    if unit.fused:
        return [*facts.reads, *(v for op in unit.outputs if unit.is_update for v in op.operands)]
    return [v for op in unit.outputs for v in (*op.operands, *(captured_values(op) if op.regions else ()))]


def _told(step: Step) -> str:
    """What a step is, and what it is made of."""
    told = title(step).removeprefix("stablehlo.")
    return f"{told}: {name_of(step.ops)}" if step.units[0].fused or len(step.units) > 1 else told
