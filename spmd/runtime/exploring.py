"""`spmd.explore`: a program's processes in many schedules, with faults, in this Python process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np

from collectives.errors import CommunicationError
from collectives.exploration import (
    ChosenOrder,
    ExploringScheduler,
    Fault,
    Order,
    RandomOrder,
    ScheduledStep,
    draw_faults,
)
from collectives.grid import ProcessGrid
from collectives.threads import run
from spmd.compiler.pipeline.options import CompileOptions
from spmd.errors import SpmdError, UsageError
from spmd.runtime.executable import Executable
from spmd.runtime.parallel import Programs, compiled_programs, grid_of_programs, process_of_thread, programs_of
from spmd.runtime.streams import InfeedSource, OutfeedTarget, check_entries, open_streams
from spmd.support.arrays import Argument, Array
from spmd.support.usage import check_function, check_grid

#: Maximum number of orders of an exhaustive exploration.
_MOST_ORDERS = 10_000


@dataclass(frozen=True)
class OrderOutcome:
    """The outcome of one order: each process's results, or the error that ended them, and the order.

    `observed` is the result of the caller's `observe`. `seed` generated the order, unless the exploration is
    exhaustive.
    """

    seed: int | None
    results: tuple[tuple[Array, ...], ...] | None
    error: Exception | None
    observed: object
    trace: tuple[ScheduledStep, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether the program ended in an error that no fault explains; slow processes always finish."""
        return self.error is not None and all(fault.kind == "slow" for fault in self.faults)

    def same_as(self, other: OrderOutcome) -> bool:
        """Return whether both have the same results, bitwise, or ended alike."""
        if self.results is None or other.results is None:
            return self.results is other.results and type(self.error) is type(other.error)
        return _equal(self.results, other.results) and _equal(self.observed, other.observed)


@dataclass(frozen=True)
class Exploration:
    """The outcome of all orders: true if every order ends, except by an injected fault, with the same results.

    `first` is the first order, or the first with results if faults ended those before it; `different` is the first
    later order with other results, `failed` the first that ended in an error, such as a deadlock, that no fault
    explains. `orders` counts the orders tried; `complete` is set if these are all inequivalent ones. `endings` counts
    orders by "results" or by the first line of their error.
    """

    first: OrderOutcome
    different: OrderOutcome | None
    orders: int
    complete: bool
    endings: Counter[str]
    failed: OrderOutcome | None = None

    def __bool__(self) -> bool:
        return self.different is None and self.failed is None

    def __str__(self) -> str:
        if self.different is None:
            which = "all orders" if self.complete else f"{self.orders} order{'s' * (self.orders > 1)}"
            return f"{which} give the same" if self.failed is None else f"{which} end alike: {self.failed.error}"
        one, other = self.first, self.different
        shared = _shared(one.trace, other.trace)
        lines = [f"two orders differ after {shared} common steps: {_ending(one)}, and {_ending(other)}"]
        for outcome in (one, other):
            lines.append(f"  {_named(outcome)}:")
            lines += [f"    {step}" for step in outcome.trace[max(0, shared - 2) : shared + 6]]
        return "\n".join(lines)


def explore(
    module: Programs,
    grid: ProcessGrid | None = None,
    inputs: Sequence[Sequence[Argument]] = (),
    function: str = "main",
    *,
    seed: int = 0,
    orders: int = 100,
    exhaustive: bool = False,
    faults: int | Sequence[Fault] = 0,
    infeed: Sequence[InfeedSource | None] | None = None,
    outfeed: Sequence[OutfeedTarget | None] | None = None,
    before: Callable[[], object] = lambda: None,
    observe: Callable[[], object] = lambda: None,
    **options: Unpack[CompileOptions],
) -> Exploration:
    """Run the processes of `grid` as threads, one at a time, in many orders, and compare their results.

    At each communication, callback and use of a stream, an order chooses the process that continues. `orders` are
    generated from the seeds `seed`, `seed + 1`, ...: with `orders=1`, a seed reproduces one. `exhaustive` tries all
    orders instead, at most 10,000, except those that differ only in the order of communications, which has no effect.
    `faults` is the number of faults per run, generated with its order (a process dies, stops, or is slow at one of its
    steps), or a list of faults for every run. `module`, `inputs`, `infeed`, `outfeed` and `options` are those of
    spmd.run_parallel. `before` is called before each run; the result of `observe` after it is compared as well. Raises
    UsageError for invalid arguments.
    """
    check_grid(grid, "spmd.explore")
    check_function(function, "spmd.explore")
    grid = grid or grid_of_programs(module, function)
    if orders < 1:
        raise UsageError(f"orders must be a positive number, got {orders!r}")
    executables = compiled_programs(programs_of(module, grid), grid, function, options)
    arrays = inputs if len(inputs) else [()] * grid.size
    check_entries("inputs", arrays, grid)
    one = partial(_run, executables, grid, arrays, infeed, outfeed, before, observe)
    outcomes = _all_orders(one, faults) if exhaustive else _drawn(one, grid.size, seed, orders, faults)
    return _explored(outcomes, exhaustive)


def _explored(outcomes: Iterator[OrderOutcome], exhaustive: bool) -> Exploration:
    first = next(outcomes)
    endings = Counter([_kind(first)])
    different, failed = None, first if first.is_failure else None
    for outcome in outcomes:
        endings[_kind(outcome)] += 1
        if outcome.is_failure and failed is None:
            failed = outcome
        # A fault may end a run anywhere: only results must agree.
        if outcome.error is not None and not outcome.is_failure:
            continue
        if first.error is not None and not first.is_failure:
            first = outcome
        elif different is None and not outcome.same_as(first):
            different = outcome
    count = endings.total()
    return Exploration(first, different, count, exhaustive and count < _MOST_ORDERS, endings, failed)


def _drawn(
    one: Callable[..., OrderOutcome], size: int, seed: int, orders: int, faults: int | Sequence[Fault]
) -> Iterator[OrderOutcome]:
    steps = 1
    if isinstance(faults, int) and faults:  # a fault is injected at a step that exists
        steps = max(Counter(step.rank for step in one(RandomOrder(seed), (), seed).trace).values(), default=1)
    for number in range(seed, seed + orders):
        planned = draw_faults(number, size, faults, steps) if isinstance(faults, int) else list(faults)
        yield one(RandomOrder(number), planned, number)


def _all_orders(one: Callable[..., OrderOutcome], faults: int | Sequence[Fault]) -> Iterator[OrderOutcome]:
    planned = () if isinstance(faults, int) else faults
    order: ChosenOrder | None = ChosenOrder()
    for _ in range(_MOST_ORDERS):
        assert order is not None
        yield one(order, planned, None)
        order = order.following()
        if order is None:
            return


def _run(
    executables: Sequence[Executable],
    grid: ProcessGrid,
    inputs: Sequence[Sequence[Argument]],
    infeed: Sequence[InfeedSource | None] | None,
    outfeed: Sequence[OutfeedTarget | None] | None,
    before: Callable[[], object],
    observe: Callable[[], object],
    order: Order,
    faults: Sequence[Fault],
    seed: int | None,
) -> OrderOutcome:
    before()
    scheduler = ExploringScheduler(grid.size, order, faults)
    process = process_of_thread(executables, grid, inputs)
    results, failure = None, None
    try:
        with open_streams(grid, infeed, outfeed) as streams:
            results = tuple(run(grid.size, partial(process, streams), scheduler=scheduler))
    except (SpmdError, CommunicationError) as error:
        failure = error
    return OrderOutcome(seed, results, failure, observe(), tuple(scheduler.trace), tuple(faults))


def _kind(outcome: OrderOutcome) -> str:
    return "results" if outcome.error is None else str(outcome.error).partition("\n")[0]


def _equal(one: Any, other: Any) -> bool:
    """Return whether two nested structures of arrays and plain values are equal, bitwise."""
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(_equal(x, y) for x, y in zip(one, other, strict=True))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other)


def _shared(one: Sequence[ScheduledStep], other: Sequence[ScheduledStep]) -> int:
    """Return the length of the common prefix of two traces."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _ending(outcome: OrderOutcome) -> str:
    return f"one gives {_kind(outcome)}" if outcome.error is None else f"one ends with {_kind(outcome)!r}"


def _named(outcome: OrderOutcome) -> str:
    return "an order" if outcome.seed is None else f"seed {outcome.seed}"
