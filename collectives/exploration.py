"""Schedules of processes as threads, one running at a time, in a random or enumerated order.

At each communication, and at each step that is visible outside the grid (a callback, a stream), the runnable processes
wait to be scheduled. What a process computes between these steps does not affect the others, nor does the order of two
communications: collectives meet, and transfers arrive, alike. Orders that differ only in these are equivalent, and one
of them is enough; the others differ in the order of visible steps.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from collectives.errors import CommunicationError
from collectives.scheduler import Scheduler


@dataclass(frozen=True)
class ScheduledStep:
    """The step that a scheduled process runs; ``visible`` if it is observable outside the grid."""

    rank: int
    what: str
    visible: bool = False

    def __str__(self) -> str:
        return f"process {self.rank}: {self.what}"


class Order(Protocol):
    """Chooses the process that runs next."""

    def choose(self, ready: Sequence[ScheduledStep]) -> int:
        """Return the index in `ready` of the step to run next."""


class RandomOrder:
    """A pseudorandom order, determined by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, ready: Sequence[ScheduledStep]) -> int:
        return self._random.randrange(len(ready))


class ChosenOrder:
    """One of the inequivalent orders: ``choices`` at the first visible steps, then always the first.

    Steps that are not visible commute with all others and run first, without a choice. ``alternatives`` counts the
    candidates at each choice.
    """

    def __init__(self, choices: Sequence[int] = ()) -> None:
        self.choices = list(choices)
        self.alternatives: list[int] = []

    def choose(self, ready: Sequence[ScheduledStep]) -> int:
        for index, step in enumerate(ready):
            if not step.visible:
                return index
        number = len(self.alternatives)
        self.alternatives.append(len(ready))
        if number == len(self.choices):
            self.choices.append(0)
        return self.choices[number]

    def following(self) -> ChosenOrder | None:
        """Return the next order, which differs in the last choice with an alternative; None after the last."""
        for number in reversed(range(len(self.alternatives))):
            if self.choices[number] + 1 < self.alternatives[number]:
                return ChosenOrder([*self.choices[:number], self.choices[number] + 1])
        return None


_KINDS = ("dies", "stops", "slow")


@dataclass(frozen=True)
class Fault:
    """A fault injected into process ``rank`` at its step ``at``, counted from 0.

    "dies": an exception is raised. "stops": the process never continues. "slow": for its next ``steps`` steps the
    process runs only when no other can.
    """

    rank: int
    at: int
    kind: str
    steps: int = 8

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind must be one of {', '.join(_KINDS)}, got {self.kind!r}")

    def __str__(self) -> str:
        return f"process {self.rank} {'is slow' if self.kind == 'slow' else self.kind} at its step {self.at}"


def draw_faults(seed: int, size: int, count: int, steps: int) -> list[Fault]:
    """Return ``count`` faults among ``size`` processes, each at one of the first ``steps`` steps."""
    chosen = random.Random(f"faults {seed}")
    return [Fault(chosen.randrange(size), chosen.randrange(steps), chosen.choice(_KINDS)) for _ in range(count)]


class ProcessDied(CommunicationError):
    """A process died by an injected fault."""


@dataclass
class _Progress:
    """The number of steps that a process has made, and its faults."""

    steps: int = 0
    slow_until: int = 0
    faults: Mapping[int, Fault] = field(default_factory=dict)


class ExploringScheduler(Scheduler):
    """Schedules one process at a time by an order, with faults; ``trace`` lists the steps in the order run."""

    def __init__(self, size: int, order: Order, faults: Iterable[Fault] = ()) -> None:
        super().__init__(size, 1)
        self.order = order
        self.trace: list[ScheduledStep] = []
        self._announced = [ScheduledStep(rank, "begins") for rank in range(size)]
        planned = list(faults)
        self._progress = [
            _Progress(faults={fault.at: fault for fault in planned if fault.rank == rank}) for rank in range(size)
        ]

    def enter(self, rank: int) -> None:
        _local.process = self, rank
        super().enter(rank)

    def turn(self, rank: int, what: str, *, visible: bool = False) -> None:
        progress = self._progress[rank]
        fault = progress.faults.get(progress.steps)
        progress.steps += 1
        if fault is not None and fault.kind == "dies":
            raise ProcessDied(f"{fault}, {what}")
        self.lock.acquire()
        if fault is not None and fault.kind == "slow":
            progress.slow_until = progress.steps + fault.steps
        self._announced[rank] = ScheduledStep(rank, what, visible)
        if fault is not None and fault.kind == "stops":
            self.block(rank, f"{what} (stopped: {fault})")
            return
        self._ready.append(rank)
        self._pass_on()
        self.lock.release()
        self._gates[rank].acquire()
        self._check()

    def block(self, rank: int, what: str) -> None:
        self._announced[rank] = ScheduledStep(rank, f"goes on after {what}")
        super().block(rank, what)

    def lend(self) -> None:
        """Do nothing: only the order decides which process runs."""

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Run a step that is visible outside the grid at its place in the order, while all others wait."""
        reach("a stream of its host")
        yield

    def _hand_over(self) -> None:
        self.switches += 1
        ready = list(self._ready)
        quick = [rank for rank in ready if self._progress[rank].steps >= self._progress[rank].slow_until] or ready
        candidates = sorted(quick)
        rank = candidates[self.order.choose([self._announced[each] for each in candidates])]
        self._ready.remove(rank)
        self.trace.append(self._announced[rank])
        self._gates[rank].release()


_seed: ContextVar[int | None] = ContextVar("seed of the orders", default=None)


@contextmanager
def exploring(seed: int) -> Iterator[None]:
    """Run processes as threads in the random order of ``seed`` within the context."""
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def explored(size: int) -> Scheduler | None:
    """Return a scheduler of ``size`` processes within ``exploring``, otherwise None."""
    seed = _seed.get()
    return None if seed is None else ExploringScheduler(size, RandomOrder(seed))


class _Local(threading.local):
    process: tuple[Scheduler, int] | None = None


_local = _Local()


def reach(what: str) -> None:
    """Mark a visible step: let the order choose when it runs. To be called before it."""
    if _local.process is not None:
        scheduler, rank = _local.process
        scheduler.turn(rank, what, visible=True)
