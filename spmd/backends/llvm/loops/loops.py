"""Loops over the points of a nest: scalar, vectorized, or unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from spmd.analysis.affine import Variable
from spmd.backends.llvm.loops.element_emitter import ElementEmitter


@dataclass(frozen=True, slots=True)
class Range:
    """The range of one loop that a task runs, from `first` to before `stop`, SSA names of i64.

    It begins at a multiple of the lanes and is longer than they are; `is_last`, an i1, says whether it reaches the end
    of the loop. If `stop` is None it is the iteration `first` alone, of a loop that is not vectorized.
    """

    variable: Variable
    first: str
    stop: str | None
    is_last: str


class LoopEmitter:
    """Emits loops at the end of the innermost scope, and sets the variables of `point`.

    `part` is the range that is run of one loop; others are run whole.
    """

    def __init__(self, point: ElementEmitter, part: Range | None = None) -> None:
        self.point = point
        self.part = part
        #: Whether the loop of `part` was emitted; a single iteration may need no loop.
        self.is_part_run = part is None or part.stop is None

    def nested(self, variables: Sequence[Variable], body: Callable[[], None], unrolled: bool) -> None:
        """Emit loops over `variables`, outermost first, around the code of `body`."""
        if not variables:
            body()
            return
        variable, rest = variables[0], variables[1:]
        extent = self.point.nest.extents[variable]

        def inside() -> None:
            self.nested(rest, body, unrolled)

        if variable == self.point.lanes.outer:
            self._flattened_loop(variable, extent, body)
        elif variable == self.point.lane:
            self._lane_loop(variable, extent, inside)
        elif unrolled:
            for number in range(extent):
                self.at(variable, str(number), inside)
        else:
            self.loop(variable, extent, 1, inside)

    def loop(self, variable: Variable, stop: int, step: int, inside: Callable[[], None]) -> None:
        """Emit a loop from 0 to `stop`, or over the part of it in the range."""
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
        """Return the bounds of the loop: 0 and `stop`, or those of the range."""
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
        """Emit `inside` with the variable at a given value."""
        with self.point.text.scope() as depth:
            self.point.variables[variable] = (number, depth)
            inside()

    def _flattened_loop(self, variable: Variable, extent: int, inside: Callable[[], None]) -> None:
        """Emit the loop around a short lane loop, flattened: several iterations at a time."""
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
        """Emit `inside` for the remainder of the variable's last step, in the last range if there are ranges."""
        extent = self.point.nest.extents[variable]
        part = self._part_of(variable)
        text = self.point.text
        scope: AbstractContextManager[int] = text.scope() if part is None else text.where(part.is_last)
        lanes = self.point.lanes
        if variable == lanes.outermost:
            self.point.valid = extent % step * lanes.extent
        with scope as depth:
            self.point.variables[variable] = (str(extent - extent % step), depth)
            inside()
        if variable == lanes.outermost:
            self.point.valid = None
