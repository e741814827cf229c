"""Loop nests as LLVM's text.

One loop of a stage, the lane loop, is run many points at a time. It is the last of the dimensions in memory order, so
that lanes are neighbours; where that dimension is folded the lanes hold partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from spmd.analysis.affine import Variable
from spmd.backends.llvm.folds import FoldWriter
from spmd.backends.llvm.loops import LoopWriter
from spmd.backends.llvm.points import PointWriter
from spmd.backends.llvm.stores import store_all, write_update
from spmd.backends.llvm.text import FunctionText
from spmd.compiler.schedule.nest import Nest, Stage
from spmd.ir import Value

#: Lanes of a loop that computes elements, and of one that folds them.
LANES, FOLDING_LANES = 16, 64
#: Elements that are folded one after another.
FEW = 16
#: Points of a nest that is written out without any loop.
WRITTEN_OUT = 16


class NestWriter:
    """Writes the loops of one nest at the end of the innermost scope of `text`.

    `pointer` gives the name of the buffer of a value.
    """

    def __init__(self, nest: Nest, text: FunctionText, pointer: Callable[[Value], str]) -> None:
        self.nest = nest
        self.point = PointWriter(nest, text, pointer)
        self.loops = LoopWriter(self.point)

    def write(self) -> None:
        self._outer(self.nest.outer)

    def _outer(self, variables: Sequence[Variable]) -> None:
        """The loops that the stages share."""
        if variables:
            self.loops.loop(variables[0], self.nest.extents[variables[0]], 1, lambda: self._outer(variables[1:]))
            return
        self.point.shared_depth = self.point.text.depth
        for stage in self.nest.stages:
            if all(self.nest.extents[variable] for variable in stage.kept):
                self.point.stage = stage
                self._stage(stage)

    def _stage(self, stage: Stage) -> None:
        inside = [variable for variable in stage.loops if variable not in self.nest.outer]
        points = prod(self.nest.extents[variable] for variable in inside)
        if not points and not stage.reductions:
            return
        self.point.lane, self.point.width = self._lanes(stage, points)
        written_out = points <= WRITTEN_OUT

        def at_point() -> None:
            if stage.reductions:
                FoldWriter(self.loops).write(stage, written_out)
            else:
                store_all(self.point, stage.stores, {})
                for update in stage.updates:
                    write_update(self.point, update)

        with self.point.text.part():
            self.loops.nested([v for v in stage.kept if v not in self.nest.outer], at_point, written_out)

    def _lanes(self, stage: Stage, points: int) -> tuple[Variable | None, int]:
        """The lane loop, and how many of its points are taken at a time."""
        if points <= 1:
            return None, 1
        among = stage.loops
        kept = tuple(variable for variable in stage.kept if variable not in self.nest.outer)
        if stage.reductions and (self._length(stage) <= FEW or any(r.neutral is None for r in stage.reductions)):
            among = kept  # elements are folded in their order
        if stage.updates:
            among = tuple(variable for variable in stage.loops[-1:] if variable in stage.side_by_side)
        if not set(among) - set(self.nest.outer):
            return None, 1
        lane = max(among)
        extent = self.nest.extents[lane]
        most = FOLDING_LANES if stage.reductions and lane == max(stage.loops) else LANES
        width = 1
        while width < most and width < extent:
            width *= 2
        if points <= WRITTEN_OUT and (width != extent or points != extent):
            return None, 1
        return lane, width

    def _length(self, stage: Stage) -> int:
        """How many elements each fold has."""
        return prod(self.nest.extents[variable] for variable in stage.reduced)
