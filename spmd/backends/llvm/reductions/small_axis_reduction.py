"""Reductions over a small contiguous axis: sums over states of a model, over ten classes, over vector components.

Lanes are rows, so loads have a large lane stride. If only loads are reduced, their blocks are transposed in registers;
else rows are computed one after another in whole vectors, and the reduced values transposed. The order of reduction is
the same, and so are the bits.
"""

from __future__ import annotations

from dataclasses import replace

from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.stores import store_all
from spmd.backends.llvm.loops.transposed import load_transposed, transpose_block
from spmd.backends.llvm.reductions.reductions import ReductionEmitter
from spmd.compiler.schedule.lanes import SIDE, Lanes
from spmd.compiler.schedule.nest import Stage


def write_small_axis(fold: ReductionEmitter, stage: Stage) -> None:
    """Emit the reductions of `stage` for one vector of rows."""
    point, lane = fold.point, fold.point.lane
    assert lane is not None
    if not fold.plan.strided:
        _write_rows(fold, stage)
        return
    (last,) = stage.reduced
    rows, extent = SIDE if point.valid is None else point.valid, point.nest.extents[last]
    point.variables[last] = ("0", point.base)
    point.transposed = {load: (load_transposed(point, load, lane, rows, extent), last) for load in fold.plan.strided}
    fold.write(stage)
    point.transposed = {}


def _write_rows(fold: ReductionEmitter, stage: Stage) -> None:
    """Compute row by row, transpose, and reduce."""
    point, text = fold.point, fold.point.text
    extent = point.nest.extents[stage.reduced[0]]
    places = _spill(fold, stage)
    for reduction, slots in zip(stage.reductions, places, strict=True):
        transposed = []
        for part, slot in zip(reduction.inputs, slots, strict=True):
            type = llvm_type(part.type, SIDE)
            transpose_block(text, part.type, (slot, SIDE * part.type.bits // 8, SIDE), slot, extent)
            at = [text.value(f"getelementptr {type}, ptr {slot}, i64 {column}") for column in range(extent)]
            transposed.append([text.value(f"load {type}, ptr {place}") for place in at])
        totals = [point.at_width(point.render(part), part.type, SIDE, part) for part in reduction.initial]
        for column in range(extent):
            totals = fold.combined(reduction, totals, [columns[column] for columns in transposed], SIDE)
        store_all(point, reduction.stores, fold.bindings(totals, vector=True))


def _spill(fold: ReductionEmitter, stage: Stage) -> list[list[str]]:
    """Return slots with the reduced values: a vector per row. Elementwise stores are emitted, too."""
    point, text = fold.point, fold.point.text
    lanes, valid, whole, lane = point.lanes, point.valid, point.stage, point.lane
    (last,) = stage.reduced
    assert lane is not None
    rows, (start, depth) = SIDE if valid is None else valid, point.variables[lane]
    slots = [
        [text.allocate(f"[{SIDE} x {llvm_type(part.type, SIDE)}]") for part in reduction.inputs]
        for reduction in stage.reductions
    ]
    for reduction, names in zip(stage.reductions, slots, strict=True):
        for part, slot in zip(reduction.inputs, names, strict=True):
            for row in range(rows, SIDE):  # padding rows are reduced, too
                type = llvm_type(part.type, SIDE)
                at = text.value(f"getelementptr {type}, ptr {slot}, i64 {row}")
                text.line(f"store {type} zeroinitializer, ptr {at}")
    number, inner = text.open_loop()
    point.variables[lane] = (text.value(f"add nuw nsw i64 {start}, {number}"), inner)
    point.variables[last] = ("0", point.base)
    extent = point.nest.extents[last]
    point.lanes, point.valid = Lanes(last, SIDE), None if extent == SIDE else extent
    point.stage = replace(stage)  # values cached for vectors of rows do not apply to single rows
    for reduction, names in zip(stage.reductions, slots, strict=True):
        for part, slot in zip(reduction.inputs, names, strict=True):
            vector, type = point.at_width(point.render(part), part.type, SIDE, part), llvm_type(part.type, SIDE)
            at = text.value(f"getelementptr {type}, ptr {slot}, i64 {number}")
            text.line(f"store {type} {vector}, ptr {at}")
    store_all(point, stage.stores, {})
    text.close_loop(rows)
    point.lanes, point.valid, point.stage = lanes, valid, whole
    point.variables[lane] = (start, depth)
    del point.variables[last]
    return slots
