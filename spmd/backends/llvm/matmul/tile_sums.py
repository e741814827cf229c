"""Tiles of sums of products: some rows by a few vectors, which stay in registers while the products are added.

Sums of floats are taken in blocks: of 32 products along the innermost dimension that is summed over, of 32 blocks, and
so on, each level a total of its own. A float's error then grows with the root of the length of a block, and not of the
whole sum, which added up in one place loses a thousandth of itself over a million of products. The blocks follow from
the turns of the innermost loop alone, whichever code does them. N. J. Higham, "The Accuracy of Floating Point
Summation", SIAM J. Sci. Comput. 14 (1993), has the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit.processor import host
from spmd.backends.llvm.loops.strides import first_lanes

#: The instruction that multiplies 16-bit numbers and adds neighbouring products, by how many sums it gives.
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}

#: Parts of a block: products of the first level, blocks of the level before of the others.
_BLOCK = 32
#: Levels of blocks.
_LEVELS = 3


class Numbers:
    """What vectors are made of: numbers of LLVM's `type`, `bits` wide; those of i32 that are `paired` are two of 16."""

    type: str
    bits: int
    paired: bool = False

    @property
    def kind(self) -> str:
        """f for floats, i for integers."""
        return "i" if self.type.startswith("i") else "f"

    @property
    def lanes(self) -> int:
        """Numbers of one vector register."""
        return host().vector_bits // self.bits

    @property
    def vector(self) -> str:
        """LLVM's type of a vector."""
        return f"<{self.lanes} x {self.type}>"

    def load(self, text: FunctionText, address: str, count: int) -> str:
        """The first `count` numbers from `address` on, and zeros."""
        align = self.bits // 8
        if count == self.lanes:
            return text.value(f"load {self.vector}, ptr {address}, align {align}")
        return text.value(
            f"call {self.vector} @llvm.masked.load.v{self.lanes}{self.kind}{self.bits}.p0("
            f"ptr align {align} {address}, <{self.lanes} x i1> {first_lanes(self.lanes, count)}, "
            f"{self.vector} zeroinitializer)"
        )

    def store(self, text: FunctionText, value: str, address: str, count: int) -> None:
        """Writes the first `count` numbers of a vector from `address` on."""
        align = self.bits // 8
        if count == self.lanes:
            text.line(f"store {self.vector} {value}, ptr {address}, align {align}")
            return
        name = f"@llvm.masked.store.v{self.lanes}{self.kind}{self.bits}.p0"
        mask = f"<{self.lanes} x i1> {first_lanes(self.lanes, count)}"
        text.line(f"call void {name}({self.vector} {value}, ptr align {align} {address}, {mask})")


class TileSums:
    """The sums of a tile of `rows` rows, of each of whose vectors as many lanes are `valid`; zero at first."""

    def __init__(self, text: FunctionText, numbers: Numbers, rows: int, valid: Sequence[int]) -> None:
        self.text = text
        self.numbers = numbers
        self.valid = valid
        self._rows = rows
        self._slots = self._zeros()
        #: The totals of levels of blocks, and the i1 that says whether there are such (none: there are).
        self._totals: list[tuple[list[list[str]], str | None]] = []

    def _zeros(self) -> list[list[str]]:
        """A slot of zeros for each vector of each row."""
        slots = [[self.text.allocate(self.numbers.vector) for _ in self.valid] for _ in range(self._rows)]
        for slot in (slot for row in slots for slot in row):
            self.text.line(f"store {self.numbers.vector} zeroinitializer, ptr {slot}")
        return slots

    def open_blocks(self, turns: str) -> None:
        """Makes room for the totals of blocks of an innermost loop of so many `turns`, a number or an i64's name.

        Called before any loop of the sums is opened.
        """
        if self.numbers.kind != "f":
            return
        for level in range(1, _LEVELS + 1):
            if not turns.isdecimal():
                there = self.text.value(f"icmp uge i64 {turns}, {_BLOCK**level}")
                self._totals.append((self._zeros(), there))
            elif int(turns) >= _BLOCK**level:
                self._totals.append((self._zeros(), None))

    def write_blocks(self, turns: str, step: Callable[[str], None]) -> None:
        """Writes the innermost loop, of so many `turns` as `open_blocks` was told; `step` writes one."""
        self._write_level(len(self._totals), "0", turns, step)

    def _write_level(self, level: int, first: str, stop: str, step: Callable[[str], None]) -> None:
        text = self.text
        number, _ = text.open_loop()
        if not level:
            step(number)
            text.close_loop(stop, 1, first)
            return
        size = _BLOCK**level
        end = text.value(f"add i64 {number}, {size}")
        self._write_level(level - 1, number, text.value(f"call i64 @llvm.umin.i64(i64 {end}, i64 {stop})"), step)
        self._carry(level)
        text.close_loop(stop, size, first)

    def _carry(self, level: int) -> None:
        """Adds what the level before holds to the total of `level`, where there is one, and begins that anew."""
        text, (totals, there) = self.text, self._totals[level - 1]
        parts = self._totals[level - 2][0] if level > 1 else self._slots
        if there is None:
            self._move(parts, totals)
            return
        with text.where(there):
            self._move(parts, totals)

    def _move(self, parts: list[list[str]], totals: list[list[str]]) -> None:
        text, vector = self.text, self.numbers.vector
        for part, total in zip(chain(*parts), chain(*totals), strict=True):
            one, other = (text.value(f"load {vector}, ptr {slot}") for slot in (total, part))
            text.line(f"store {vector} {text.value(f'fadd {vector} {one}, {other}')}, ptr {total}")
            text.line(f"store {vector} zeroinitializer, ptr {part}")

    def add(self, left: Sequence[str], right: str, *, whole: bool) -> None:
        """Adds the products of the numbers at the addresses `left`, one a row, and the neighbours from `right` on.

        `whole`: there are numbers for all lanes.
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
        """Writes the sums to the addresses `rows`, one a row."""
        for number, (slots, row) in enumerate(zip(self._slots, rows, strict=True)):
            for place, (slot, count) in enumerate(zip(slots, self.valid, strict=True)):
                value = self.text.value(f"load {self.numbers.vector}, ptr {slot}")
                for totals, there in self._totals:
                    value = self._with_total(value, totals[number][place], there)
                self.numbers.store(self.text, value, self._moved(row, place), count)

    def _with_total(self, value: str, slot: str, there: str | None) -> str:
        """What is left of a level added to the total of the next one, if there is one."""
        text, vector = self.text, self.numbers.vector
        whole = text.value(f"fadd {vector} {text.value(f'load {vector}, ptr {slot}')}, {value}")
        return whole if there is None else text.value(f"select i1 {there}, {vector} {whole}, {vector} {value}")

    def _moved(self, address: str, vectors: int) -> str:
        if not vectors:
            return address
        count = vectors * self.numbers.lanes
        return self.text.value(f"getelementptr {self.numbers.type}, ptr {address}, i64 {count}")

    def _multiplied(self, left: str, right: str, total: str) -> str:
        """The vector of products added to `total`: of floats in one rounding, of pairs the sum of both."""
        text, lanes, vector = self.text, self.numbers.lanes, self.numbers.vector
        if self.numbers.kind == "f":
            name = f"@llvm.fma.v{lanes}f{self.numbers.bits}"
            return text.value(f"call {vector} {name}({vector} {left}, {vector} {right}, {vector} {total})")
        if not self.numbers.paired:
            return text.value(f"add {vector} {total}, {text.value(f'mul {vector} {left}, {right}')}")
        pairs = f"<{2 * lanes} x i16>"
        one, other = (text.value(f"bitcast {vector} {name} to {pairs}") for name in (left, right))
        sums = text.value(f"call {vector} @{_PAIRS[lanes]}({pairs} {one}, {pairs} {other})")
        return text.value(f"add {vector} {total}, {sums}")
