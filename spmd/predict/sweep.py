"""A program on more and more processes: speed-up and efficiency.

A global program with shardings is cut finer: the mesh axis that is swept takes each of the sizes, and the whole problem
stays what it is. The program of one process stays as it is, with the same arrays on each of ever more processes; its
collectives must be those of data parallelism, reductions and broadcasts over all processes.
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
    """One size of a sweep: `speedup` over the first size, `efficiency` of each process beside one of the first.

    `size` is that of the mesh axis that is swept; of a program of one process, the number of processes.
    """

    size: int
    processes: int
    seconds: float
    speedup: float
    efficiency: float


@dataclass(frozen=True)
class Sweep:
    """A program on several numbers of processes: those of a mesh whose `axis` is cut finer, or, without one, those that
    each have the same work, so that the problem grows with them."""

    axis: str | None
    points: Sequence[Point]

    @property
    def grows(self) -> bool:
        """Whether the problem grows with the processes."""
        return self.axis is None

    def to_json(self) -> dict[str, object]:
        return {"problem_grows": self.grows, "axis": self.axis, "points": [vars(point) for point in self.points]}

    def page(self) -> str:
        """Return a table and a picture."""
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
    """Return the step of a program with a mesh axis of each of the ascending sizes `counts`, or on so many processes.

    `axis` is the mesh axis that takes these sizes, of programs with shardings; by default the first of the mesh.
    `grid` is the one that the groups of collectives are written for, of a program of one process; by default the
    module's own. Raises UsageError for a mesh without such an axis, or a program without a mesh or collectives, which
    is the same on any number of processes; CompileError for a program that is not data parallel.
    """
    if _is_cut(module, function):
        if grid is not None:
            raise UsageError(f"the mesh says how many processes there are, and the sweep resizes it: no grid {grid}")
        axis = axis_of_mesh(module, axis)
        processes, seconds = [], []
        for count in counts:
            prepared = prepare(partitioner.with_axis_size(module, axis, count), None, function, **options)
            processes.append(prepared.options.grid.size)
            seconds.append(predict(prepared, machine, network, turns).seconds)
        return _sweep(axis, counts, processes, seconds)
    if axis is not None:
        raise UsageError(f"axis {axis!r} is one to cut arrays along, and the program is that of one process already")
    prepared = prepare(module, grid, function, **options)
    priced = price_schedule(ModuleLowering(prepared.module, prepared.options), prepared.function, machine, turns)
    size = prepared.options.grid.size
    if all(event.collective is None for event in priced.events):
        text = "has no collectives and no shardings: nothing is swept, each process does the same on any number of them"
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
    """CompileError for an event that is not the same on any number of processes."""
    for event in events:
        collective = event.collective
        if collective is not None and not _is_over_all(collective, size):
            op = event.ops[0]
            text = "it is not data parallel: only reductions and broadcasts over all processes stay what they are"
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
    """Return whether the partitioner cuts the program, rather than the program itself."""
    if not partitioner.is_sharded(module) or partitioner.starts_processes(module, function):
        return False
    names = {op.name for op in module.walk()}
    return "sdy.mesh" in names and "sdy.manual_computation" not in names
