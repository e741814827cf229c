"""Micro-kernels of matrix products out of line: rows of tiles of sums, for operands of any sizes and strides.

A tile is a few hundred instructions, and the most of what a product's code would be. Products of other sizes differ in
numbers alone, so these come from memory, and LLVM makes one piece of code for all products of a process (and keeps
it for others) where there were some for each. Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating
BLAS Functionality", section 4, has the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.backends.llvm.processor import CODE_ATTRIBUTES
from spmd.backends.llvm.text import FunctionText
from spmd.backends.llvm.tile_sums import Numbers, TileSums
from spmd.backends.llvm.writer import Callee

#: Rows whose addresses are made of one: the processor adds one stride, or two of them, by itself.
_NEAR = 3


@dataclass(frozen=True)
class MicroKernel(Callee, Numbers):
    """Tiles one below another, each of `rows` rows of vectors of which as many lanes are `valid`.

    `loops` are the dimensions that are summed over. `is_packed`: the right operand has numbers for all lanes.
    """

    type: str
    bits: int
    rows: int
    valid: tuple[int, ...]
    loops: int
    is_packed: bool

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.tiles.float.12x16x16.1.packed`."""
        shape = "x".join(map(str, (self.rows, *self.valid)))
        return f"spmd.tiles.{self.type}.{shape}.{self.loops}{'.packed' if self.is_packed else ''}"

    @property
    def declaration(self) -> str:
        return f"declare void @{self.name}(ptr, ptr, ptr, ptr) nounwind"

    def call(self, text: FunctionText, addresses: Sequence[str], sizes: Sizes) -> None:
        """Writes a call for the tiles that begin at `addresses`: of left operand, right operand and result."""
        text.callees[self.name] = self
        pointers = ", ".join(f"ptr {address}" for address in addresses)
        text.line(f"call void @{self.name}({pointers}, ptr {sizes.constant(text)})")


@dataclass(frozen=True)
class Sizes:
    """What a micro-kernel is told: how many `tiles` there are; bytes from row to row of left operand and result; and
    of each loop its turns, and the bytes of a turn in left operand and right operand."""

    tiles: int
    left_row: int
    result_row: int
    loops: tuple[tuple[int, int, int], ...]

    def constant(self, text: FunctionText) -> str:
        """The name of a constant of the module that has them all."""
        numbers = [self.tiles, self.left_row, self.result_row, *(number for loop in self.loops for number in loop)]
        name = f"@spmd.sizes.{'.'.join(map(str, numbers))}"
        listed = ", ".join(f"i64 {number}" for number in numbers)
        text.declarations[f"{name} = private unnamed_addr constant [{len(numbers)} x i64] [{listed}]"] = None
        return name


def kernel_text(kernel: MicroKernel, linkage: str = "") -> str:
    """The definition of `kernel` in LLVM's text."""
    text = FunctionText()
    loads: list[str] = []
    for place, name in enumerate(_names(kernel)):
        loads += [f"  {name}.at = getelementptr i64, ptr %sizes, i64 {place}", f"  {name} = load i64, ptr {name}.at"]
    _Kernel(text, kernel).write()
    text.line("ret void")
    parameters = "ptr readonly %left, ptr readonly %right, ptr %result, ptr noalias readonly %sizes"
    head = f"define {linkage} void @{kernel.name}({parameters}) nounwind {CODE_ATTRIBUTES} {{"
    return "\n".join([head, text.body([*loads, "  br label %entry"]), "}\n"])


def _names(kernel: MicroKernel) -> list[str]:
    loops = [f"%{name}{loop}" for loop in range(kernel.loops) for name in ("turns", "left", "right")]
    return ["%tiles", "%left.row", "%result.row", *loops]


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
        sums = TileSums(text, kernel, kernel.rows, kernel.valid)
        self._contract(0, left, "%right", sums)
        rows = [result]
        for _ in range(kernel.rows - 1):
            rows.append(self._moved(rows[-1], "%result.row"))
        sums.put(rows)
        text.close_loop("%tiles")

    def _contract(self, loop: int, left: str, right: str, sums: TileSums) -> None:
        """The loops from number `loop` on, from the addresses `left` and `right` on."""
        if loop == self.kernel.loops:
            sums.add(self._column(left), right, whole=self.kernel.is_packed)
            return
        turn, _ = self.text.open_loop()
        left = self._moved(left, self.text.value(f"mul i64 {turn}, %left{loop}"))
        right = self._moved(right, self.text.value(f"mul i64 {turn}, %right{loop}"))
        self._contract(loop + 1, left, right, sums)
        self.text.close_loop(f"%turns{loop}")

    def _column(self, first: str) -> list[str]:
        """The addresses of one number of each row of the left operand."""
        addresses = [first]
        while len(addresses) < self.kernel.rows:
            near = len(addresses) % _NEAR
            base, rows = (addresses[-_NEAR], _NEAR) if not near else (addresses[-near], near)
            addresses.append(self._moved(base, self._rows[rows - 1]))
        return addresses

    def _moved(self, address: str, offset: str) -> str:
        return self.text.value(f"getelementptr i8, ptr {address}, i64 {offset}")
