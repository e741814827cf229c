"""Loops over the points of a nest, as LLVM's text: one after another, many at a time, or written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from spmd.analysis.affine import Variable
from spmd.backends.llvm.loops.element_emitter import PointWriter


@dataclass(frozen=True, slots=True)
class Range:
    """The stretch of one loop that a part of a nest runs, from `first` on and before `stop`, names of i64.

    It begins at a whole number of lanes and is longer than they are; `is_last`, an i1, tells whether it reaches the
    loop's end. Where `stop` is None it is the turn `first` alone, of a loop that is not run in lanes.
    """

    variable: Variable
    first: str
    stop: str | None
    is_last: str


class LoopWriter:
    """Writes loops at the end of the innermost scope, and tells `point` where it is inside of them.

    `part` is what is run of one of the loops; all others are run whole.
    """

    def __init__(self, point: PointWriter, part: Range | None = None) -> None:
        self.point = point
        self.part = part
        #: Whether the loop that `part` is of was run; of a single turn, there need be no loop.
        self.is_part_run = part is None or part.stop is None

    def nested(self, variables: Sequence[Variable], body: Callable[[], None], written_out: bool) -> None:
        """Loops over `variables`, outermost first, around what `body` writes."""
        if not variables:
            body()
            return
        variable, rest = variables[0], variables[1:]
        extent = self.point.nest.extents[variable]

        def inside() -> None:
            self.nested(rest, body, written_out)

        if variable == self.point.lanes.outer:
            self._woven_loop(variable, extent, body)
        elif variable == self.point.lane:
            self._lane_loop(variable, extent, inside)
        elif written_out:
            for number in range(extent):
                self.at(variable, str(number), inside)
        else:
            self.loop(variable, extent, 1, inside)

    def loop(self, variable: Variable, stop: int, step: int, inside: Callable[[], None]) -> None:
        """The loop from 0, or where the part begins, to `stop`, or where the part ends."""
        part = self._part_of(variable)
        if part is None and stop == step:
            self.at(variable, "0", inside)
            return
        if part is not None and part.stop is None:
            self.at(variable, part.first, inside)
            return
        first, end = self.bounds(variable, stop)
        name, depth = self.point.text.open_loop()
        self.point.variables[variable] = (name, depth)
        inside()
        self.point.text.close_loop(end, step, first)

    def bounds(self, variable: Variable, stop: int) -> tuple[str, str]:
        """Return where the loop begins and ends: at 0, or where the part begins; at `stop`, or where the part ends."""
        part = self._part_of(variable)
        if part is None:
            return "0", str(stop)
        assert part.stop is not None, "a loop"
        if stop == self.point.nest.extents[variable]:
            return part.first, part.stop
        return part.first, self.point.text.value(f"select i1 {part.is_last}, i64 {stop}, i64 {part.stop}")

    def _part_of(self, variable: Variable) -> Range | None:
        if self.part is None or self.part.variable != variable:
            return None
        self.is_part_run = True
        return self.part

    def at(self, variable: Variable, number: str, inside: Callable[[], None]) -> None:
        """`inside` with the variable at one known place."""
        with self.point.text.part() as depth:
            self.point.variables[variable] = (number, depth)
            inside()

    def _woven_loop(self, variable: Variable, extent: int, inside: Callable[[], None]) -> None:
        """The loop around a short lane loop, a few turns at a time."""
        lanes = self.point.lanes
        assert lanes.variable is not None
        self.point.variables[lanes.variable] = ("0", self.point.base)
        self.point.valid = None if lanes.points == lanes.width else lanes.points
        self.loop(variable, extent - extent % lanes.outer_width, lanes.outer_width, inside)
        self.point.valid = None
        if extent % lanes.outer_width:
            self.rest(variable, lanes.outer_width, inside)

    def _lane_loop(self, variable: Variable, extent: int, inside: Callable[[], None]) -> None:
        width = self.point.width
        if extent >= width:
            self.loop(variable, extent - extent % width, width, inside)
        if extent % width:
            self.rest(variable, width, inside)

    def rest(self, variable: Variable, step: int, inside: Callable[[], None]) -> None:
        """`inside` once, with the variable behind its last whole step: for the last part, where there are parts."""
        extent = self.point.nest.extents[variable]
        part = self._part_of(variable)
        text = self.point.text
        scope: AbstractContextManager[int] = text.part() if part is None else text.where(part.is_last)
        lanes = self.point.lanes
        if variable == lanes.outermost:
            self.point.valid = extent % step * lanes.extent
        with scope as depth:
            self.point.variables[variable] = (str(extent - extent % step), depth)
            inside()
        if variable == lanes.outermost:
            self.point.valid = None
