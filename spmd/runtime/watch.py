"""Watching a program run: which op made a NaN, what each op gave, where the time went.

Each watcher is a `Watch` for spmd.compile(..., watch=...): it is called around every op.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.types import TensorType

Run = Callable[[], Any]


def check_nans(op: Op, run: Run) -> Any:
    """Raises ExecutionError at the first op that gives a NaN or an infinity, with how many and where the first is."""
    results = run()
    for index, array in enumerate(_arrays(results)):
        if array.dtype.kind not in "fcV" or array.size == 0:
            continue
        finite = np.isfinite(array if array.dtype.kind != "V" else array.astype(np.float32))
        if not finite.all():
            count = finite.size - int(np.count_nonzero(finite))
            where = np.unravel_index(int(np.argmin(finite)), finite.shape)
            place = f" at {[int(axis) for axis in where]}" if finite.ndim else ""
            text = f"result {index} has {count} of {finite.size} elements that are NaN or infinite, the first{place}"
            value = array[where] if finite.ndim else array
            raise ExecutionError(Diagnostic(op.location, f"{text}: {value}", op.name))
    return results


def print_each(op: Op, run: Run, file: TextIO | None = None) -> Any:
    """Prints what each op gives: place, op, types, and the values shortened."""
    results = run()
    out = file or sys.stdout
    for value, array in zip(op.results, _arrays(results), strict=False):
        name = f"%{value.name_hint}" if value.name_hint else "%"
        shown = np.array2string(np.asarray(array), threshold=16, edgeitems=3, precision=6, separator=", ")
        print(f"{op.location}: {op.name} {name} : {value.type} = {shown}", file=out)
    return results


@dataclass(slots=True)
class _Event:
    op: Op
    start: float
    seconds: float
    own: float
    thread: str
    nbytes: int


@dataclass
class Profile:
    """Time, calls and bytes by op and source line. `own` time leaves out what ran inside an op's regions."""

    events: list[_Event] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    _local: threading.local = field(default_factory=threading.local)

    def __call__(self, op: Op, run: Run) -> Any:
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
            self.events.append(_Event(op, start - self.began, seconds, own, thread, _traffic(op)))

    def table(self, limit: int = 40) -> str:
        """The profile as text, the most expensive line first: seconds, share, calls, megabytes, op and place."""
        rows: dict[tuple[str, str], list[float]] = {}
        for event in self.events:
            row = rows.setdefault((event.op.name, str(event.op.location)), [0.0, 0, 0])
            row[0] += event.own
            row[1] += 1
            row[2] += event.nbytes
        total = sum(row[0] for row in rows.values()) or 1.0
        lines = [f"{'seconds':>10} {'share':>6} {'calls':>8} {'MB':>10}  op and place"]
        ordered = sorted(rows.items(), key=lambda item: -item[1][0])
        for (name, place), (seconds, calls, nbytes) in ordered[:limit]:
            lines.append(
                f"{seconds:10.6f} {seconds / total:6.1%} {int(calls):8d} {nbytes / 1e6:10.2f}  {name}  {place}"
            )
        if len(ordered) > limit:
            lines.append(f"... and {len(ordered) - limit} more lines")
        lines.append(f"{total:10.6f} 100.0% {len(self.events):8d}  in all")
        return "\n".join(lines)

    def trace_events(self, rank: int = 0) -> list[dict[str, Any]]:
        """The events in the trace event format, times in microseconds.

        The process of the trace is the rank; for in-process ranks, that of the thread.
        """
        return [
            {
                "name": event.op.name,
                "cat": event.op.name.partition(".")[0],
                "ph": "X",
                "ts": event.start * 1e6,
                "dur": event.seconds * 1e6,
                "pid": _rank_of_thread(event.thread, rank),
                "tid": 0,
                "args": {"place": str(event.op.location), "bytes": event.nbytes},
            }
            for event in self.events
        ]


def _rank_of_thread(name: str, otherwise: int) -> int:
    kind, _, number = name.partition("-")
    return int(number) if kind == "process" and number.isdigit() else otherwise


def _arrays(results: Any) -> list[Any]:
    values = results if isinstance(results, tuple) else (results,)
    return [np.asarray(value) for value in values if isinstance(value, (np.ndarray, np.generic))]


def _traffic(op: Op) -> int:
    """Bytes of the op's static operands and results."""
    types = (value.type for value in (*op.operands, *op.results))
    return sum(type.nbytes for type in types if isinstance(type, TensorType) and type.is_static)
