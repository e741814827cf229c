"""Outlined micro-kernels of matrix products, and panel packing, for any sizes.

A tile is a few hundred instructions, most of a product's code. Products of other sizes differ in constants only, so
these are passed in memory, and one piece of code is compiled (and cached) for all products. Van Zee and van de Geijn,
"BLIS: A Framework for Rapidly Instantiating BLAS Functionality", section 4, has the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.backends.llvm.emit.outlined import IrParameter, OutlinedFunction, body_of
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.matmul.tile_sums import LoopBlocks, Numbers, SumBlock, TileSums
from spmd.support.processor import Processor

#: Rows addressed from one base register, by scaled multiples of the row stride.
_NEAR = 3


@dataclass(frozen=True)
class MicroKernel(OutlinedFunction, Numbers):
    """Vertically adjacent tiles, each of `rows` rows of vectors with `valid` lanes.

    `loops` is the number of contracted dimensions, `blocked` those of them with blocks, level by level. `is_packed`:
    the right operand is a packed panel, whose lanes can all be loaded.
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
    def parameters(self) -> Sequence[IrParameter]:
        """Left operand, right operand and result; and the `Sizes`."""
        operands = (IrParameter("ptr", f"%{name}", "readonly") for name in ("left", "right"))
        return (*operands, IrParameter("ptr", "%result"), IrParameter("ptr", "%sizes", "noalias readonly"))

    def call(self, text: FunctionText, addresses: Sequence[str], sizes: Sizes) -> None:
        """Emit a call for the tiles at `addresses`: of left operand, right operand and result."""
        self.write_call(text, [*addresses, sizes.constant(text)])

    def body(self) -> str:
        """Return the loop over tiles."""
        text = FunctionText()
        _Kernel(text, self).write()
        return body_of(text, _names(self))


@dataclass(frozen=True)
class Packing(OutlinedFunction, Numbers):
    """Packs column panels of `width` columns, row by row; vectors of a row have `valid` lanes."""

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
    def parameters(self) -> Sequence[IrParameter]:
        """Source and target; number of panels, number of rows, and the row stride of the source in bytes."""
        numbers = (IrParameter("i64", f"%{name}") for name in ("blocks", "rows", "stride"))
        return (IrParameter("ptr", "%source", "readonly"), IrParameter("ptr", "%target"), *numbers)

    def body(self) -> str:
        """Return the loops over panels and rows."""
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
    """Arguments of a micro-kernel: number of `tiles`; row strides in bytes of left operand and result; trip count and
    strides in bytes in both operands of each loop; and the `blocks` of sums.
    """

    tiles: int
    left_row: int
    result_row: int
    loops: tuple[tuple[int, int, int], ...]
    blocks: tuple[SumBlock, ...]

    def constant(self, text: FunctionText) -> str:
        """Return the name of a global constant with the sizes."""
        loops = (number for loop in self.loops for number in loop)
        return text.numbers(
            [self.tiles, self.left_row, self.result_row, *loops, *(each.iterations for each in self.blocks)]
        )


def _names(kernel: MicroKernel) -> list[str]:
    loops = [f"%{name}{loop}" for loop in range(kernel.loops) for name in ("turns", "left", "right")]
    blocks = [f"%block{level}" for level in range(len(kernel.blocked))]
    return ["%tiles", "%left.row", "%result.row", *loops, *blocks]


class _Kernel:
    """Emits the body of a micro-kernel."""

    def __init__(self, text: FunctionText, kernel: MicroKernel) -> None:
        self.text = text
        self.kernel = kernel
        #: Bytes of one, two, ... rows of the left operand; tile strides of left operand and result.
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

        def move(loop: int, iteration: str, left: str, right: str) -> tuple[str, str]:
            return (
                self._moved(left, text.value(f"mul i64 {iteration}, %left{loop}")),
                self._moved(right, text.value(f"mul i64 {iteration}, %right{loop}")),
            )

        def step(left: str, right: str) -> None:
            sums.add(self._column(left), right, whole=kernel.is_packed)

        sums.write_loops(left, "%right", move, step)
        rows = [result]
        for _ in range(kernel.rows - 1):
            rows.append(self._moved(rows[-1], "%result.row"))
        sums.put(rows)
        text.close_loop("%tiles")

    def _turns(self, loop: int) -> LoopBlocks:
        levels = [level for level, blocked in enumerate(self.kernel.blocked) if blocked == loop]
        return LoopBlocks(f"%turns{loop}", tuple(f"%block{level}" for level in reversed(levels)))

    def _column(self, first: str) -> list[str]:
        """Return the addresses of one element in each row of the left operand."""
        addresses = [first]
        while len(addresses) < self.kernel.rows:
            near = len(addresses) % _NEAR
            base, rows = (addresses[-_NEAR], _NEAR) if not near else (addresses[-near], near)
            addresses.append(self._moved(base, self._rows[rows - 1]))
        return addresses

    def _moved(self, address: str, offset: str) -> str:
        return self.text.value(f"getelementptr i8, ptr {address}, i64 {offset}")
