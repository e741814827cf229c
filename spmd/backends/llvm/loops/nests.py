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
from spmd.backends.llvm.loops.loop_splitting import write_split
from spmd.backends.llvm.loops.loops import LoopEmitter, Range
from spmd.backends.llvm.loops.ordered_updates import write_in_order
from spmd.backends.llvm.loops.stores import store_all, write_update
from spmd.backends.llvm.loops.transposed import write_transposed
from spmd.backends.llvm.reductions.column_tiling import ColumnTileEmitter
from spmd.backends.llvm.reductions.reductions import ReductionEmitter
from spmd.backends.llvm.reductions.small_axis_reduction import write_small_axis
from spmd.compiler.schedule.fold_blocks import ReductionBlocks
from spmd.compiler.schedule.lanes import points_of
from spmd.compiler.schedule.loop_plan import LoopPlan, PlannedNest
from spmd.compiler.schedule.nest import Stage
from spmd.ir import Value


class NestEmitter:
    """Emits the loops of one nest at the end of the innermost scope of `text`.

    `pointer` returns the SSA name of the buffer of a value; `part` is the range of one loop that is run, if not all.
    """

    def __init__(
        self, nest: PlannedNest, text: FunctionText, pointer: Callable[[Value], str], part: Range | None = None
    ) -> None:
        self.nest = nest
        self.point = ElementEmitter(nest, text, pointer)
        self.loops = LoopEmitter(self.point, part)

    def write(self) -> None:
        self._outer(self.nest.outer)
        assert self.loops.is_part_run, "each part would run the whole of a nest that is cut"

    def write_blocks(self, blocks: ReductionBlocks, memory: str, part: Range) -> None:
        """Reduce the `blocks` in `part`, by number, and store partial results to `memory`; the last part includes the
        remainder.
        """
        self._reduction().write_blocks(self.nest.stages[0], blocks, memory, part)

    def write_from_blocks(self, blocks: ReductionBlocks, memory: str) -> None:
        """Combine the partial results of `blocks` in `memory`, and store the results."""
        (stage,), fold = self.nest.stages, self._reduction()
        with self.point.text.scope():
            self.loops.nested(stage.parallel, lambda: fold.write_from_blocks(stage, blocks, memory), False)

    def _reduction(self) -> ReductionEmitter:
        (plan,) = self.nest.plans
        self.point.lanes = plan.lanes
        return ReductionEmitter(self.loops, plan)

    def _outer(self, variables: Sequence[Variable]) -> None:
        """Emit the shared loops around the stages."""
        if variables:
            self.loops.loop(variables[0], self.nest.extents[variables[0]], 1, lambda: self._outer(variables[1:]))
            return
        self.point.shared_depth = self.point.text.depth
        for stage, plan in zip(self.nest.stages, self.nest.plans, strict=True):
            if all(self.nest.extents[variable] for variable in stage.parallel):
                self.point.stage = stage
                self._stage(stage, plan)

    def _stage(self, stage: Stage, plan: LoopPlan) -> None:
        if not points_of(self.nest, stage) and not stage.reductions:
            return
        self.point.lanes = plan.lanes

        def at_point() -> None:
            if plan.interior is not None and self.point.valid is None:
                write_split(self.point, plan.interior, at_points_of)
            else:
                at_points_of(stage)

        def at_points_of(stage: Stage) -> None:
            if plan.small_axis:
                write_small_axis(ReductionEmitter(self.loops, plan), stage)
            elif stage.reductions:
                ReductionEmitter(self.loops, plan).write(stage)
            elif plan.lanes.inner is not None:
                store_unrolled(self.point, stage, plan.lanes.inner)
            else:
                store_all(self.point, stage.stores, {})
                in_order = self.point.lane is not None and self.point.lane not in stage.independent
                for update in stage.updates:
                    (write_in_order if in_order else write_update)(self.point, update)

        with self.point.text.scope():
            excluded = (*self.nest.outer, plan.lanes.inner)
            parallel = [variable for variable in stage.parallel if variable not in excluded]
            if plan.transposed is not None:
                write_transposed(self.loops, stage, plan.transposed, plan.strided, at_point)
            elif plan.columns:
                tiles = ColumnTileEmitter(self.loops, plan, stage)
                self.loops.nested(parallel[:-1], lambda: tiles.write_tiles(at_point), plan.unrolled)
            else:
                self.loops.nested(parallel, at_point, plan.unrolled)
