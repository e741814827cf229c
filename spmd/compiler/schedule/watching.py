"""What a watcher of a program sees: the units of its schedule, and how each runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spmd.errors import Location
from spmd.ir import Op, Value
from spmd.support.arrays import Array, Results

#: Lines that are told of a unit.
_MOST_LINES = 8


@dataclass(frozen=True)
class ClockedPart:
    """A part of a native unit: ops that are timed together, within part `outer` (None: within the unit).

    `is_called`: Python runs it, and so a watcher is called for it by itself.
    """

    ops: tuple[Op, ...]
    outer: int | None
    is_called: bool = False


class Clock(Protocol):
    """Times of the parts of a native unit, which the unit itself takes while it runs."""

    @property
    def parts(self) -> Sequence[ClockedPart]: ...

    def last(self) -> Array:
        """Of the last call by this thread: for each part the ticks that it took, and how often it ran."""


@dataclass(frozen=True, eq=False)
class ScheduledUnit:
    """Ops that run together: one, or those that are computed in one native function. `clock`: see there; None of one.

    `name` and `location` are the op's own, of several those of what they are together.
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
    """The name of one op, or `add, multiply x2` of several, as the source has them."""
    if len(ops) == 1:
        return ops[0].name
    inside = sorted(ops, key=lambda op: op.location.line)
    counts = Counter(op.name.removeprefix("stablehlo.") for op in inside)
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in counts.items())


def place_of(ops: Sequence[Op]) -> str:
    """Where in the source ops stand: file, line and column of one, files and lines of several, of many the ends.

    Ops of a program whose lines in Python are known are named by these alone.
    """
    if len(ops) == 1:
        return str(ops[0].location)
    places: dict[str, set[int]] = {}
    for location in [op.location for op in ops]:
        places.setdefault(location.file, set()).add(location.line)
    files = [file for file in places if not file.startswith("<")] or places
    return ", ".join(f"{file}:{_lines(places[file])}" for file in files)


def _lines(numbers: set[int]) -> str:
    lines = [str(number) for number in sorted(numbers)]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES // 2 : -(_MOST_LINES // 2)] = ["..."]
    return ",".join(lines)


class Run:
    """A unit that is about to run: called, it runs and gives its results."""

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
        """Each op of the unit with its results, run again one after another; nothing of one that cannot be."""
        if self._replay is not None:
            yield from self._replay(*self._arguments)


#: Called around every unit when a program is watched: it must call the Run and return what that returns. One whose
#: attribute `times_parts` is true sees native functions whole, with clocks of their parts; else each unit is one.
Watch = Callable[[ScheduledUnit, Run], Any]
