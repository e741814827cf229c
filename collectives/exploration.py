"""Processes that are threads, one running at a time, in an order that is chosen: at random, or each there is.

At each communication, and at each step that is seen outside of the grid (a callback, a stream), whoever can go on waits
to be chosen. What processes compute between these steps concerns nobody else, and neither does the order of two
communications: collectives meet, and transfers arrive, in the same way. So orders that differ in these alone are
equivalent, and of equivalent orders one is enough; the others differ in the order of visible steps.
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
class Step:
    """What a process came to when it was chosen; ``visible`` where others outside of the grid see it."""

    rank: int
    what: str
    visible: bool = False

    def __str__(self) -> str:
        return f"process {self.rank}: {self.what}"


class Order(Protocol):
    """Chooses who goes on."""

    def choose(self, ready: Sequence[Step]) -> int:
        """The index of the step that is done next."""


class RandomOrder:
    """An order by a seed: the same seed chooses the same among the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, ready: Sequence[Step]) -> int:
        return self._random.randrange(len(ready))


class ChosenOrder:
    """One of all orders that are not equivalent: ``choices`` at the first visible steps, and the first one from there.

    A step that is not visible commutes with all others, and is done before them without a choice. ``alternatives``
    says how many could have been chosen, at each choice.
    """

    def __init__(self, choices: Sequence[int] = ()) -> None:
        self.choices = list(choices)
        self.alternatives: list[int] = []

    def choose(self, ready: Sequence[Step]) -> int:
        for index, step in enumerate(ready):
            if not step.visible:
                return index
        number = len(self.alternatives)
        self.alternatives.append(len(ready))
        if number == len(self.choices):
            self.choices.append(0)
        return self.choices[number]

    def following(self) -> ChosenOrder | None:
        """The order after this one, that of the last choice that has another; None when there is none."""
        for number in reversed(range(len(self.alternatives))):
            if self.choices[number] + 1 < self.alternatives[number]:
                return ChosenOrder([*self.choices[:number], self.choices[number] + 1])
        return None


_KINDS = ("dies", "stops", "slow")


@dataclass(frozen=True)
class Fault:
    """What befalls process ``rank`` at its step number ``at``, from 0.

    "dies": an exception is raised there. "stops": it never goes on. "slow": it goes on only where nobody else can, for
    the next ``steps`` of its steps.
    """

    rank: int
    at: int
    kind: str
    steps: int = 8

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"a process dies, stops or is slow, got {self.kind!r}")

    def __str__(self) -> str:
        return f"process {self.rank} {'is slow' if self.kind == 'slow' else self.kind} at its step {self.at}"


def draw_faults(seed: int, size: int, count: int, steps: int) -> list[Fault]:
    """As many faults as ``count`` of ``size`` processes, each at one of their first ``steps`` steps."""
    chosen = random.Random(f"faults {seed}")
    return [Fault(chosen.randrange(size), chosen.randrange(steps), chosen.choice(_KINDS)) for _ in range(count)]


class ProcessDied(CommunicationError):
    """A process died as a fault of a plan says."""


@dataclass
class _Progress:
    """How far a process has come, and what becomes of it."""

    steps: int = 0
    slow_until: int = 0
    faults: Mapping[int, Fault] = field(default_factory=dict)


class ExploringScheduler(Scheduler):
    """Turns for one process at a time, by an order, with faults; ``trace`` has what was done in the order it was."""

    def __init__(self, size: int, order: Order, faults: Iterable[Fault] = ()) -> None:
        super().__init__(size, 1)
        self.order = order
        self.trace: list[Step] = []
        self._announced = [Step(rank, "begins") for rank in range(size)]
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
        self._announced[rank] = Step(rank, what, visible)
        if fault is not None and fault.kind == "stops":
            self.block(rank, f"{what} (stopped: {fault})")
            return
        self._ready.append(rank)
        self._pass_on()
        self.lock.release()
        self._gates[rank].acquire()
        self._check()

    def block(self, rank: int, what: str) -> None:
        self._announced[rank] = Step(rank, f"goes on after {what}")
        super().block(rank, what)

    def lend(self) -> None:
        """Nobody is given a turn for taking long: who goes on is for the order alone."""

    @contextmanager
    def outside(self) -> Iterator[None]:
        """What is seen outside is done while all others wait, at its place in the order."""
        reach("a stream of its host")
        yield

    def _hand_over(self) -> None:
        self.turns += 1
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
    """Within it, processes that are run as threads go on in the random order of ``seed``."""
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def explored(size: int) -> Scheduler | None:
    """The scheduler of ``size`` processes by the order that is explored; None outside of ``exploring``."""
    seed = _seed.get()
    return None if seed is None else ExploringScheduler(size, RandomOrder(seed))


class _Local(threading.local):
    process: tuple[Scheduler, int] | None = None


_local = _Local()


def reach(what: str) -> None:
    """Called before a step that is seen outside of the grid: its place among others' is for the order to choose."""
    if _local.process is not None:
        scheduler, rank = _local.process
        scheduler.turn(rank, what, visible=True)
