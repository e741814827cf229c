"""Register tiles: sums of products for some rows by a few vectors, kept in registers over the contraction.

Long sums of floats are blocked: by 128 products or a few more, and longer ones by 2048, each level with totals of its
own. The error then grows with the block length instead of the whole length; a plain sum of a million products has
relative errors of a thousandth. Blocks depend on the loop sizes alone. Bounds: N. J. Higham, "The Accuracy of Floating
Point Summation", SIAM J. Sci. Comput. 14 (1993); BLAS libraries use blocks of a few hundred products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import prod
from typing import NamedTuple

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.support.processor import Processor

#: The multiply-add of 16-bit pairs, by number of sums.
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}

#: Products per block by level, and least blocks of a sum that is blocked at a level.
_BLOCKS, _LEAST = (128, 2048), 4


class SumBlock(NamedTuple):
    """Blocks of one level: of `turns` iterations of loop number `loop`."""

    loop: int
    iterations: int


def blocks_of(sizes: Sequence[int]) -> tuple[SumBlock, ...]:
    """Return the blocks, level by level, of sums over loops of these sizes, innermost last."""
    blocks: list[SumBlock] = []
    for block in _BLOCKS:
        if prod(sizes) >= _LEAST * block:
            loop = next(loop for loop in reversed(range(len(sizes))) if prod(sizes[loop:]) >= block)
            blocks.append(SumBlock(loop, -(-block // prod(sizes[loop + 1 :]))))
    return tuple(blocks)


class LoopBlocks(NamedTuple):
    """A contraction loop: its trip count, and the iterations of its blocks, largest first."""

    stop: str
    blocks: tuple[str, ...]


Move = Callable[[int, str, str, str], tuple[str, str]]


class Numbers:
    """A vector's elements: of LLVM `type`, `bits` wide; `paired` i32 hold two i16."""

    type: str
    bits: int
    processor: Processor
    paired: bool = False

    @property
    def kind(self) -> str:
        """ "f" for floats, "i" for integers."""
        return "i" if self.type.startswith("i") else "f"

    @property
    def lanes(self) -> int:
        """Elements per vector register."""
        return self.processor.vector_bits // self.bits

    @property
    def vector(self) -> str:
        """The LLVM vector type."""
        return f"<{self.lanes} x {self.type}>"

    def load(self, text: FunctionText, address: str, count: int) -> str:
        """Return the first `count` elements at `address`, padded with zeros."""
        align = self.bits // 8
        if count == self.lanes:
            return text.value(f"load {self.vector}, ptr {address}, align {align}")
        return text.value(
            f"call {self.vector} @llvm.masked.load.v{self.lanes}{self.kind}{self.bits}.p0("
            f"ptr align {align} {address}, <{self.lanes} x i1> {first_lanes(self.lanes, count)}, "
            f"{self.vector} zeroinitializer)"
        )

    def store(self, text: FunctionText, value: str, address: str, count: int) -> None:
        """Emit a store of the first `count` elements of a vector to `address`."""
        align = self.bits // 8
        if count == self.lanes:
            text.line(f"store {self.vector} {value}, ptr {address}, align {align}")
            return
        name = f"@llvm.masked.store.v{self.lanes}{self.kind}{self.bits}.p0"
        mask = f"<{self.lanes} x i1> {first_lanes(self.lanes, count)}"
        text.line(f"call void {name}({self.vector} {value}, ptr align {align} {address}, {mask})")


class TileSums:
    """The sums of a tile of `rows` rows of vectors with `valid` lanes; initially zero."""

    def __init__(
        self, text: FunctionText, numbers: Numbers, rows: int, valid: Sequence[int], loops: Sequence[LoopBlocks]
    ) -> None:
        self.text = text
        self.numbers = numbers
        self.valid = valid
        self._loops = loops
        #: The sums, and the totals of each level of blocks: a slot per vector of each row.
        levels = 1 + sum(len(loop.blocks) for loop in loops)
        self._slots, *self._totals = (self._zeros(rows) for _ in range(levels))

    def _zeros(self, rows: int) -> list[list[str]]:
        slots = [[self.text.allocate(self.numbers.vector) for _ in self.valid] for _ in range(rows)]
        for slot in chain(*slots):
            self.text.line(f"store {self.numbers.vector} zeroinitializer, ptr {slot}")
        return slots

    def write_loops(self, left: str, right: str, move: Move, step: Callable[[str, str], None]) -> None:
        """Emit the loops over offsets in the operands, from `left` and `right` on.

        `move` returns both offsets at an iteration of a loop, `step` emits the innermost body.
        """
        self._write_loop(0, (left, right), len(self._totals), move, step)

    def _write_loop(
        self, number: int, places: tuple[str, str], level: int, move: Move, step: Callable[[str, str], None]
    ) -> None:
        """Emit the loops from `number` on; `level` is that of the innermost enclosing block."""
        if number == len(self._loops):
            step(*places)
            return
        last, blocks = self._loops[number]

        def write(first: str, stop: str, blocks: Sequence[str], level: int) -> None:
            iteration, _ = self.text.open_loop()
            if blocks:
                end = self.text.value(f"add i64 {iteration}, {blocks[0]}")
                end = self.text.value(f"call i64 @llvm.umin.i64(i64 {end}, i64 {stop})")
                write(iteration, end, blocks[1:], level - 1)
                self._carry(level)
            else:
                self._write_loop(number + 1, move(number, iteration, *places), level, move, step)
            self.text.close_loop(stop, blocks[0] if blocks else 1, first)

        write("0", last, blocks, level)

    def _carry(self, level: int) -> None:
        """Add the sums of the level below to the totals of `level`, and clear them."""
        text, vector = self.text, self.numbers.vector
        parts = self._totals[level - 2] if level > 1 else self._slots
        for part, total in zip(chain(*parts), chain(*self._totals[level - 1]), strict=True):
            one, other = (text.value(f"load {vector}, ptr {slot}") for slot in (total, part))
            text.line(f"store {vector} {text.value(f'fadd {vector} {one}, {other}')}, ptr {total}")
            text.line(f"store {vector} zeroinitializer, ptr {part}")

    def add(self, left: Sequence[str], right: str, *, whole: bool) -> None:
        """Add the products of the elements at the addresses `left`, one per row, and the row of vectors at `right`.

        `whole`: all lanes can be loaded.
        """
        text, numbers = self.text, self.numbers
        lanes, vector = numbers.lanes, numbers.vector
        stretches = [
            numbers.load(text, self._moved(right, place), lanes if whole else count)
            for place, count in enumerate(self.valid)
        ]
        for slots, address in zip(self._slots, left, strict=True):
            one = text.value(f"load {numbers.type}, ptr {address}")
            single = text.value(f"insertelement {vector} poison, {numbers.type} {one}, i64 0")
            places = f"<{lanes} x i32> zeroinitializer"
            all_lanes = text.value(f"shufflevector {vector} {single}, {vector} poison, {places}")
            for slot, stretch in zip(slots, stretches, strict=True):
                before = text.value(f"load {vector}, ptr {slot}")
                text.line(f"store {vector} {self._multiplied(all_lanes, stretch, before)}, ptr {slot}")

    def put(self, rows: Sequence[str]) -> None:
        """Emit stores of the sums to the addresses `rows`, one per row."""
        totals = self._totals[-1] if self._totals else self._slots
        for slots, row in zip(totals, rows, strict=True):
            for place, (slot, count) in enumerate(zip(slots, self.valid, strict=True)):
                value = self.text.value(f"load {self.numbers.vector}, ptr {slot}")
                self.numbers.store(self.text, value, self._moved(row, place), count)

    def _moved(self, address: str, vectors: int) -> str:
        if not vectors:
            return address
        count = vectors * self.numbers.lanes
        return self.text.value(f"getelementptr {self.numbers.type}, ptr {address}, i64 {count}")

    def _multiplied(self, left: str, right: str, total: str) -> str:
        """Return the vector of products added to `total`: by fma for floats, by pairs for paired integers."""
        text, lanes, vector = self.text, self.numbers.lanes, self.numbers.vector
        if self.numbers.kind == "f":
            name = f"@llvm.fma.v{lanes}f{self.numbers.bits}"
            return text.value(f"call {vector} {name}({vector} {left}, {vector} {right}, {vector} {total})")
        if not self.numbers.paired:
            return text.value(f"add {vector} {total}, {text.value(f'mul {vector} {left}, {right}')}")
        pairs = f"<{2 * lanes} x i16>"
        one, other = (text.value(f"bitcast {vector} {name} to {pairs}") for name in (left, right))
        return text.value(f"add {vector} {total}, {self._sums_of_pairs(pairs, one, other)}")

    def _sums_of_pairs(self, pairs: str, one: str, other: str) -> str:
        """Return the vector of sums of two adjacent products."""
        text, lanes, vector = self.text, self.numbers.lanes, self.numbers.vector
        if self.numbers.processor.architecture == "x86_64":
            return text.value(f"call {vector} @{_PAIRS[lanes]}({pairs} {one}, {pairs} {other})")
        wide = f"<{2 * lanes} x i32>"
        products = text.value(
            f"mul nsw {wide} " + ", ".join([text.value(f"sext {pairs} {each} to {wide}") for each in (one, other)])
        )
        first, second = (
            text.value(f"shufflevector {wide} {products}, {wide} poison, <{lanes} x i32> <{places}>")
            for places in (", ".join(f"i32 {2 * lane + half}" for lane in range(lanes)) for half in (0, 1))
        )
        return text.value(f"add {vector} {first}, {second}")
