"""Loops over the points of a nest, as LLVM's text: one after another, many at a time, or written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.affine import Variable
from spmd.backends.llvm.points import PointWriter


class LoopWriter:
    """Writes loops at the end of the innermost scope, and tells `point` where it is inside of them."""

    def __init__(self, point: PointWriter) -> None:
        self.point = point

    def nested(self, variables: Sequence[Variable], body: Callable[[], None], written_out: bool) -> None:
        """Loops over `variables`, outermost first, around what `body` writes."""
        if not variables:
            body()
            return
        variable, rest = variables[0], variables[1:]
        extent = self.point.nest.extents[variable]

        def inside() -> None:
            self.nested(rest, body, written_out)

        if variable == self.point.lane:
            self._lane_loop(variable, extent, inside)
        elif written_out:
            for number in range(extent):
                self.at(variable, str(number), inside)
        else:
            self.loop(variable, extent, 1, inside)

    def loop(self, variable: Variable, stop: int, step: int, inside: Callable[[], None]) -> None:
        if stop == step:
            self.at(variable, "0", inside)
            return
        name, depth = self.point.text.open_loop()
        self.point.variables[variable] = (name, depth)
        inside()
        self.point.text.close_loop(stop, step)

    def at(self, variable: Variable, number: str, inside: Callable[[], None]) -> None:
        """`inside` with the variable at one known place."""
        with self.point.text.part() as depth:
            self.point.variables[variable] = (number, depth)
            inside()

    def _lane_loop(self, variable: Variable, extent: int, inside: Callable[[], None]) -> None:
        rest = extent % self.point.width
        whole = extent - rest
        if whole:
            self.loop(variable, whole, self.point.width, inside)
        if rest:
            self.point.valid = rest
            self.at(variable, str(whole), inside)
            self.point.valid = None
