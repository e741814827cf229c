"""Reductions of loop nests.

If the lane loop is reduced, lanes accumulate separately and are combined as a tree at the end; long reductions are
blocked, recursively. So association depends on the length alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spmd.analysis.affine import Variable
from spmd.analysis.scalar.expression import Expression
from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.element_emitter import Bound
from spmd.backends.llvm.loops.loops import LoopEmitter, Range
from spmd.backends.llvm.loops.point_context import Rendered
from spmd.backends.llvm.loops.stores import store_all
from spmd.backends.llvm.reductions.lane_reduction import reduce_lanes
from spmd.compiler.schedule.fold_blocks import ReductionBlocks, points_of_loop, room_of
from spmd.compiler.schedule.loop_plan import LoopPlan
from spmd.compiler.schedule.nest import FOLDED, LoopReduction, Stage


class ReductionEmitter:
    """Emits the reductions of a stage at one point of the parallel loops."""

    def __init__(self, loops: LoopEmitter, plan: LoopPlan) -> None:
        self.loops = loops
        self.plan = plan
        self.point = loops.point

    def write(self, stage: Stage) -> None:
        """Emit reductions from initial values to stores at one point of the parallel loops."""
        across, width = self._across(stage), self.point.width
        slots = [self._start(reduction, across, width) for reduction in stage.reductions]
        if all(self.point.nest.extents[variable] for variable in stage.reduced):
            last = stage.reduced[-1] if stage.reduced else None
            if last is not None and (self.plan.levels or (last == self.point.lane and not self.plan.unrolled)):
                levels, length = self.plan.levels, self.point.nest.extents[last]
                inside = partial(self._reduce_range, stage, last, "0", length, levels, slots, width)
                self.loops.nested(stage.reduced[:-1], inside, self.plan.unrolled)
            else:
                step = partial(self._iteration, stage, slots, across, width)
                self.loops.nested(stage.reduced, step, self.plan.unrolled)
        self._finish(stage, slots, across, width)

    def write_from_blocks(self, stage: Stage, blocks: ReductionBlocks, memory: str) -> None:
        """Emit reductions of the partial results of `blocks` in `memory`, which tasks computed."""
        across, width = self._across(stage), self.point.width
        slots = [self._start(reduction, across, width) for reduction in stage.reductions]
        self._combine_blocks(stage, blocks, memory, slots, width)
        self._finish(stage, slots, across, width)

    def _across(self, stage: Stage) -> bool:
        """Return whether lanes hold partial results."""
        return self.point.lane is not None and self.point.lane in stage.reduced

    def _finish(self, stage: Stage, slots: Sequence[list[str]], across: bool, width: int) -> None:
        """Emit the stores of the accumulators, combined over lanes if these are partial results."""
        for reduction, names in zip(stage.reductions, slots, strict=True):
            types = [expression.type for expression in reduction.initial]
            totals = [
                self.point.text.value(f"load {llvm_type(type, width)}, ptr {slot}")
                for type, slot in zip(types, names, strict=True)
            ]
            if across:
                totals = reduce_lanes(types, totals, width, partial(self.combined, reduction), self.point.text.value)
                starts = [self.point.render(part).name for part in reduction.initial]
                totals = self.combined(reduction, starts, totals, 1)
            bindings = self.bindings(totals, vector=not across and width > 1)
            store_all(self.point, reduction.stores, bindings)

    def _iteration(self, stage: Stage, slots: Sequence[list[str]], across: bool, width: int) -> None:
        """Emit one iteration of the reduced loops."""
        for reduction, names in zip(stage.reductions, slots, strict=True):
            self._step(reduction, names, across, width)
        store_all(self.point, stage.stores, {})

    def _start(self, reduction: LoopReduction, across: bool, width: int) -> list[str]:
        """Return slots for accumulators, with their initial values."""
        slots = [self.point.text.allocate(llvm_type(first.type, width)) for first in reduction.initial]
        if across:
            assert reduction.neutral is not None
        self._reset(slots, reduction.neutral if across and reduction.neutral else reduction.initial, width)
        return slots

    def _reset(self, slots: Sequence[str], values: Sequence[Expression], width: int) -> None:
        for slot, value in zip(slots, values, strict=True):
            name = self.point.at_width(self.point.render(value), value.type, width, value)
            self.point.text.line(f"store {llvm_type(value.type, width)} {name}, ptr {slot}")

    # --- blocks computed by tasks ---

    def _block_addresses(self, stage: Stage, memory: str, number: str) -> list[list[str]]:
        """Return the addresses of the partial results of block `number` at the current point."""
        room = room_of(stage, self.point.lanes)
        for variable in stage.parallel:
            place = self.point.variables[variable][0]
            if variable in self.point.lanes.tile_sizes():
                place = self.point.text.value(f"udiv i64 {place}, {self.point.lanes.tile_sizes()[variable]}")
            points = points_of_loop(self.point.nest, variable, self.point.lanes)
            row = self.point.text.value(f"mul nuw nsw i64 {number}, {points}")
            number = self.point.text.value(f"add nuw nsw i64 {row}, {place}")
        at = self.point.text.value(f"mul nuw nsw i64 {number}, {sum(room)}")
        start = self.point.text.value(f"getelementptr i8, ptr {memory}, i64 {at}")
        offsets = iter([sum(room[:place]) for place in range(len(room))])
        return [
            [self.point.text.value(f"getelementptr i8, ptr {start}, i64 {next(offsets)}") for _ in reduction.initial]
            for reduction in stage.reductions
        ]

    def write_blocks(self, stage: Stage, blocks: ReductionBlocks, memory: str, part: Range) -> None:
        """Reduce the blocks in `part`, separately; the last part includes the remainder."""
        assert part.stop is not None
        (last,) = stage.reduced
        text, size, width = self.point.text, blocks.levels[-1], self.point.width

        def block(number: str, length: int) -> None:
            parts = self._neutral(stage, width)
            begin = text.value(f"mul nuw nsw i64 {number}, {size}")
            self._reduce_range(stage, last, begin, length, blocks.levels[:-1], parts, width)
            for reduction, slots, places in zip(
                stage.reductions, parts, self._block_addresses(stage, memory, number), strict=True
            ):
                for first, slot, place in zip(reduction.initial, slots, places, strict=True):
                    type = llvm_type(first.type, width)
                    value = text.value(f"load {type}, ptr {slot}")
                    text.line(f"store {type} {value}, ptr {place}, align 8")

        with text.scope():
            name, _ = text.open_loop()
            self.loops.nested(stage.parallel, lambda: block(name, size), unrolled=False)
            text.close_loop(part.stop, 1, part.first)
        if blocks.rest:
            with text.where(part.is_last):
                self.loops.nested(stage.parallel, lambda: block(str(blocks.count), blocks.rest), unrolled=False)

    def _combine_blocks(
        self, stage: Stage, blocks: ReductionBlocks, memory: str, totals: Sequence[list[str]], width: int
    ) -> None:
        """Combine the partial results of blocks in order."""
        name, _ = self.point.text.open_loop()
        for reduction, places, total in zip(
            stage.reductions, self._block_addresses(stage, memory, name), totals, strict=True
        ):
            self._merge(reduction, total, places, width, align=8)
        self.point.text.close_loop(blocks.total)

    # --- nested blocks ---

    def _reduce_range(
        self,
        stage: Stage,
        last: Variable,
        start: str,
        length: int | str,
        levels: Sequence[int],
        totals: Sequence[list[str]],
        width: int,
    ) -> None:
        """Reduce `length` elements from `start` on into `totals`: through blocks of the last of `levels`, if any."""
        if not levels:
            self._reduce_elements(stage, last, start, length, totals, width)
            return
        size = levels[-1]
        several = len(levels) == 1 and isinstance(length, int) and length >= 2 * size
        is_full = self.point.valid in (None, self.point.lanes.points)
        interleaving = self.plan.interleaved if several and is_full else 1

        def blocks(begin: str, sizes: Sequence[int | str]) -> None:
            parts = [self._neutral(stage, width) for _ in sizes]
            if len(parts) == 1:
                self._reduce_range(stage, last, begin, sizes[0], levels[:-1], parts[0], width)
            else:
                self._reduce_interleaved(stage, last, begin, size, parts, width)
            for part in parts:
                for reduction, slots, total in zip(stage.reductions, part, totals, strict=True):
                    self._merge(reduction, total, slots, width)

        lanes = self.point.width if last == self.point.lane else 1
        if interleaving == 1 and (isinstance(length, str) or length % lanes == 0):
            for number, rest in self.point.text.blocks(length, size):
                blocks(self._plus(start, number), [rest])
            return
        assert isinstance(length, int)
        for number, places in self.point.text.chunks(length, interleaving * size):
            begin = self._plus(start, number)
            if interleaving > 1 and places == interleaving * size:
                blocks(begin, [size] * interleaving)
                continue
            for place, rows in self.point.text.chunks(places, size):
                blocks(self._plus(begin, place), [rows])

    def _neutral(self, stage: Stage, width: int) -> list[list[str]]:
        """Return slots for the accumulators of a block, with neutral values."""
        slots = [[self.point.text.allocate(llvm_type(e.type, width)) for e in r.initial] for r in stage.reductions]
        for reduction, names in zip(stage.reductions, slots, strict=True):
            assert reduction.neutral is not None
            self._reset(names, reduction.neutral, width)
        return slots

    def _reduce_interleaved(
        self, stage: Stage, last: Variable, start: str, size: int, parts: Sequence[Sequence[list[str]]], width: int
    ) -> None:
        """Reduce blocks of `size` elements, the first from `start` on, interleaved."""
        name, _ = self.point.text.open_loop()
        for number, slots in enumerate(parts):
            place = self._plus(self._plus(start, str(number * size)), name)
            self.loops.at(last, place, partial(self._iteration, stage, slots, False, width))
        self.point.text.close_loop(size)

    def _reduce_elements(
        self, stage: Stage, last: Variable, start: str, length: int | str, slots: Sequence[list[str]], width: int
    ) -> None:
        """Reduce `length` elements from `start` on; a dynamic length must be a multiple of the lanes."""
        across = last == self.point.lane
        lanes = self.point.width if across else 1

        def step() -> None:
            self._iteration(stage, slots, across, width)

        rest = 0 if isinstance(length, str) else length % lanes
        if isinstance(length, str) or length >= lanes:
            name, depth = self.point.text.open_loop()
            self.point.variables[last] = (self._plus(start, name), depth)
            step()
            self.point.text.close_loop(length if isinstance(length, str) else length - rest, lanes)
        if rest:
            self.point.valid = rest
            with self.point.text.scope() as depth:
                self.point.variables[last] = (self._plus(start, f"{int(length) - rest}"), depth)
                step()
            self.point.valid = None

    def _plus(self, first: str, second: str) -> str:
        """Return the sum of two indices, SSA names or numbers."""
        if "%" not in first + second:
            return str(int(first) + int(second))
        if first == "0":
            return second
        return self.point.text.value(f"add nuw nsw i64 {first}, {second}")

    def _merge(
        self, reduction: LoopReduction, total: Sequence[str], slots: Sequence[str], width: int, align: int = 64
    ) -> None:
        """Combine the values at `slots`, aligned to `align` bytes, into `total`."""
        types = [llvm_type(first.type, width) for first in reduction.initial]
        load = self.point.text.value
        names = [load(f"load {type}, ptr {slot}") for slot, type in zip(total, types, strict=True)]
        names += [load(f"load {type}, ptr {slot}, align {align}") for slot, type in zip(slots, types, strict=True)]
        combined = self.combined(reduction, names[: len(types)], names[len(types) :], width)
        for slot, type, value in zip(total, types, combined, strict=True):
            self.point.text.line(f"store {type} {value}, ptr {slot}")

    def _step(self, reduction: LoopReduction, slots: Sequence[str], across: bool, width: int) -> None:
        inputs = [self.point.at_width(self.point.render(part), part.type, width) for part in reduction.inputs]
        types = [llvm_type(part.type, width) for part in reduction.inputs]
        before = [self.point.text.value(f"load {type}, ptr {slot}") for type, slot in zip(types, slots, strict=True)]
        after = self.combined(reduction, before, inputs, width, reduction.ordered_combine)
        for slot, type, old, new in zip(slots, types, before, after, strict=True):
            if across and self.point.valid is not None:
                new = self.point.text.value(
                    f"select <{width} x i1> {self.point.valid_lanes()}, {type} {new}, {type} {old}"
                )
            self.point.text.line(f"store {type} {new}, ptr {slot}")

    def combined(
        self,
        reduction: LoopReduction,
        first: Sequence[str],
        second: Sequence[str],
        width: int,
        codes: Sequence[Expression] | None = None,
    ) -> list[str]:
        """Return the combiner, or `codes` instead, applied to accumulators of `width` lanes."""
        bindings = self.bindings([*first, *second], vector=width > 1)
        writer = Bound(self.point, bindings, width)
        return [writer.render(part) for part in codes or reduction.combine]

    def bindings(self, names: Sequence[str], *, vector: bool) -> dict[int, Rendered]:
        """Return accumulators as bindings of the parameters of regions and stores."""
        return {FOLDED + number: Rendered(name, vector, self.point.text.depth) for number, name in enumerate(names)}
