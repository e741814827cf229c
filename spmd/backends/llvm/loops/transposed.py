"""Loops over operands that lie transposed in memory: blocks of them are turned in registers.

Where lanes stand for neighbours of a result, an operand that is read along another dimension has its neighbours there.
Both loops go in blocks of as many turns as there are lanes; each block of the operand is read row by row, transposed
by shuffles and put down, and the points inside read whole vectors of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spmd.analysis.affine import Variable
from spmd.analysis.scalar.expression import MachineType
from spmd.backends.llvm.emit.outlined import OutOfLine, Parameter
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import Writer, llvm_type
from spmd.backends.llvm.loops.element_emitter import PointWriter
from spmd.backends.llvm.loops.loops import LoopWriter
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.compiler.schedule.lanes import SIDE, contiguous_loop
from spmd.compiler.schedule.nest import Load, Stage


def write_turned(loops: LoopWriter, stage: Stage, turned: Variable, at_point: Callable[[], None]) -> None:
    """The loops of `stage` around what `at_point` writes, in blocks of `turned` and the lane loop."""
    point = loops.point
    lane = point.lane
    assert lane is not None
    others = [variable for variable in stage.parallel if variable not in (turned, lane)]
    extent, lanes = point.nest.extents[turned], point.nest.extents[lane]
    loads = [load for load in stage.loads() if contiguous_loop(point.nest, load, lane) == turned]

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
        point.turned = {load: (slot, row) for load, slot in zip(loads, slots, strict=True)}
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
    """Return a slot with the block of `load` that begins where lane loop and turned loop are: a vector for each turn of
    the latter.
    """
    return turned_block(point, load, lane, SIDE, SIDE)


def turned_block(point: PointWriter, load: Load, lane: Variable, rows: int, columns: int) -> str:
    """Return a slot with a vector for each of the `columns` of what `load` reads in `rows` rows, which are turns of
    `lane`.
    """
    text, item = point.text, load.type.bits // 8
    start, pointer = point.start_of(load.address), point.pointer(load.value)
    address = text.value(f"getelementptr {llvm_type(load.type, 1)}, ptr {pointer}, i64 {start.name}")
    slot = text.allocate(f"[{columns} x {llvm_type(load.type, SIDE)}]")
    turn_block(text, load.type, (address, load.address.coefficient(lane) * item, rows), slot, columns)
    return slot


def turn_block(
    text: FunctionText, type: MachineType, source: tuple[str, int, int], target: str, columns: int = SIDE
) -> None:
    """Emit the first `columns` of a block of `SIDE` rows to `target`, one after another.

    `source`: the address of the first row, the bytes from one to the next, and how many there are; the last stands for
    those that are not. Both may be the same memory.
    """
    block, (address, step, rows) = TurnedBlock(type.bits, columns), source
    block.write_call(text, [address, str(step), str(rows - 1), target], is_long=False)


@dataclass(frozen=True)
class TurnedBlock(OutOfLine):
    """Transposes a block of `SIDE` rows of so many `columns`, of elements of so many bits."""

    bits: int
    columns: int

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Where the first row is, the bytes from one to the next, and how many follow it; where columns go."""
        return (
            Parameter("ptr", "%from"),
            Parameter("i64", "%step"),
            Parameter("i64", "%last"),
            Parameter("ptr", "%to"),
        )

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.turn.i32.x16`."""
        return f"spmd.turn.i{self.bits}.x{self.columns}"

    def body(self) -> str:
        """Return all rows are read, and shuffled until lanes are rows."""
        writer, vector, align = Writer(), f"<{SIDE} x i{self.bits}>", self.bits // 8
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
