"""Column reductions of large arrays, tiled by columns.

Reducing all rows for a few columns at a time reads memory with a large stride. Here a tile of many columns is reduced
row by row, with accumulators in the L1 cache. Each column is reduced in the order and the blocks of
spmd.backends.llvm.reductions.reductions, so results are bitwise equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.scalar.expression import Expression
from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.loops import LoopEmitter
from spmd.backends.llvm.loops.stores import store_all
from spmd.backends.llvm.reductions.reductions import ReductionEmitter
from spmd.compiler.schedule.loop_plan import LoopPlan
from spmd.compiler.schedule.nest import LoopReduction, Stage

#: Addresses of accumulators: one per value of each reduction.
_Slots = Sequence[list[str]]


class ColumnTileEmitter(ReductionEmitter):
    """Emits the reductions of a stage for all points of its lane loop."""

    def __init__(self, loops: LoopEmitter, plan: LoopPlan, stage: Stage) -> None:
        super().__init__(loops, plan)
        self.stage = stage
        (self.last,) = stage.reduced
        assert self.point.lane is not None
        self.lane = self.point.lane
        #: First column of the current tile, and its number of vectors.
        self._start_column = self._vectors = ""

    def write_tiles(self, rest: Callable[[], None]) -> None:
        """Emit all columns tile by tile; `rest` emits the reductions of the remainder of the lanes."""
        text, width, extent = self.point.text, self.point.width, self.point.nest.extents[self.lane]
        columns, rows = self.plan.columns, self.point.nest.extents[self.last]
        first, stop = self.loops.bounds(self.lane, extent - extent % width)
        self._start_column, _ = text.open_loop()
        end = text.value(f"call i64 @llvm.umin.i64(i64 {self._sum(self._start_column, columns)}, i64 {stop})")
        length = text.value(f"sub nuw nsw i64 {end}, {self._start_column}")
        self._vectors = text.value(f"udiv i64 {length}, {width}")
        totals = self._arrays(columns // width)
        self._each_column([totals], lambda slots: self._clear(slots, lambda reduction: reduction.initial))
        self._reduce_rows("0", rows, self.plan.levels, totals, columns // width)
        self._each_column([totals], self._store)
        text.close_loop(stop, columns, first)
        if extent % width:
            self.loops.rest(self.lane, width, rest)

    def _arrays(self, vectors: int) -> _Slots:
        """Return stack slots for the accumulators of a tile."""
        text, width = self.point.text, self.point.width
        return [
            [text.allocate(f"[{vectors} x {llvm_type(first.type, width)}]") for first in reduction.initial]
            for reduction in self.stage.reductions
        ]

    def _each_column(self, arrays: Sequence[_Slots], body: Callable[..., None]) -> None:
        """Emit a loop over the tile's columns around `body`, which is given their addresses in `arrays`."""
        text, width = self.point.text, self.point.width
        iteration, depth = text.open_loop()
        column = self._sum(self._start_column, text.value(f"mul nuw nsw i64 {iteration}, {width}"))
        self.point.variables[self.lane] = (column, depth)

        def places(array: _Slots) -> _Slots:
            return [
                [
                    text.value(f"getelementptr {llvm_type(first.type, width)}, ptr {slot}, i64 {iteration}")
                    for first, slot in zip(reduction.initial, slots, strict=True)
                ]
                for reduction, slots in zip(self.stage.reductions, array, strict=True)
            ]

        body(*map(places, arrays))
        text.close_loop(self._vectors)

    def _reduce_rows(self, start: str, length: int | str, levels: Sequence[int], totals: _Slots, vectors: int) -> None:
        """Reduce `length` rows from `start` on into `totals`: through blocks of the last of `levels`, if any."""
        text = self.point.text
        if not levels:
            name, depth = text.open_loop()
            self.point.variables[self.last] = (self._plus(start, name), depth)
            self._each_column([totals], self._reduce_row)
            text.close_loop(length)
            return
        size, parts = levels[-1], self._arrays(vectors)

        def block(begin: str, rows: int | str) -> None:
            self._each_column([parts], lambda slots: self._clear(slots, lambda reduction: reduction.neutral or ()))
            self._reduce_rows(begin, rows, levels[:-1], parts, vectors)
            self._each_column([totals, parts], self._merge_all)

        for number, rows in text.blocks(length, size):
            block(self._plus(start, number), rows)

    # --- one vector of columns ---

    def _clear(self, slots: _Slots, values: Callable[[LoopReduction], Sequence[Expression]]) -> None:
        for reduction, names in zip(self.stage.reductions, slots, strict=True):
            self._reset(names, values(reduction), self.point.width)

    def _reduce_row(self, slots: _Slots) -> None:
        for reduction, names in zip(self.stage.reductions, slots, strict=True):
            self._step(reduction, names, across=False, width=self.point.width)
        store_all(self.point, self.stage.stores, {})

    def _merge_all(self, totals: _Slots, parts: _Slots) -> None:
        for reduction, total, slots in zip(self.stage.reductions, totals, parts, strict=True):
            self._merge(reduction, total, slots, self.point.width)

    def _store(self, slots: _Slots) -> None:
        width = self.point.width
        for reduction, names in zip(self.stage.reductions, slots, strict=True):
            types = [llvm_type(first.type, width) for first in reduction.initial]
            load = self.point.text.value
            totals = [load(f"load {type}, ptr {slot}") for type, slot in zip(types, names, strict=True)]
            store_all(self.point, reduction.stores, self.bindings(totals, vector=True))

    def _sum(self, first: str, second: str | int) -> str:
        return self.point.text.value(f"add nuw nsw i64 {first}, {second}")
