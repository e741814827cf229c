"""Runs a small program on all its processes and records every value."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from partitioner import shard_array
from spmd.compiler.schedule.watching import ScheduledUnit, UnitRun
from spmd.errors import UsageError
from spmd.io import arguments
from spmd.ir import Op
from spmd.runtime.compile import executable_of
from spmd.runtime.parallel import run_parallel
from spmd.support.arrays import Array, Results
from spmd.viewing.program import Origins, ProgramTables
from spmd.viewing.subject import Subject
from spmd.viewing.tables import Json

#: The largest number of processes, of elements of one value on all of them and on one that are shown as text, and of
#: steps.
_MOST_PROCESSES, _MOST_ELEMENTS, _MOST_TEXTS, _MOST_STEPS = 64, 4096, 1000, 2000
#: The largest number of elements of an array that is shown as a heat map, and of the bytes of all of them on a page.
_MOST_OF_A_MAP, _MOST_BYTES = 1 << 16, 8 << 20
_DIGITS = 4


def run_steps(subject: Subject, program: ProgramTables, seed: int) -> dict[str, Json]:
    """Return every process's results of every op, in the order of the first process.

    Arguments are generated from `seed`. Raises UsageError for a grid with too many processes.
    """
    grid = subject.grid
    if grid.size > _MOST_PROCESSES:
        raise UsageError(f"values are shown for at most {_MOST_PROCESSES} processes, got {grid.size:,}")
    watcher = _Watcher(grid.size)
    options = replace(subject.prepared.options, watch=watcher, backends=("numpy",))
    executable = executable_of(replace(subject.prepared, options=options))
    wholes = arguments.make(subject.module, subject.prepared.function.symbol, seed)
    inputs = [_blocks(subject, wholes, rank) for rank in range(grid.size)]
    given = [[show(array) for array in each] for show, each in zip(watcher.shown, inputs, strict=True)]
    run_parallel(executable, grid, inputs, mode="threads")
    origins = Origins(program)
    steps = [
        {
            "op": origins(op),
            "name": program.texts.of(op.name.removeprefix("stablehlo.")),
            "place": program.places.number(op),
            "values": [held.get((op, turn)) for held in watcher.held],
        }
        for op, turn in watcher.order[:_MOST_STEPS]
    ]
    return {
        "steps": steps,
        "left": len(watcher.order) - len(steps),
        "arguments": given,
        "seed": seed,
    }


def _blocks(subject: Subject, wholes: Sequence[Array], rank: int) -> list[Array]:
    """Return the arguments of a process: its blocks, or distinct arrays if the program has no shardings."""
    shardings = subject.prepared.in_shardings
    if shardings is None:
        return [_of_process(array, rank) for array in wholes]
    return [shard_array(array, layout, rank) for array, layout in zip(wholes, shardings, strict=True)]


def _of_process(array: Array, rank: int) -> Array:
    """Return the array with the rank added, so that the origin of values is visible."""
    return array if array.dtype.kind in "bV" else np.asarray(array + np.asarray(rank, array.dtype), array.dtype)


class _Watcher:
    """Records what each process computes, as `_Shown` shows it."""

    def __init__(self, size: int) -> None:
        self.shown = [_Shown(size) for _ in range(size)]
        self.held: list[dict[tuple[Op, int], list[Json]]] = [{} for _ in range(size)]
        self.order: list[tuple[Op, int]] = []
        self._turns: list[dict[Op, int]] = [{} for _ in range(size)]

    def __call__(self, unit: ScheduledUnit, run: UnitRun) -> Results:
        results = run()
        op = unit.ops[-1]
        kind, _, number = threading.current_thread().name.partition("-")
        rank = int(number) if kind == "process" and number.isdigit() else 0
        turn = self._turns[rank][op] = self._turns[rank].get(op, -1) + 1
        if rank == 0:
            self.order.append((op, turn))
        if len(self.held[rank]) < _MOST_STEPS:
            values = results if isinstance(results, tuple) else (results,)
            self.held[rank][op, turn] = list(map(self.shown[rank], values))
        return results


@dataclass
class _Shown:
    """Shows the arrays of one of `processes` processes, up to `_MOST_BYTES` of heat maps on all of them."""

    processes: int

    def __post_init__(self) -> None:
        self.left = _MOST_BYTES // self.processes

    def __call__(self, value: object) -> Json:
        """Return the shape of an array and its elements in row-major order: as text, many as base64 of floats.

        None stands for the elements of arrays that are too large, or of complex numbers that are many.
        """
        if not isinstance(value, np.ndarray | np.generic):
            return None
        array = np.asarray(value)
        shape = list(array.shape)
        if array.size <= _MOST_TEXTS and array.size * self.processes <= _MOST_ELEMENTS:
            return [shape, [_number(element) for element in array.ravel().tolist()]]
        nbytes = 4 * array.size
        if array.size > _MOST_OF_A_MAP or nbytes > self.left or array.dtype.kind == "c":
            return [shape, None]
        self.left -= nbytes
        return [shape, base64.b64encode(array.astype("<f4").tobytes()).decode()]


def _number(element: object) -> str:
    return f"{element:.{_DIGITS}g}" if isinstance(element, float) else str(element)
