"""Loop nests as LLVM's text.

One loop of a stage, the lane loop, is run many points at a time. It is the last of the dimensions in memory order, so
that lanes are neighbours; where that dimension is folded the lanes hold partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.affine import Variable
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.element_emitter import PointWriter
from spmd.backends.llvm.loops.interleaved import store_turns
from spmd.backends.llvm.loops.loop_splitting import inside_of, write_either
from spmd.backends.llvm.loops.loops import LoopWriter, Range
from spmd.backends.llvm.loops.ordered_updates import write_in_order
from spmd.backends.llvm.loops.stores import store_all, write_update
from spmd.backends.llvm.loops.transposed import write_turned
from spmd.backends.llvm.reductions.column_tiling import StripWriter, is_strip
from spmd.backends.llvm.reductions.reductions import FoldWriter
from spmd.backends.llvm.reductions.small_axis_reduction import write_short_rows
from spmd.compiler.schedule.lanes import has_small_axis, is_unrolled, lanes_of, points_of, transposed_loop
from spmd.compiler.schedule.nest import Nest, Stage
from spmd.ir import Value

#: Points of a stage whose inside is written by itself.
_LEAST_INSIDE = 1 << 10


class NestWriter:
    """Writes the loops of one nest at the end of the innermost scope of `text`.

    `pointer` gives the name of the buffer of a value; `part` is what is run of one loop, where not all of it is.
    """

    def __init__(
        self, nest: Nest, text: FunctionText, pointer: Callable[[Value], str], part: Range | None = None
    ) -> None:
        self.nest = nest
        self.point = PointWriter(nest, text, pointer)
        self.loops = LoopWriter(self.point, part)

    def write(self) -> None:
        self._outer(self.nest.outer)
        assert self.loops.is_part_run, "each part would run the whole of a nest that is cut"

    def write_blocks(self, memory: str, part: Range) -> None:
        """Fold the blocks `part`, by number, and writes what they give to `memory`; the last part, what is left."""
        self._set_lanes()
        FoldWriter(self.loops).write_blocks(self.nest.stages[0], memory, part)

    def write_from_blocks(self, memory: str) -> None:
        """The rest of a fold whose blocks are in `memory`."""
        self._set_lanes()
        with self.point.text.part():
            (stage,) = self.nest.stages
            fold = FoldWriter(self.loops)
            self.loops.nested(stage.parallel, lambda: fold.write(stage, written_out=False, memory=memory), False)

    def _set_lanes(self) -> None:
        self.point.lanes = lanes_of(self.nest, self.nest.stages[0])

    def _outer(self, variables: Sequence[Variable]) -> None:
        """The loops that the stages share."""
        if variables:
            self.loops.loop(variables[0], self.nest.extents[variables[0]], 1, lambda: self._outer(variables[1:]))
            return
        self.point.shared_depth = self.point.text.depth
        for stage in self.nest.stages:
            if all(self.nest.extents[variable] for variable in stage.parallel):
                self.point.stage = stage
                self._stage(stage)

    def _stage(self, stage: Stage) -> None:
        points = points_of(self.nest, stage)
        if not points and not stage.reductions:
            return
        self.point.lanes = lanes_of(self.nest, stage)
        written_out = is_unrolled(self.nest, stage)
        turned = transposed_loop(self.nest, stage, self.point.lanes)
        has_inside = points >= _LEAST_INSIDE and turned is None and not stage.updates
        inside = inside_of(self.nest, stage, self.point.lanes) if has_inside else None

        def at_point() -> None:
            if inside is not None and self.point.valid is None:
                write_either(self.point, inside, at_points_of)
            else:
                at_points_of(stage)

        def at_points_of(stage: Stage) -> None:
            if has_small_axis(self.nest, stage, self.point.lane):
                write_short_rows(FoldWriter(self.loops), stage)
            elif stage.reductions:
                FoldWriter(self.loops).write(stage, written_out)
            elif self.point.lanes.inner is not None:
                store_turns(self.point, stage, self.point.lanes.inner)
            else:
                store_all(self.point, stage.stores, {})
                in_order = self.point.lane is not None and self.point.lane not in stage.independent
                for update in stage.updates:
                    (write_in_order if in_order else write_update)(self.point, update)

        with self.point.text.part():
            aside = (*self.nest.outer, self.point.lanes.inner)
            kept = [variable for variable in stage.parallel if variable not in aside]
            if turned is not None:
                write_turned(self.loops, stage, turned, at_point)
            elif is_strip(self.nest, stage, self.point.lane, self.point.width):
                strips = StripWriter(self.loops, stage)
                self.loops.nested(kept[:-1], lambda: strips.write_strips(at_point), written_out)
            else:
                self.loops.nested(kept, at_point, written_out)
