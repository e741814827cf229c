"""Loops over operands that lie transposed in memory: blocks of them are turned in registers.

Where lanes stand for neighbours of a result, an operand that is read along another dimension has its neighbours there.
Both loops go in blocks of as many turns as there are lanes; each block of the operand is read row by row, transposed
by shuffles and put down, and the points inside read whole vectors of that.
"""

from __future__ import annotations

from collections.abc import Callable

from spmd.analysis.affine import Variable
from spmd.backends.llvm.lanes import SIDE, along
from spmd.backends.llvm.loops import LoopWriter
from spmd.backends.llvm.points import PointWriter
from spmd.backends.llvm.strides import shuffled
from spmd.backends.llvm.writer import llvm_type
from spmd.compiler.schedule.nest import Load, Stage


def write_turned(loops: LoopWriter, stage: Stage, turned: Variable, at_point: Callable[[], None]) -> None:
    """The loops of `stage` around what `at_point` writes, in blocks of `turned` and the lane loop."""
    point = loops.point
    lane = point.lane
    assert lane is not None
    others = [variable for variable in stage.kept if variable not in (turned, lane)]
    extent, lanes = point.nest.extents[turned], point.nest.extents[lane]
    loads = [load for load in stage.loads() if along(point.nest, load, lane) == turned]

    def block() -> None:
        """All lanes of a block of the turned loop."""
        if lanes >= SIDE:
            loops.loop(lane, lanes - lanes % SIDE, SIDE, corner)
        if lanes % SIDE:
            loops.rest(lane, SIDE, rows)

    def corner() -> None:
        start, _ = point.variables[turned]
        slots = [_turn(point, load, lane, turned) for load in loads]
        row, depth = point.text.open_loop()
        point.variables[turned] = (point.text.value(f"add nuw nsw i64 {start}, {row}"), depth)
        point.turned = {
            load: point.text.value(f"getelementptr {llvm_type(load.type, SIDE)}, ptr {slot}, i64 {row}")
            for load, slot in zip(loads, slots, strict=True)
        }
        at_point()
        point.turned = {}
        point.text.close_loop(SIDE)
        point.variables[turned] = (start, depth - 1)

    def rows() -> None:
        """The lanes that are left of a block, row by row."""
        start, _ = point.variables[turned]
        row, depth = point.text.open_loop()
        point.variables[turned] = (point.text.value(f"add nuw nsw i64 {start}, {row}"), depth)
        at_point()
        point.text.close_loop(SIDE)
        point.variables[turned] = (start, depth - 1)

    def inside() -> None:
        loops.loop(turned, extent - extent % SIDE, SIDE, block)
        if extent % SIDE:
            loops.rest(turned, SIDE, left_over)

    def left_over() -> None:
        """The rows that no block has."""
        start, _ = point.variables[turned]
        row, depth = point.text.open_loop()
        point.variables[turned] = (point.text.value(f"add nuw nsw i64 {start}, {row}"), depth)
        loops.nested([lane], at_point, written_out=False)
        point.text.close_loop(extent % SIDE)

    loops.nested(others, inside, written_out=False)


def _turn(point: PointWriter, load: Load, lane: Variable, turned: Variable) -> str:
    """A slot with the block of `load` that begins where lane loop and turned loop are: a vector for each turn of the
    latter."""
    text, type = point.text, load.type
    scalar, vector = llvm_type(type, 1), llvm_type(type, SIDE)
    start, pointer = point.start_of(load.address), point.pointer(load.value)
    step, depth = load.address.coefficient(lane), text.depth
    rows = []
    for number in range(SIDE):
        place = text.value(f"add i64 {start.name}, {number * step}")
        address = text.value(f"getelementptr {scalar}, ptr {pointer}, i64 {place}")
        rows.append(text.value(f"load {vector}, ptr {address}, align {type.bits // 8}"))
    half = 1
    while half < SIDE:
        for first in range(SIDE):
            if first & half:
                continue
            second = first | half
            low = [k + SIDE - half if k & half else k for k in range(SIDE)]
            high = [k + SIDE if k & half else k + half for k in range(SIDE)]
            one, other = rows[first], rows[second]
            rows[first] = shuffled(point, one, other, type, low, depth)
            rows[second] = shuffled(point, one, other, type, high, depth)
        half *= 2
    slot = text.allocate(f"[{SIDE} x {vector}]")
    for number, row in enumerate(rows):
        at = text.value(f"getelementptr {vector}, ptr {slot}, i64 {number}")
        text.line(f"store {vector} {row}, ptr {at}")
    return slot
