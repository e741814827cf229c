"""Calibrates a machine: times small programs of one kind of work each, and collectives of all sizes.

With several ranks, all measure at the same time, as in a job; the result is that of the slowest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from ml_dtypes import bfloat16
from scipy.optimize import nnls

from collectives.algorithms import HALVING, rounds, wire_bytes
from collectives.communicator import Communicator
from collectives.grid import ProcessGrid
from collectives.network import Level
from collectives.operations import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectiveBroadcast,
    CollectivePermute,
    Operation,
    ReduceScatter,
)
from collectives.reduction import ADD
from collectives.threads import single_process
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.costs import Work, work_of_unit
from spmd.predict import probes
from spmd.predict.machine import RATES, Curve, Machine, MeasuredProduct, MemoryBandwidth, how
from spmd.runtime.compile import compile
from spmd.runtime.process import Process
from spmd.support.collecting import no_collection

#: Seconds per round of a measurement, and number of rounds.
_ROUND, _ROUNDS = 3e-3, 15
#: Operand sizes, in bytes, of the measured collectives.
_SIZES = (*(4 << shift for shift in range(0, 22, 3)), 16 << 20)

Call = Callable[[], object]
Report = Callable[[str], None]


@dataclass(frozen=True)
class MeasuredRanks:
    """The ranks that measure together; this process alone if `world` is None."""

    world: Communicator | None = None

    @property
    def size(self) -> int:
        """The number of ranks."""
        return 1 if self.world is None else self.world.size

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world is not None:
            self.world.barrier("a measurement")

    def slowest(self, seconds: float) -> float:
        """Return the maximum of `seconds` over the ranks."""
        return seconds if self.world is None else max(self.world.allgather_object(seconds))

    def time(self, call: Call) -> float:
        """Return the seconds of one `call` on the slowest rank: the minimum over short rounds."""
        call()
        turns = self._turns(call)
        took = []
        for _ in range(_ROUNDS):
            self.barrier()
            began = time.perf_counter()
            for _ in range(turns):
                call()
            took.append((time.perf_counter() - began) / turns)
        return self.slowest(min(took))

    def _turns(self, call: Call) -> int:
        """Return the number of calls per round, which is the same on all ranks."""
        self.barrier()
        began = time.perf_counter()
        call()
        return max(1, int(_ROUND / max(self.slowest(time.perf_counter() - began), 1e-7)))


def calibrate(name: str, world: Communicator | None = None, report: Report = lambda text: None) -> Machine:
    """Measure the machine that this process, or all ranks of `world`, run on; collective among them.

    `report` is called with a description of each measurement.
    """
    ranks = MeasuredRanks(world)
    with no_collection():
        report("calls and loops")
        overhead = _overheads(ranks)
        rates = {kind: _rate(ranks, texts, kind, overhead["call"]) for kind, texts in probes.KINDS.items()}
        few, many = (_time(ranks, probes.series(turns)) for turns in (100, 1100))
        rates["serial"] = probes.SERIES / max((many - few) / 1000, 1e-9)
        report("memory")
        memory = tuple(_memory(ranks, overhead["call"]))
        report("products")
        products = tuple(_products(ranks, overhead["call"]))
        rates["product"] = statistics.median(product.rate for product in products if product.bits == 32)
        rates["kernel"] = _kernel_rate(ranks, overhead["kernel"])
        curves: list[Curve] = []
        for size in _group_sizes(ranks.size):
            report(f"collectives of {size} processes")
            curves += _curves(ranks, size)
        rates["folding"] = _folding_rate(ranks)
        link = fitted_link(curves, rates["folding"], overhead["collective"])
    return Machine(name, overhead, {kind: rates[kind] for kind in RATES}, memory, link, products, tuple(curves))


# --- computing ---


def _time(ranks: MeasuredRanks, text: str, **options: Unpack[CompileOptions]) -> float:
    executable = compile(probes.module(text), None, **options)
    arrays = probes.arguments(executable.in_types)
    process = Process(ProcessGrid(1, 1), single_process())
    return ranks.time(lambda: executable.run(process, arrays))


def _overheads(ranks: MeasuredRanks) -> dict[str, float]:
    call = _time(ranks, probes.chain(1, 16))
    few, many = (_time(ranks, probes.chain(length, 16), backends=("numpy",)) for length in (4, 36))
    alone = single_process().all_reduce((1,), np.float32)
    array = np.ones(1, np.float32)
    return {"call": call, "kernel": max(many - few, 1e-6) / 32, "collective": ranks.time(lambda: alone(array))}


def _rate(ranks: MeasuredRanks, texts: Sequence[str], kind: str, call: float) -> float:
    """Return the work of one kind per second, over programs that do little else."""
    amount = sum(work.amount for text in texts for work in _work_of(text) if work.kind == kind)
    return amount / sum(max(_time(ranks, text) - call, 1e-7) for text in texts)


def _work_of(text: str) -> list[Work]:
    """Return the work of a program, loops counted with their trip counts."""
    prepared = prepare(probes.module(text))
    lowering = ModuleLowering(prepared.module, prepared.options)
    block = lowering.flatten(prepared.function).body
    return [work for step in lowering.schedule(block).steps for unit in step.all_units for work in work_of_unit(unit)]


def _memory(ranks: MeasuredRanks, call: float) -> Iterator[MemoryBandwidth]:
    """Yield bandwidths; results stay below the size from which the C library maps new memory at each call."""
    for count in (1 << 15, 1 << 17, 1 << 18, 1 << 20, 1 << 22):
        touched = 2 * 4 * count
        reading = max(_time(ranks, probes.totals(2 * count)) - call, 1e-8)
        both = _time(ranks, probes.chain(1, count)) - call
        yield MemoryBandwidth(touched, touched / reading, touched / 2 / max(both - reading / 2, reading / 4))


def _products(ranks: MeasuredRanks, call: float) -> Iterator[MeasuredProduct]:
    for text in probes.PRODUCTS:
        (work,) = _work_of(text)
        seconds = max(_time(ranks, text) - call, 1e-8)
        yield MeasuredProduct(work.bits, work.form, tuple(map(float, work.sizes)), work.amount / seconds)


def _kernel_rate(ranks: MeasuredRanks, kernel: float) -> float:
    """Return the bytes per second of a NumPy op, in a chain of them on arrays larger than the nearest caches."""
    count, length = 1 << 19, 4
    seconds = _time(ranks, probes.chain(length, count), backends=("numpy",)) - length * kernel
    return 3 * 4 * count * length / max(seconds, 1e-7)


# --- communicating ---


def _group_sizes(size: int) -> list[int]:
    """Return the powers of two that divide the number of ranks, and that number."""
    powers = [1 << place for place in range(1, size.bit_length()) if size % (1 << place) == 0]
    return sorted({*powers, size} - {1})


def _operations(count: int, size: int) -> Iterator[Operation]:
    """Yield the measured collectives of `count` floats on groups of `size`."""
    shape = (-(-count // size) * size,)
    single, narrow = np.dtype(np.float32), np.dtype(bfloat16)
    ring = tuple((position, (position + 1) % size) for position in range(size))
    yield AllReduce((count,), single, ADD)
    yield AllReduce((count,), narrow, ADD)
    yield AllReduce((count,), single, ADD, reproducible=True)
    yield ReduceScatter(shape, single, ADD, 0)
    yield AllGather((count,), single, 0)
    yield AllToAll(shape, single, 0, 0, size)
    yield CollectivePermute((count,), single, ring)
    yield CollectiveBroadcast((count,), single)


def _curves(ranks: MeasuredRanks, size: int) -> Iterator[Curve]:
    """Yield the curve of every collective on groups of `size` neighbours, all groups at once."""
    assert ranks.world is not None
    first = ranks.world.rank // size * size
    group = ranks.world.group(tuple(range(first, first + size)))
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for nbytes in _SIZES:
        for operation in _operations(nbytes // 4, size):
            call, array = group.bind(operation), np.ones(operation.shape, operation.dtype)
            seconds = ranks.time(lambda call=call, array=array: call(array))  # type: ignore[misc]
            points.setdefault((operation.name, how(operation)), []).append((wire_bytes(operation), seconds))
    for (name, carried), measured in points.items():
        by_size = dict(measured)
        # Times must not decrease with size: where they do, they were disturbed.
        rising = np.minimum.accumulate(list(by_size.values())[::-1])[::-1].tolist()
        yield Curve(name, carried, size, tuple(map(float, by_size)), tuple(rising))


def fitted_link(curves: Sequence[Curve], folding: float, started: float) -> Level:
    """Return the latency and bandwidth of messages that fit `curves` best, by relative least squares.

    Reductions process `folding` bytes per second, and a collective takes `started` seconds besides its messages.
    Without curves, for a single process, messages are assumed to be as fast as copies in memory.
    """
    by_kind = {(curve.name, curve.how, curve.ranks): curve for curve in curves}
    shares: list[tuple[float, float]] = []
    left: list[float] = []
    for size in {curve.ranks for curve in curves}:
        for operation in (each for nbytes in _SIZES for each in _operations(nbytes // 4, size)):
            curve = by_kind.get((operation.name, "mpi", size))
            if curve is None or how(operation) != "mpi":
                continue
            steps, seconds = rounds(operation, size, HALVING), curve.at(wire_bytes(operation))
            beside = sum(each.times * each.folded for each in steps) / folding + started
            messages, moved = sum(each.times for each in steps), sum(each.times * each.nbytes for each in steps)
            shares.append((messages / seconds, moved / seconds))
            left.append(max(seconds - beside, 0.0) / seconds)
    if not shares:
        return Level("machine", None, 1e-6, 5e9, HALVING)
    (latency, byte), _ = nnls(np.array(shares), np.array(left))
    return Level("machine", None, max(latency, 1e-9), 1.0 / max(byte, 1e-12), HALVING)


def _folding_rate(ranks: MeasuredRanks) -> float:
    """Return the bytes per second of adding one array to another."""
    first, second = np.ones(1 << 20, np.float32), np.ones(1 << 20, np.float32)
    return first.nbytes / ranks.time(lambda: np.add(first, second, out=second))
