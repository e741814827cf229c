"""Predicts a program on increasing numbers of processes: speed-up and efficiency.

For a global program with shardings, one mesh axis takes each of the sizes, and the problem stays the same (strong
scaling). The program of one process stays the same, with equal arrays on each process (weak scaling); its collectives
must be those of data parallelism, reductions and broadcasts over all processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import partitioner
from collectives.grid import ProcessGrid, flattened_ids
from collectives.network import Network
from collectives.operations import AllReduce, CollectiveBroadcast
from partitioner.annotate import axis_of_mesh
from spmd.analysis.collectives import Collective
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import prepare
from spmd.errors import CompileError, Diagnostic, UsageError
from spmd.ir import Module
from spmd.predict.events import UNKNOWN_TURNS, PricedEvent, price_schedule
from spmd.predict.machine import Machine
from spmd.predict.prediction import predict, prices_of
from spmd.predict.report import duration, picture, table
from spmd.predict.timeline import timeline


@dataclass(frozen=True)
class Point:
    """One size of a sweep: `speedup` relative to the first size, and `efficiency` per process.

    `size` is that of the mesh axis; for a program of one process, the number of processes.
    """

    size: int
    processes: int
    seconds: float
    speedup: float
    efficiency: float


@dataclass(frozen=True)
class Sweep:
    """A program on several numbers of processes: strong scaling along mesh axis `axis`, weak scaling without one."""

    axis: str | None
    points: Sequence[Point]

    @property
    def grows(self) -> bool:
        """Whether the problem grows with the number of processes."""
        return self.axis is None

    def to_json(self) -> dict[str, object]:
        """Return the sweep as JSON."""
        return {"problem_grows": self.grows, "axis": self.axis, "points": [vars(point) for point in self.points]}

    def page(self) -> str:
        """Return a table and a plot."""
        how = "each process has the same work" if self.grows else "the processes share the same work"
        rows = [
            (
                *([] if self.axis is None else [f"{point.size:,}"]),
                f"{point.processes:,}",
                duration(point.seconds),
                f"{point.speedup:,.2f}",
                f"{point.efficiency:.1%}",
            )
            for point in self.points
        ]
        of_axis = [] if self.axis is None else [f'axis "{self.axis}"']
        header = (*of_axis, "processes", "a step", "speed-up", "efficiency")
        lines = [f"speed-up, where {how}:", *table(header, rows), ""]
        counts = [point.processes for point in self.points]
        lines.append(picture(counts, {"speed-up": [point.speedup for point in self.points]}, "speed-up"))
        return "\n".join(lines)


def sweep(
    module: Module,
    function: str,
    counts: Sequence[int],
    machine: Machine,
    network: Network | None = None,
    axis: str | None = None,
    grid: ProcessGrid | None = None,
    turns: int = UNKNOWN_TURNS,
    **options: Unpack[CompileOptions],
) -> Sweep:
    """Return the predictions of a program for the ascending sizes `counts` of a mesh axis, or numbers of processes.

    `axis` is the mesh axis of a program with shardings, by default the first. `grid` is the grid that the collectives
    of a program of one process refer to, by default the module's own. Raises UsageError if the mesh has no such axis,
    or if the program has neither a mesh nor collectives; CompileError for a program that is not data parallel.
    """
    if _is_cut(module, function):
        if grid is not None:
            raise UsageError(f"grid must be None for a program with a mesh, whose axis the sweep resizes, got {grid}")
        axis = axis_of_mesh(module, axis)
        processes, seconds = [], []
        for count in counts:
            prepared = prepare(partitioner.with_axis_size(module, axis, count), None, function, **options)
            processes.append(prepared.options.grid.size)
            seconds.append(predict(prepared, machine, network, turns).seconds)
        return _sweep(axis, counts, processes, seconds)
    if axis is not None:
        raise UsageError(f"axis must be None for the program of one process, which has no shardings, got {axis!r}")
    prepared = prepare(module, grid, function, **options)
    priced = price_schedule(ModuleLowering(prepared.module, prepared.options), prepared.function, machine, turns)
    size = prepared.options.grid.size
    if all(event.collective is None for event in priced.events):
        text = "must have collectives or shardings to be swept: otherwise processes are independent"
        raise UsageError(f"@{function} {text}")
    _check_data_parallel(priced.events, size)
    seconds = [_grown(priced.events, count, machine, network) for count in counts]
    return _sweep(None, counts, counts, seconds)


def _sweep(axis: str | None, sizes: Sequence[int], processes: Sequence[int], seconds: Sequence[float]) -> Sweep:
    points = []
    for size, count, took in zip(sizes, processes, seconds, strict=True):
        times = count / processes[0]
        faster = seconds[0] / took if took else 1.0
        speedup = faster * times if axis is None else faster
        points.append(Point(size, count, took, speedup, speedup / times))
    return Sweep(axis, points)


# --- the program of one process ---


def _check_data_parallel(events: Sequence[PricedEvent], size: int) -> None:
    """Raise CompileError for an event that depends on the number of processes."""
    for event in events:
        collective = event.collective
        if collective is not None and not _is_over_all(collective, size):
            op = event.ops[0]
            text = "it is not data parallel: only reductions and broadcasts over all processes can be resized"
            raise CompileError(Diagnostic(op.location, f"the program cannot be swept: {text}", op.name))


def _is_over_all(collective: Collective, size: int) -> bool:
    groups = collective.groups
    alike = all(isinstance(operation, AllReduce | CollectiveBroadcast) for operation in collective.operations)
    return alike and groups is not None and len(groups) == 1 and groups.largest == size


def _grown(events: Sequence[PricedEvent], count: int, machine: Machine, network: Network | None) -> float:
    everyone = flattened_ids(ProcessGrid(1, count), ())
    resized: dict[PricedEvent, PricedEvent] = {}
    for event in events:
        if event.finishes is not None:
            resized[event] = replace(event, finishes=resized[event.finishes])
        elif event.collective is not None:
            resized[event] = replace(event, collective=replace(event.collective, groups=everyone))
        else:
            resized[event] = event
    return timeline(list(resized.values()), count, prices_of(machine, network, count)).seconds


# --- the global program ---


def _is_cut(module: Module, function: str) -> bool:
    """Return whether the partitioner, rather than the program itself, shards the program."""
    if not partitioner.is_sharded(module) or partitioner.starts_processes(module, function):
        return False
    names = {op.name for op in module.walk()}
    return "sdy.mesh" in names and "sdy.manual_computation" not in names
