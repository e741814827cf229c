"""Compares a prediction with the measured time of a program, by unit of its schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import Prepared
from spmd.compiler.schedule.watching import ScheduledUnit
from spmd.ir import Op
from spmd.predict.events import UNKNOWN_TURNS, PricedPart, price_schedule
from spmd.predict.machine import Machine
from spmd.predict.prediction import Prediction, predict
from spmd.predict.report import duration, table
from spmd.predict.timeline import OneMachine, timeline
from spmd.runtime.executable import Executable
from spmd.support.arrays import Array, Results

#: Steps that are timed, both complete and by unit.
ROUNDS = 15
#: Seconds that each of the two may take, after at least three steps.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Compared:
    """Predicted and measured seconds of a step or unit, the latter on the slowest process.

    `share` is the fraction of the measured step, or of the sum of its units if that is longer.
    """

    title: str
    place: str
    predicted: float
    measured: float
    share: float = 1.0

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured if self.measured else float("inf")


@dataclass(frozen=True)
class Checked:
    """A complete step and its units, each timed by itself, the longest first.

    `trace` holds the measured units of this process's last step.
    """

    prediction: Prediction
    step: Compared
    units: Sequence[Compared]
    trace: Sequence[tuple[str, str, float, float]]

    @property
    def between(self) -> Compared:
        """The part of the step outside of units; 0 if the units take longer by themselves than together."""
        predicted, measured = (
            max(0.0, whole - sum(units))
            for whole, units in (
                (self.step.predicted, [each.predicted for each in self.units]),
                (self.step.measured, [each.measured for each in self.units]),
            )
        )
        return Compared("between the units", "", predicted, measured, measured / (self.step.measured or 1.0))

    def to_json(self) -> dict[str, object]:
        """Return the comparison as JSON."""
        return {
            "prediction": self.prediction.to_json(),
            "step": _entry(self.step),
            "units": [_entry(each) for each in self.units],
            "between": _entry(self.between),
        }

    def page(self, title: str, most: int = 24) -> str:
        """Return a table of predicted and measured seconds."""
        header = ("predicted", "measured", "ratio", "share")
        shown = [each for each in self.units if each.share >= 0.001][:most]
        first, *lines = table(header, [_row(self.step), *map(_row, shown), _row(self.between)])
        names = ["a step", *(f"{_shortened(each.title)}  ({each.place})" for each in shown), self.between.title]
        left = len(self.units) - len(shown)
        lines = [title, "", first, *(f"{line}  {name}" for line, name in zip(lines, names, strict=True))]
        return "\n".join([*lines, f"{left} shorter units are not shown"] if left else lines)


def _entry(each: Compared) -> dict[str, object]:
    return {**vars(each), "ratio": each.ratio}


def _row(each: Compared) -> tuple[str, ...]:
    return duration(each.predicted), duration(each.measured), f"{each.ratio:.2f}", f"{each.share:.1%}"


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def check(
    prepared: Prepared,
    executable: Executable,
    arrays: Sequence[Array],
    machine: Machine,
    turns: int = UNKNOWN_TURNS,
    rounds: int = ROUNDS,
) -> Checked:
    """Run the program on this process's `arrays` and compare; collective among the processes of the grid.

    `prepared` and `executable` must be of the same program. Complete steps run as usual; by unit, each unit runs by
    itself, and collectives start when all processes are ready.
    """
    process = executable.process
    world = process.communicator

    def slowest(seconds: Sequence[float]) -> list[float]:
        everyone = world.exchange_results(list(seconds), "the comparison of times")
        return np.max(everyone, axis=0).tolist()  # type: ignore[no-any-return]

    def run() -> None:
        executable.run(process, arrays)

    whole = min(slowest(_timed(run, rounds, lambda: world.barrier("a timed step"), slowest)))
    priced = price_schedule(ModuleLowering(prepared.module, prepared.options), prepared.function, machine, turns)
    clock = _Clock(priced.parts, lambda: world.barrier("a timed unit"))
    program = np.errstate(all="ignore")(ModuleLowering(prepared.module, prepared.options).timed(priced.function, clock))
    values = executable.checked(arrays)
    _timed(lambda: program(process, *values), rounds, clock.begin, slowest)
    measured = slowest(clock.quickest())
    prices, everything = OneMachine(machine), max(whole, sum(measured)) or 1.0
    prediction = predict(prepared, machine, None, turns)
    units = [
        Compared(
            " + ".join(dict.fromkeys(event.title for event in part.events)),
            part.events[0].place,
            timeline(part.events, prepared.options.grid.size, prices).seconds + _call(part, machine),
            seconds,
            seconds / everything,
        )
        for part, seconds in zip(priced.parts, measured, strict=True)
        if part.events
    ]
    units.sort(key=lambda each: -each.measured)
    return Checked(prediction, Compared("a step", "", prediction.seconds, whole), units, clock.trace)


def _call(part: PricedPart, machine: Machine) -> float:
    """Return the seconds of the native call that a unit needs only if it runs by itself."""
    return machine.overhead["call"] if part.continues else 0.0


def _timed(
    call: Callable[[], object],
    rounds: int,
    before: Callable[[], None],
    slowest: Callable[[Sequence[float]], list[float]],
) -> list[float]:
    """Return the seconds of up to `rounds` calls, without the first; fewer if they are slow."""
    took: list[float] = []
    (spent,) = slowest([0.0])
    while len(took) < rounds + 1 and (len(took) < 4 or spent < _PATIENCE):
        before()
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
        (spent,) = slowest([spent + took[-1]])
    return took[1:]


class _Clock:
    """Times the steps of a program, as its watcher, by part of the schedule."""

    def __init__(self, parts: Sequence[PricedPart], barrier: Callable[[], None]) -> None:
        self._parts = parts
        self._barrier = barrier
        self._number: dict[Op, int] = {op: number for number, part in enumerate(parts) for op in part.step.ops}
        self._meets = [any(event.collective is not None for event in part.events) for part in parts]
        self._rounds: list[list[float]] = []
        #: The last round: (title, place, start, seconds).
        self.trace: list[tuple[str, str, float, float]] = []
        self._began = 0.0

    def begin(self) -> None:
        """Start a new round."""
        self._barrier()
        self._rounds.append([0.0] * len(self._parts))
        self.trace.clear()
        self._began = time.perf_counter()

    def __call__(self, unit: ScheduledUnit, run: Callable[[], Results]) -> Results:
        number = self._number.get(unit.ops[0])
        if number is not None and self._meets[number]:
            self._barrier()
        start = time.perf_counter()
        try:
            return run()
        finally:
            seconds = time.perf_counter() - start
            if number is not None:
                self._rounds[-1][number] += seconds
                first = next(iter(self._parts[number].events), None)
                if first is not None:
                    self.trace.append((first.title, first.place, start - self._began, seconds))

    def quickest(self) -> list[float]:
        """Return the least seconds of each part over the rounds, as in calibration."""
        return [min(column) for column in zip(*self._rounds[1:], strict=True)]
