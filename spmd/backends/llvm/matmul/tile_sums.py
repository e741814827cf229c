"""Tiles of sums of products: some rows by a few vectors, which stay in registers while the products are added."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit.processor import host
from spmd.backends.llvm.loops.strides import first_lanes

#: The instruction that multiplies 16-bit numbers and adds neighbouring products, by how many sums it gives.
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}


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
        self._slots = [[text.allocate(numbers.vector) for _ in valid] for _ in range(rows)]
        for slot in (slot for row in self._slots for slot in row):
            text.line(f"store {numbers.vector} zeroinitializer, ptr {slot}")

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
        for slots, row in zip(self._slots, rows, strict=True):
            for place, (slot, count) in enumerate(zip(slots, self.valid, strict=True)):
                value = self.text.value(f"load {self.numbers.vector}, ptr {slot}")
                self.numbers.store(self.text, value, self._moved(row, place), count)

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
