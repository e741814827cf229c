"""Micro-kernels of matrix products out of line: tiles of sums, and what lays operands out for them, of any sizes.

A tile is a few hundred instructions, and the most of what a product's code would be. Products of other sizes differ in
numbers alone, so these come from memory, and LLVM makes one piece of code for all products of a process (and keeps
it for others) where there were some for each. Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating
BLAS Functionality", section 4, has the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.backends.llvm.emit.outlined import OutOfLine, Parameter, body_of
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.matmul.tile_sums import Block, Numbers, TileSums, Turns
from spmd.support.processor import Processor

#: Rows whose addresses are made of one: the processor adds one stride, or two of them, by itself.
_NEAR = 3


@dataclass(frozen=True)
class MicroKernel(OutOfLine, Numbers):
    """Tiles one below another, each of `rows` rows of vectors of which as many lanes are `valid`.

    `loops` are the dimensions that are summed over, `blocked` those of them that have blocks, level by level.
    `is_packed`: the right operand has numbers for all lanes.
    """

    type: str
    bits: int
    processor: Processor
    rows: int
    valid: tuple[int, ...]
    loops: int
    blocked: tuple[int, ...]
    is_packed: bool
    paired: bool = False

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.tiles.float.12x16x16.1.packed`."""
        shape = "x".join(map(str, (self.rows, *self.valid)))
        packed, paired = ".packed" * self.is_packed, ".pairs" * self.paired
        blocks = "".join(f".in{loop}" for loop in self.blocked)
        return f"spmd.tiles.{self.type}.{shape}.{self.loops}{blocks}{paired}{packed}"

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Left operand, right operand and result; and the `Sizes`."""
        operands = (Parameter("ptr", f"%{name}", "readonly") for name in ("left", "right"))
        return (*operands, Parameter("ptr", "%result"), Parameter("ptr", "%sizes", "noalias readonly"))

    def call(self, text: FunctionText, addresses: Sequence[str], sizes: Sizes) -> None:
        """Emit a call for the tiles that begin at `addresses`: of left operand, right operand and result."""
        self.write_call(text, [*addresses, sizes.constant(text)])

    def body(self) -> str:
        """Tile by tile."""
        text = FunctionText()
        _Kernel(text, self).write()
        return body_of(text, _names(self))


@dataclass(frozen=True)
class Packing(OutOfLine, Numbers):
    """Blocks of `width` columns of a matrix laid out row by row; in all rows as many lanes of vectors are `valid`."""

    type: str
    bits: int
    processor: Processor
    width: int
    valid: tuple[int, ...]

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.pack.float.32.16x16`."""
        return f"spmd.pack.{self.type}.{self.width}.{'x'.join(map(str, self.valid))}"

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Where columns are read and go; blocks, rows, and the bytes from row to row of what is read."""
        numbers = (Parameter("i64", f"%{name}") for name in ("blocks", "rows", "stride"))
        return (Parameter("ptr", "%source", "readonly"), Parameter("ptr", "%target"), *numbers)

    def body(self) -> str:
        """Block by block, and row by row."""
        text = FunctionText()
        bytes_of_row = self.width * self.bits // 8
        block, _ = text.open_loop()
        first = text.value(f"getelementptr i8, ptr %source, i64 {text.value(f'mul i64 {block}, {bytes_of_row}')}")
        done = text.value(f"mul i64 {block}, %rows")
        row, _ = text.open_loop()
        source = text.value(f"getelementptr i8, ptr {first}, i64 {text.value(f'mul i64 {row}, %stride')}")
        place = text.value(f"mul i64 {text.value(f'add i64 {done}, {row}')}, {bytes_of_row}")
        target = text.value(f"getelementptr i8, ptr %target, i64 {place}")
        for number, count in enumerate(self.valid):
            offset = number * self.lanes * self.bits // 8
            here, there = (text.value(f"getelementptr i8, ptr {at}, i64 {offset}") for at in (source, target))
            self.store(text, self.load(text, here, count), there, self.lanes)
        text.close_loop("%rows")
        text.close_loop("%blocks")
        return body_of(text)


@dataclass(frozen=True)
class Sizes:
    """What a micro-kernel is told: how many `tiles` there are; bytes from row to row of left operand and result; and
    of each loop its turns, and the bytes of a turn in left operand and right operand; and the `blocks` of sums."""

    tiles: int
    left_row: int
    result_row: int
    loops: tuple[tuple[int, int, int], ...]
    blocks: tuple[Block, ...]

    def constant(self, text: FunctionText) -> str:
        """Return the name of a constant of the module that has them all."""
        loops = (number for loop in self.loops for number in loop)
        return text.numbers([self.tiles, self.left_row, self.result_row, *loops, *(each.turns for each in self.blocks)])


def _names(kernel: MicroKernel) -> list[str]:
    loops = [f"%{name}{loop}" for loop in range(kernel.loops) for name in ("turns", "left", "right")]
    blocks = [f"%block{level}" for level in range(len(kernel.blocked))]
    return ["%tiles", "%left.row", "%result.row", *loops, *blocks]


class _Kernel:
    """Writes the body of a micro-kernel."""

    def __init__(self, text: FunctionText, kernel: MicroKernel) -> None:
        self.text = text
        self.kernel = kernel
        #: Bytes of one row, two rows, and so on, of the left operand; those of a tile, and of the result's.
        self._rows = ["%left.row", *(text.value(f"mul i64 %left.row, {n}") for n in range(2, _NEAR + 1))]
        self._tiles = [text.value(f"mul i64 {row}, {kernel.rows}") for row in ("%left.row", "%result.row")]

    def write(self) -> None:
        text, kernel = self.text, self.kernel
        tile, _ = text.open_loop()
        left, result = (
            self._moved(start, text.value(f"mul i64 {tile}, {size}"))
            for start, size in zip(("%left", "%result"), self._tiles, strict=True)
        )
        sums = TileSums(text, kernel, kernel.rows, kernel.valid, [self._turns(loop) for loop in range(kernel.loops)])

        def move(loop: int, turn: str, left: str, right: str) -> tuple[str, str]:
            return (
                self._moved(left, text.value(f"mul i64 {turn}, %left{loop}")),
                self._moved(right, text.value(f"mul i64 {turn}, %right{loop}")),
            )

        def step(left: str, right: str) -> None:
            sums.add(self._column(left), right, whole=kernel.is_packed)

        sums.write_loops(left, "%right", move, step)
        rows = [result]
        for _ in range(kernel.rows - 1):
            rows.append(self._moved(rows[-1], "%result.row"))
        sums.put(rows)
        text.close_loop("%tiles")

    def _turns(self, loop: int) -> Turns:
        levels = [level for level, blocked in enumerate(self.kernel.blocked) if blocked == loop]
        return Turns(f"%turns{loop}", tuple(f"%block{level}" for level in reversed(levels)))

    def _column(self, first: str) -> list[str]:
        """Return the addresses of one number of each row of the left operand."""
        addresses = [first]
        while len(addresses) < self.kernel.rows:
            near = len(addresses) % _NEAR
            base, rows = (addresses[-_NEAR], _NEAR) if not near else (addresses[-near], near)
            addresses.append(self._moved(base, self._rows[rows - 1]))
        return addresses

    def _moved(self, address: str, offset: str) -> str:
        return self.text.value(f"getelementptr i8, ptr {address}, i64 {offset}")
