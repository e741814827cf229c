"""Loops over transposed operands: square blocks are transposed in registers.

If lanes are neighbours of a result, an operand with another memory order has a large lane stride. Both loops are tiled
by the number of lanes; each block of the operand is loaded row by row, transposed by shuffles and stored to the stack,
and the points of the tile load whole vectors from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spmd.analysis.affine import Variable
from spmd.analysis.scalar.expression import MachineType
from spmd.backends.llvm.emit.outlined import IrParameter, OutlinedFunction
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import InstructionBuilder, llvm_type
from spmd.backends.llvm.loops.element_emitter import ElementEmitter
from spmd.backends.llvm.loops.loops import LoopEmitter
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.compiler.schedule.lanes import SIDE
from spmd.compiler.schedule.nest import Load, Stage


def write_transposed(
    loops: LoopEmitter, stage: Stage, transposed: Variable, loads: Sequence[Load], at_point: Callable[[], None]
) -> None:
    """Emit the loops of `stage` around `at_point`, tiled in `transposed` and the lane loop, with `loads` transposed."""
    point = loops.point
    lane = point.lane
    assert lane is not None
    others = [variable for variable in stage.parallel if variable not in (transposed, lane)]
    extent, lanes = point.nest.extents[transposed], point.nest.extents[lane]

    def block() -> None:
        """Emit all lanes of a tile row."""
        if lanes >= SIDE:
            loops.loop(lane, lanes - lanes % SIDE, SIDE, corner)
        if lanes % SIDE:
            loops.rest(lane, SIDE, rows)

    def corner() -> None:
        start, _ = point.variables[transposed]
        slots = [_load_tile(point, load, lane, transposed) for load in loads]
        row, depth = point.text.open_loop()
        point.variables[transposed] = (point.text.value(f"add nuw nsw i64 {start}, {row}"), depth)
        point.transposed = {load: (slot, row) for load, slot in zip(loads, slots, strict=True)}
        at_point()
        point.transposed = {}
        point.text.close_loop(SIDE)
        point.variables[transposed] = (start, depth - 1)

    def rows() -> None:
        """Emit the remainder of the lanes, row by row."""
        start, _ = point.variables[transposed]
        row, depth = point.text.open_loop()
        point.variables[transposed] = (point.text.value(f"add nuw nsw i64 {start}, {row}"), depth)
        at_point()
        point.text.close_loop(SIDE)
        point.variables[transposed] = (start, depth - 1)

    def inside() -> None:
        loops.loop(transposed, extent - extent % SIDE, SIDE, block)
        if extent % SIDE:
            loops.rest(transposed, SIDE, left_over)

    def left_over() -> None:
        """Emit the remainder of the rows."""
        start, _ = point.variables[transposed]
        row, depth = point.text.open_loop()
        point.variables[transposed] = (point.text.value(f"add nuw nsw i64 {start}, {row}"), depth)
        loops.nested([lane], at_point, unrolled=False)
        point.text.close_loop(extent % SIDE)

    loops.nested(others, inside, unrolled=False)


def _load_tile(point: ElementEmitter, load: Load, lane: Variable, transposed: Variable) -> str:
    """Return a slot with the transposed block of `load` at the current tile: one vector per iteration
    of `transposed`.
    """
    return load_transposed(point, load, lane, SIDE, SIDE)


def load_transposed(point: ElementEmitter, load: Load, lane: Variable, rows: int, columns: int) -> str:
    """Return a slot with the transpose of the block that `load` reads in `rows` iterations of `lane`: one vector per
    column.
    """
    text, item = point.text, load.type.bits // 8
    start, pointer = point.start_of(load.address), point.pointer(load.value)
    address = text.value(f"getelementptr {llvm_type(load.type, 1)}, ptr {pointer}, i64 {start.name}")
    slot = text.allocate(f"[{columns} x {llvm_type(load.type, SIDE)}]")
    transpose_block(text, load.type, (address, load.address.coefficient(lane) * item, rows), slot, columns)
    return slot


def transpose_block(
    text: FunctionText, type: MachineType, source: tuple[str, int, int], target: str, columns: int = SIDE
) -> None:
    """Emit the transpose of a block of `SIDE` rows: its first `columns` columns are stored to `target`, contiguously.

    `source`: the address of the first row, the row stride in bytes, and the number of rows; missing rows repeat the
    last. Both may be the same memory.
    """
    block, (address, step, rows) = TransposedBlock(type.bits, columns), source
    block.write_call(text, [address, str(step), str(rows - 1), target], is_long=False)


@dataclass(frozen=True)
class TransposedBlock(OutlinedFunction):
    """Transposes a block of `SIDE` rows and `columns` columns, of elements of `bits`."""

    bits: int
    columns: int

    @property
    def parameters(self) -> Sequence[IrParameter]:
        """The address of the first row, the row stride in bytes, the index of the last row; the destination."""
        return (
            IrParameter("ptr", "%from"),
            IrParameter("i64", "%step"),
            IrParameter("i64", "%last"),
            IrParameter("ptr", "%to"),
        )

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.transpose.i32.x16`."""
        return f"spmd.transpose.i{self.bits}.x{self.columns}"

    def body(self) -> str:
        """Return a body that loads all rows and transposes them by shuffles."""
        writer, vector, align = InstructionBuilder(), f"<{SIDE} x i{self.bits}>", self.bits // 8
        name = f"llvm.masked.load.v{SIDE}i{self.bits}.p0"
        among = f"<{SIDE} x i1> {first_lanes(SIDE, self.columns)}, {vector} zeroinitializer"
        rows = []
        for number in range(SIDE):
            row = writer.emit(f"call i64 @llvm.umin.i64(i64 {number}, i64 %last)")
            address = writer.emit(f"getelementptr i8, ptr %from, i64 {writer.emit(f'mul i64 %step, {row}')}")
            rows.append(writer.emit(f"call {vector} @{name}(ptr align {align} {address}, {among})"))
        half = 1
        while half < SIDE:
            low = [k + SIDE - half if k & half else k for k in range(SIDE)]
            high = [k + SIDE if k & half else k + half for k in range(SIDE)]
            for first in (number for number in range(SIDE) if not number & half):
                both = f"{vector} {rows[first]}, {vector} {rows[first | half]}"
                rows[first], rows[first | half] = (
                    writer.emit(f"shufflevector {both}, <{SIDE} x i32> <{', '.join(f'i32 {k}' for k in lanes)}>")
                    for lanes in (low, high)
                )
            half *= 2
        for number, row in enumerate(rows[: self.columns]):
            address = writer.emit(f"getelementptr {vector}, ptr %to, i64 {number}")
            writer.do(f"store {vector} {row}, ptr {address}, align {align}")
        return "\n".join([*writer.lines, "  ret void"])
