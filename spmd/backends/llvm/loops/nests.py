"""Loop nests as LLVM IR.

One loop of a stage, the lane loop, is vectorized. It is the innermost dimension in memory, so that lanes are
neighbours; if that is reduced, lanes hold partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.affine import Variable
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.element_emitter import ElementEmitter
from spmd.backends.llvm.loops.interleaved import store_unrolled
from spmd.backends.llvm.loops.loop_splitting import interior_for, write_split
from spmd.backends.llvm.loops.loops import LoopEmitter, Range
from spmd.backends.llvm.loops.ordered_updates import write_in_order
from spmd.backends.llvm.loops.stores import store_all, write_update
from spmd.backends.llvm.loops.transposed import write_transposed
from spmd.backends.llvm.reductions.column_tiling import ColumnTileEmitter, is_column_tiled
from spmd.backends.llvm.reductions.reductions import ReductionEmitter
from spmd.backends.llvm.reductions.small_axis_reduction import write_small_axis
from spmd.compiler.schedule.lanes import has_small_axis, is_unrolled, lanes_of, points_of, transposed_loop
from spmd.compiler.schedule.nest import Nest, Stage
from spmd.ir import Value

#: Least points of a stage that is split into interior and boundary.
_LEAST_INSIDE = 1 << 10


class NestEmitter:
    """Emits the loops of one nest at the end of the innermost scope of `text`.

    `pointer` returns the SSA name of the buffer of a value; `part` is the range of one loop that is run, if not all.
    """

    def __init__(
        self, nest: Nest, text: FunctionText, pointer: Callable[[Value], str], part: Range | None = None
    ) -> None:
        self.nest = nest
        self.point = ElementEmitter(nest, text, pointer)
        self.loops = LoopEmitter(self.point, part)

    def write(self) -> None:
        self._outer(self.nest.outer)
        assert self.loops.is_part_run, "each part would run the whole of a nest that is cut"

    def write_blocks(self, memory: str, part: Range) -> None:
        """Reduce the blocks in `part`, by number, and store partial results to `memory`; the last part includes the
        remainder.
        """
        self._set_lanes()
        ReductionEmitter(self.loops).write_blocks(self.nest.stages[0], memory, part)

    def write_from_blocks(self, memory: str) -> None:
        """Combine the partial results in `memory`, and store the results."""
        self._set_lanes()
        with self.point.text.scope():
            (stage,) = self.nest.stages
            fold = ReductionEmitter(self.loops)
            self.loops.nested(stage.parallel, lambda: fold.write(stage, unrolled=False, memory=memory), False)

    def _set_lanes(self) -> None:
        self.point.lanes = lanes_of(self.nest, self.nest.stages[0])

    def _outer(self, variables: Sequence[Variable]) -> None:
        """Emit the shared loops around the stages."""
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
        unrolled = is_unrolled(self.nest, stage)
        transposed = transposed_loop(self.nest, stage, self.point.lanes)
        is_large = points >= _LEAST_INSIDE and transposed is None and not stage.updates
        interior = interior_for(self.nest, stage, self.point.lanes) if is_large else None

        def at_point() -> None:
            if interior is not None and self.point.valid is None:
                write_split(self.point, interior, at_points_of)
            else:
                at_points_of(stage)

        def at_points_of(stage: Stage) -> None:
            if has_small_axis(self.nest, stage, self.point.lane):
                write_small_axis(ReductionEmitter(self.loops), stage)
            elif stage.reductions:
                ReductionEmitter(self.loops).write(stage, unrolled)
            elif self.point.lanes.inner is not None:
                store_unrolled(self.point, stage, self.point.lanes.inner)
            else:
                store_all(self.point, stage.stores, {})
                in_order = self.point.lane is not None and self.point.lane not in stage.independent
                for update in stage.updates:
                    (write_in_order if in_order else write_update)(self.point, update)

        with self.point.text.scope():
            excluded = (*self.nest.outer, self.point.lanes.inner)
            parallel = [variable for variable in stage.parallel if variable not in excluded]
            if transposed is not None:
                write_transposed(self.loops, stage, transposed, at_point)
            elif is_column_tiled(self.nest, stage, self.point.lane, self.point.width):
                strips = ColumnTileEmitter(self.loops, stage)
                self.loops.nested(parallel[:-1], lambda: strips.write_tiles(at_point), unrolled)
            else:
                self.loops.nested(parallel, at_point, unrolled)
