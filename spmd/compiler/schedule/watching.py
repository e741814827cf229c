"""The interface of watchers: the units of a schedule, and how each runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spmd.errors import Location
from spmd.ir import Op, Value
from spmd.support.arrays import Array, Results

#: Most source lines that are listed for a unit.
_MOST_LINES = 8


@dataclass(frozen=True)
class ClockedPart:
    """Ops of a native unit that are timed together, nested in part `outer` (None: in the unit).

    `is_called`: Python runs it, so a watcher is called for it separately.
    """

    ops: tuple[Op, ...]
    outer: int | None
    is_called: bool = False


class Clock(Protocol):
    """Timings of the parts of a native unit, taken by the unit itself."""

    @property
    def parts(self) -> Sequence[ClockedPart]: ...

    def last(self) -> Array:
        """Return, for the last call on this thread, the ticks and the number of runs of each part."""


@dataclass(frozen=True, eq=False)
class ScheduledUnit:
    """Ops executed together: one op, or those of one native function, which has a `clock`.

    `name` and `location` are the op's own, or summarize those of several.
    """

    ops: tuple[Op, ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    clock: Clock | None = None

    @property
    def name(self) -> str:
        return name_of(self.ops)

    @property
    def location(self) -> Location:
        return self.ops[-1].location

    @property
    def place(self) -> str:
        return place_of(self.ops)


def name_of(ops: Sequence[Op]) -> str:
    """Return the name of one op, or `add, multiply x2` of several, as the source has them."""
    if len(ops) == 1:
        return ops[0].name
    inside = sorted(ops, key=lambda op: op.location.line)
    counts = Counter(op.name.removeprefix("stablehlo.") for op in inside)
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in counts.items())


def place_of(ops: Sequence[Op]) -> str:
    """Return the source location of ops: file, line and column of one; files and lines of several, abbreviated if many.

    Locations in Python files are preferred to those in program text.
    """
    if len(ops) == 1:
        return str(ops[0].location)
    lines: dict[str, set[int]] = {}
    for location in [op.location for op in ops]:
        lines.setdefault(location.file, set()).add(location.line)
    files = [file for file in lines if not file.startswith("<")] or lines
    return ", ".join(f"{file}:{_lines(lines[file])}" for file in files)


def _lines(numbers: set[int]) -> str:
    lines = [str(number) for number in sorted(numbers)]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES // 2 : -(_MOST_LINES // 2)] = ["..."]
    return ",".join(lines)


class UnitRun:
    """A unit about to run: calling it runs it and returns its results."""

    __slots__ = ("_arguments", "_call", "_keywords", "_replay")

    def __init__(
        self,
        call: Callable[..., Results],
        arguments: tuple[Array, ...],
        keywords: dict[str, object],
        replay: Callable[..., Iterator[tuple[Op, Results]]] | None,
    ) -> None:
        self._call = call
        self._arguments = arguments
        self._keywords = keywords
        self._replay = replay

    def __call__(self) -> Results:
        return self._call(*self._arguments, **self._keywords)

    def op_by_op(self) -> Iterator[tuple[Op, Results]]:
        """Yield each op of the unit with its results, run again one by one; nothing if the unit cannot be replayed."""
        if self._replay is not None:
            yield from self._replay(*self._arguments)


#: Called around every unit of a watched program: it must call the UnitRun and return its result. If the attribute
#: `times_parts` is true native functions are one unit with a clock; else each unit is called separately.
Watch = Callable[[ScheduledUnit, UnitRun], Any]
