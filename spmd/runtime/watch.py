"""Watchers of a running program: the op that made a NaN, results of each unit, times.

Each watcher is a `Watch` for spmd.compile(..., watch=...): it is called around every unit of the schedule, the same
schedule that runs without a watcher.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TextIO

import numpy as np

from spmd.analysis.process_rows import UNSEEN, ProcessRows
from spmd.compiler.schedule.watching import Clock, ScheduledUnit, UnitRun, name_of, place_of
from spmd.errors import Diagnostic, ExecutionError, Location
from spmd.ir import Op, Value
from spmd.runtime.trace import TraceArguments, TraceRecord
from spmd.runtime.trace_reading import LEFT_OUT, PROGRAM
from spmd.support.arrays import Array, Results
from spmd.types import TensorType

#: Maximum number of simulated processes with a track each.
_MOST_TRACKS = 64


def check_nans(unit: ScheduledUnit, run: UnitRun) -> Results:
    """Raise ExecutionError at the first op that returns a NaN or an infinity, with the count and the first index.

    A unit of several ops is rerun op by op to find the one. In a simulation a note names the process.
    """
    results = run()
    last = unit.ops[-1]
    makers = [value.defining_op or last for value in unit.results]
    if not any(fault for _, fault in _faults(results, makers)):
        return results
    for op, values in run.op_by_op():
        _raise_fault(values, [op] * len(op.results), op.name, op.location)
    _raise_fault(results, makers, unit.name, unit.location)
    return results


def _raise_fault(results: object, makers: Sequence[Op], name: str, location: Location) -> None:
    for rows, fault in _faults(results, makers):
        if fault:
            error = ExecutionError(Diagnostic(location, fault.text, name if rows is None else rows.name))
            if fault.process:
                error.add_note(f"in process {fault.process}")
            raise error


@dataclass(frozen=True)
class _Fault:
    text: str
    process: str = ""


def _faults(results: object, makers: Sequence[Op]) -> Iterator[tuple[ProcessRows | None, _Fault | None]]:
    """Yield for each result that `makers` return its rows by process, and what is not finite."""
    for index, (array, maker) in enumerate(zip(_values(results), makers, strict=False)):
        if array is not None and UNSEEN not in maker.discardable:
            rows = ProcessRows.of(maker)
            yield rows, _fault(array, index, rows)


def _fault(array: Array, index: int, rows: ProcessRows | None) -> _Fault | None:
    """Return what is not finite in result `index`; in a stacked result, of the first process with such elements."""
    if array.dtype.kind not in "fcV" or array.size == 0:
        return None
    finite = np.isfinite(array if array.dtype.kind != "V" else array.astype(np.float32))
    if finite.all():
        return None
    if rows is None:
        return _Fault(_description(array, finite, index))
    moved, of_numbers = (np.moveaxis(each, rows.dimension, 0) for each in (finite, array))
    row = int(np.argmin(moved.all(axis=tuple(range(1, moved.ndim))))) // rows.block
    part = slice(row * rows.block, (row + 1) * rows.block) if rows.block > 1 else row
    own, numbers = (np.asarray(each[part]) for each in (moved, of_numbers))
    if rows.block > 1:
        own, numbers = (np.moveaxis(each, 0, rows.dimension) for each in (own, numbers))
    rank = rows.ranks[row]
    return _Fault(_description(numbers, own, index), f"{rank} {rows.grid.process_id(rank)}")


def _description(array: Array, finite: Array, index: int) -> str:
    count = finite.size - int(np.count_nonzero(finite))
    where = np.unravel_index(int(np.argmin(finite)), finite.shape)
    place = f" at {[int(axis) for axis in where]}" if finite.ndim else ""
    value = array[where] if finite.ndim else array
    return f"result {index} has {count} of {finite.size} elements that are NaN or infinite, the first{place}: {value}"


def print_each(unit: ScheduledUnit, run: UnitRun, file: TextIO | None = None) -> Results:
    """Print the results of each unit: location, process, ops, types, and shortened values.

    In a simulation, one line per process. Each line is written at once, since processes may be threads.
    """
    results = run()
    out = file or sys.stdout
    kind, _, number = threading.current_thread().name.partition("-")
    prefix = f"process {number}: " if kind == "process" and number.isdigit() else ""
    for value, array in zip(unit.results, _values(results), strict=False):
        maker = value.defining_op
        if array is None or (maker is not None and UNSEEN in maker.discardable):
            continue
        rows = ProcessRows.of(maker)
        if rows is None or rows.block > 1:
            out.write(f"{unit.place}: {prefix}{_shown(unit.name, value, array)}\n")
            continue
        for rank, own in zip(rows.ranks, np.moveaxis(array, rows.dimension, 0), strict=True):
            process = f"process {rank} {rows.grid.process_id(rank)}: "
            out.write(f"{unit.place}: {process}{_shown(rows.name, value, own)}\n")
    return results


def _shown(name: str, value: Value, array: Array) -> str:
    shown = np.array2string(np.asarray(array), threshold=16, edgeitems=3, precision=6, separator=", ")
    return (
        f"{name} {f'%{value.name_hint}' if value.name_hint else '%'} : {value.tensor.with_shape(array.shape)} = {shown}"
    )


@dataclass(slots=True)
class _Event:
    name: str
    place: str
    start: float
    seconds: float
    own: float
    calls: int
    thread: str
    nbytes: int
    #: The processes that a stacked program computes at once.
    ranks: Sequence[int] | None = None
    #: The step number of a whole program, and whether its units are recorded.
    step: int | None = None
    is_kept: bool = True

    @property
    def category(self) -> str:
        if self.step is not None:
            return PROGRAM if self.is_kept else LEFT_OUT
        return self.name.partition(".")[0] if "," not in self.name else "fusion"


@dataclass
class Profile:
    """Time, calls and bytes by unit and source line. `own` time excludes what runs inside an op's regions.

    Native functions are the same as without a watcher, and time their parts themselves. A step is one call of a
    program, numbered from 0 per process; programs of the same name and types are counted together. With `steps`, only
    the units of these steps are recorded.
    """

    times_parts: ClassVar[bool] = True
    events: list[_Event] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    steps: range | None = None
    _counts: dict[tuple[str, int], int] = field(default_factory=dict)
    _local: threading.local = field(default_factory=threading.local)

    def __call__(self, unit: ScheduledUnit, run: UnitRun) -> Results:
        if getattr(self._local, "leaves_out", False):
            return run()
        inner: list[float] = getattr(self._local, "inner", None) or [0.0]
        self._local.inner = inner
        inner.append(0.0)
        start = time.perf_counter()
        try:
            return run()
        finally:
            seconds = time.perf_counter() - start
            own = seconds - inner.pop()
            inner[-1] += seconds
            thread = threading.current_thread().name
            start -= self.began
            if unit.clock is None:
                nbytes = _traffic(unit.operands, unit.results)
                ranks = self._ranks(unit.ops)
                self.events.append(_Event(unit.name, unit.place, start, seconds, own, 1, thread, nbytes, ranks))
            else:
                self.events += _parts(unit.clock, start, seconds, thread, self._ranks)

    @contextmanager
    def program(
        self, function: str, signature: str, process: int = 0, stacked: Sequence[int] | None = None
    ) -> Iterator[None]:
        """Return the context of a step: a call of `function` by `process`, or by the processes `stacked` at once.

        Calls are counted by `signature` and process.
        """
        step = self._counts.get((signature, process), 0)
        self._counts[signature, process] = step + 1
        is_kept = self.steps is None or step in self.steps
        before = getattr(self._local, "leaves_out", False), getattr(self._local, "ranks", None)
        self._local.leaves_out, self._local.ranks = not is_kept, stacked
        start = time.perf_counter()
        try:
            yield
        finally:
            self._local.leaves_out, self._local.ranks = before
        seconds, thread = time.perf_counter() - start, threading.current_thread().name
        start -= self.began
        self.events.append(_Event(f"@{function}", "", start, seconds, 0.0, 1, thread, 0, stacked, step, is_kept))

    def _ranks(self, ops: Sequence[Op]) -> Sequence[int] | None:
        """Return the processes that compute `ops`, of those of a stacked program."""
        everybody: Sequence[int] | None = getattr(self._local, "ranks", None)
        rows = None if everybody is None else ProcessRows.of(ops[-1])
        return everybody if rows is None else rows.ranks

    def trace_events(self, rank: int = 0) -> list[TraceRecord]:
        """Return the events in the Trace Event Format, with times in microseconds.

        The process of an event is the rank; for in-process ranks, that of the thread; an event of few simulated
        processes is repeated for each.
        """
        return list(self._trace_events(rank))

    def _trace_events(self, rank: int) -> Iterator[TraceRecord]:
        for event in self.events:
            ranks = [_rank_of_thread(event.thread, rank)] if event.ranks is None else event.ranks
            arguments: TraceArguments = {"place": event.place, "bytes": event.nbytes}
            if event.step is not None:
                arguments["step"] = event.step
            if len(ranks) > _MOST_TRACKS:
                ranks, arguments["processes"] = ranks[:1], len(ranks)
            for process in ranks:
                yield {
                    "name": event.name,
                    "cat": event.category,
                    "ph": "X",
                    "ts": event.start * 1e6,
                    "dur": event.seconds * 1e6,
                    "pid": process,
                    "tid": 0,
                    "args": arguments,
                }


def _rank_of_thread(name: str, otherwise: int) -> int:
    kind, _, number = name.partition("-")
    return int(number) if kind == "process" and number.isdigit() else otherwise


def _values(results: object) -> list[Array | None]:
    """Return one entry per result: an array, or None for anything else."""
    values = results if isinstance(results, tuple) else (results,)
    return [np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None for value in values]


def _parts(
    clock: Clock, start: float, seconds: float, thread: str, ranks: Callable[[Sequence[Op]], Sequence[int] | None]
) -> Iterator[_Event]:
    """Yield the parts of a native unit that took `seconds`, in sequence, in proportion to their ticks.

    A part's own time excludes the parts within it; Python code that ran within has a separate event.
    """
    counters = clock.last()
    ticks = counters[:, 0].astype(np.float64)
    own = ticks.copy()
    for number, part in enumerate(clock.parts):
        if part.outer is not None:
            own[part.outer] -= ticks[number]
    whole = sum(ticks[number] for number, part in enumerate(clock.parts) if part.outer is None)
    second = seconds / float(whole) if whole else 0.0
    at: dict[int | None, float] = {None: start}
    for number, part in enumerate(clock.parts):
        begin = at[part.outer]
        at[part.outer] = begin + float(ticks[number]) * second
        at[number] = begin
        if part.is_called or not counters[number, 1]:
            continue
        inside = set(part.ops)
        operands = dict.fromkeys(v for op in part.ops for v in op.operands if v.defining_op not in inside)
        count = int(counters[number, 1])
        nbytes = _traffic(operands, part.ops[-1].results) * count
        times = float(ticks[number]) * second, max(0.0, float(own[number])) * second
        yield _Event(name_of(part.ops), place_of(part.ops), begin, *times, count, thread, nbytes, ranks(part.ops))


def _traffic(operands: Iterable[Value], results: Iterable[Value]) -> int:
    """Return the bytes of static operands and results."""
    types = (value.type for value in (*operands, *results))
    return sum(type.nbytes for type in types if isinstance(type, TensorType) and type.is_static)
