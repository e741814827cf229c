"""Folds of short rows, as LLVM's text: sums over the states of a model, over ten classes, over the parts of vectors.

Many rows are folded side by side, element after element. So read, the lanes' elements lie apart. Here blocks of what is
read are turned in registers, where that is all; or else the rows of a block are computed one after another, in whole
vectors, and what is folded of them is turned. The order is the same, and so are the bits.
"""

from __future__ import annotations

from dataclasses import replace

from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.stores import store_all
from spmd.backends.llvm.loops.transposed import turn_block, turned_block
from spmd.backends.llvm.reductions.reductions import FoldWriter
from spmd.compiler.schedule.lanes import SIDE, Lanes, has_large_stride
from spmd.compiler.schedule.nest import Stage


def write_short_rows(fold: FoldWriter, stage: Stage) -> None:
    """Emit the folds of `stage` for as many rows as there are lanes."""
    point, lane = fold.point, fold.point.lane
    assert lane is not None
    apart = [load for load in stage.loads() if has_large_stride(load, lane)]
    known = all(load.mask is None and not load.address.dynamic for load in apart)
    inputs = sum(len(reduction.inputs) for reduction in stage.reductions)
    if stage.stores or not known or len(apart) > inputs:
        _write_rows(fold, stage)
        return
    (last,) = stage.reduced
    rows, extent = SIDE if point.valid is None else point.valid, point.nest.extents[last]
    point.variables[last] = ("0", point.base)
    point.turned = {load: (turned_block(point, load, lane, rows, extent), last) for load in apart}
    fold.write(stage, written_out=False)
    point.turned = {}


def _write_rows(fold: FoldWriter, stage: Stage) -> None:
    """Compute row after row, and folds what is turned of that."""
    point, text = fold.point, fold.point.text
    extent = point.nest.extents[stage.reduced[0]]
    places = _put_down(fold, stage)
    for reduction, slots in zip(stage.reductions, places, strict=True):
        turned = []
        for part, slot in zip(reduction.inputs, slots, strict=True):
            type = llvm_type(part.type, SIDE)
            turn_block(text, part.type, (slot, SIDE * part.type.bits // 8, SIDE), slot, extent)
            at = [text.value(f"getelementptr {type}, ptr {slot}, i64 {column}") for column in range(extent)]
            turned.append([text.value(f"load {type}, ptr {place}") for place in at])
        totals = [point.at_width(point.render(part), part.type, SIDE, part) for part in reduction.initial]
        for column in range(extent):
            totals = fold.combined(reduction, totals, [columns[column] for columns in turned], SIDE)
        store_all(point, reduction.stores, fold.bindings(totals, vector=True))


def _put_down(fold: FoldWriter, stage: Stage) -> list[list[str]]:
    """Slots with what each reduction folds: a vector for each row. What is stored at each element is written, too."""
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
            for row in range(rows, SIDE):  # of no row, and yet folded
                type = llvm_type(part.type, SIDE)
                at = text.value(f"getelementptr {type}, ptr {slot}, i64 {row}")
                text.line(f"store {type} zeroinitializer, ptr {at}")
    number, inner = text.open_loop()
    point.variables[lane] = (text.value(f"add nuw nsw i64 {start}, {number}"), inner)
    point.variables[last] = ("0", point.base)
    extent = point.nest.extents[last]
    point.lanes, point.valid = Lanes(last, SIDE), None if extent == SIDE else extent
    point.stage = replace(stage)  # what was computed for many rows is not what one row has
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
