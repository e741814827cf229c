"""Matrix products as loops over tiles: small ones, for which BLAS would spend more time on packing its operands than
on multiplying, and those that convolutions are made of.

A tile of the result, some rows by two vectors, stays in registers while loops go over what is contracted; each step
is a broadcast element of the left operand times a stretch of a row of the right one. Sums run in the order of the
contracted dimensions, in fused steps, whatever the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from spmd.backends.llvm.processor import host
from spmd.backends.llvm.text import FunctionText

#: Multiply-adds up to which a product is written as loops.
LARGEST = 1 << 22
_VECTORS = 2
#: The instruction that multiplies 16-bit numbers and adds neighbouring products, by how many sums it gives.
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}


@dataclass(frozen=True)
class Depth:
    """A dimension that is summed over: its size, and the strides of both operands along it."""

    size: int
    left: int
    right: int


@dataclass(frozen=True)
class Outer:
    """A loop around products of the same right operand: its turns, and the strides of left operand and result."""

    size: int
    left: int
    result: int


@dataclass(frozen=True)
class Tiled:
    """A product of numbers of LLVM's `type`, `bits` wide: `rows` by `columns` sums over the dimensions `depth`.

    The left operand has any strides; the right one and the result have rows of neighbours.
    """

    rows: int
    columns: int
    depth: tuple[Depth, ...]
    type: str
    bits: int
    left_row: int
    result_row: int

    @property
    def kind(self) -> str:
        """f for floats, i for integers, each of which is then a pair of 16-bit ones, but for the result's."""
        return "i" if self.type.startswith("i") else "f"

    @property
    def lanes(self) -> int:
        """Numbers of one vector register."""
        return host().vector_bits // self.bits

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.lanes * _VECTORS

    @property
    def tile_rows(self) -> int:
        """Rows of a tile: as many as leave registers for the operands, and fill the tiles evenly."""
        most = 12 if host().vector_bits >= 512 else 6
        return -(-self.rows // -(-self.rows // most))

    @property
    def depth_rows(self) -> int:
        """Rows of the right operand."""
        return prod(each.size for each in self.depth)

    @property
    def packed_elements(self) -> int:
        """Numbers of the right operand as `pack` lays them out."""
        return -(-self.columns // self.width) * self.width * self.depth_rows


def write_tiled(
    text: FunctionText,
    product: Tiled,
    left: str,
    right: str,
    result: str,
    outer: Sequence[Outer] = (),
    packed: str | None = None,
) -> None:
    """Writes `result = left * right`, the names of three addresses, for each turn of the loops `outer`.

    `packed` is where `pack` has laid out the right operand, if it has.
    """
    for column, valid in column_blocks(text, product):
        _Columns(text, product, (left, right, result), column, valid, packed).write(outer)


def pack(text: FunctionText, product: Tiled, right: str, target: str) -> None:
    """Writes what puts together what each block of columns reads of the right operand: blocks of all rows.

    `target` is memory for `packed_elements` numbers; the rows of the right operand have one stride.
    """
    for column, valid in column_blocks(text, product):
        block = text.value(f"mul i64 {column}, {product.depth_rows}")
        row, _ = text.open_loop()
        start = text.value(f"mul i64 {row}, {product.depth[-1].right}")
        start = text.value(f"add i64 {start}, {column}")
        place = text.value(f"mul i64 {row}, {product.width}")
        place = text.value(f"add i64 {place}, {block}")
        for number, count in enumerate(valid):
            source = text.value(f"add i64 {start}, {number * product.lanes}")
            vector = _load(text, product, right, source, count)
            at = text.value(f"add i64 {place}, {number * product.lanes}")
            address = text.value(f"getelementptr {product.type}, ptr {target}, i64 {at}")
            text.line(f"store <{product.lanes} x {product.type}> {vector}, ptr {address}, align {product.bits // 8}")
        text.close_loop(product.depth_rows)


def column_blocks(text: FunctionText, product: Tiled) -> Iterator[tuple[str, list[int]]]:
    """Blocks of columns: where each begins, and how many lanes of each of its vectors stand for columns.

    What is written meanwhile is run for each of them.
    """
    for column, columns in text.chunks(product.columns, product.width):
        yield column, [min(product.lanes, columns - first) for first in range(0, columns, product.lanes)]


class _Columns:
    """A block of columns from `column` on; of each of its vectors as many lanes are `valid`."""

    def __init__(
        self,
        text: FunctionText,
        product: Tiled,
        operands: tuple[str, str, str],
        column: str,
        valid: list[int],
        packed: str | None,
    ) -> None:
        self.text = text
        self.product = product
        self.left, self.right, self.result = operands
        self.column = column
        self.valid = valid
        self.packed = packed

    def write(self, outer: Sequence[Outer]) -> None:
        self._outer(outer, "0", "0")

    def _outer(self, outer: Sequence[Outer], left: str, result: str) -> None:
        if not outer:
            self._rows(left, result)
            return
        text = self.text
        name, _ = text.open_loop()
        left = self._plus(left, text.value(f"mul i64 {name}, {outer[0].left}"))
        result = self._plus(result, text.value(f"mul i64 {name}, {outer[0].result}"))
        self._outer(outer[1:], left, result)
        text.close_loop(outer[0].size)

    def _rows(self, left: str, result: str) -> None:
        text, product = self.text, self.product
        for row, rows in text.chunks(product.rows, product.tile_rows):
            self._tile(row, left, result, rows)

    def _tile(self, row: str, left: str, result: str, rows: int) -> None:
        text, product = self.text, self.product
        vector = f"<{product.lanes} x {product.type}>"
        sums = [[text.allocate(vector) for _ in self.valid] for _ in range(rows)]
        for slots in sums:
            for slot in slots:
                text.line(f"store {vector} zeroinitializer, ptr {slot}")
        first = self._plus(left, text.value(f"mul i64 {row}, {product.left_row}"))
        packed = text.value(f"mul i64 {self.column}, {product.depth_rows}") if self.packed is not None else "0"
        self._contract(product.depth, first, packed, sums)
        for number, slots in enumerate(sums):
            line = text.value(f"add i64 {row}, {number}")
            offset = text.value(f"mul i64 {line}, {product.result_row}")
            target = self._plus(self._plus(offset, result), self.column)
            for which, (slot, count) in enumerate(zip(slots, self.valid, strict=True)):
                value = text.value(f"load {vector}, ptr {slot}")
                at = self._shifted(target, which * product.lanes)
                address = text.value(f"getelementptr {product.type}, ptr {self.result}, i64 {at}")
                _store(text, product, value, address, count)

    def _contract(self, depth: Sequence[Depth], left: str, right: str, sums: list[list[str]]) -> None:
        """The loops over `depth` from places `left` and `right` on."""
        if not depth:
            self._step(left, right, sums)
            return
        text, product = self.text, self.product
        name, _ = text.open_loop()
        stride = depth[0].right
        if self.packed is not None:
            stride = stride // product.depth[-1].right * product.width
        left = self._plus(left, text.value(f"mul i64 {name}, {depth[0].left}"))
        right = self._plus(right, text.value(f"mul i64 {name}, {stride}"))
        self._contract(depth[1:], left, right, sums)
        text.close_loop(depth[0].size)

    def _step(self, left: str, right: str, sums: list[list[str]]) -> None:
        text, product = self.text, self.product
        vector = f"<{product.lanes} x {product.type}>"
        whole = self.packed is not None
        base = self.packed or self.right
        start = right if whole else self._plus(right, self.column)
        stretches = [
            _load(text, product, base, self._shifted(start, number * product.lanes), product.lanes if whole else count)
            for number, count in enumerate(self.valid)
        ]
        for number, slots in enumerate(sums):
            at = self._shifted(left, number * product.left_row)
            address = text.value(f"getelementptr {product.type}, ptr {self.left}, i64 {at}")
            one = text.value(f"load {product.type}, ptr {address}")
            single = text.value(f"insertelement {vector} poison, {product.type} {one}, i64 0")
            places = f"<{product.lanes} x i32> zeroinitializer"
            all_lanes = text.value(f"shufflevector {vector} {single}, {vector} poison, {places}")
            for slot, stretch in zip(slots, stretches, strict=True):
                before = text.value(f"load {vector}, ptr {slot}")
                after = self._multiplied(all_lanes, stretch, before)
                text.line(f"store {vector} {after}, ptr {slot}")

    def _multiplied(self, left: str, right: str, total: str) -> str:
        """The vector of products added to `total`: of floats in one rounding, of i32 the sums of two products each."""
        text, product = self.text, self.product
        vector = f"<{product.lanes} x {product.type}>"
        if product.kind == "f":
            name = f"@llvm.fma.v{product.lanes}f{product.bits}"
            return text.value(f"call {vector} {name}({vector} {left}, {vector} {right}, {vector} {total})")
        pairs = f"<{2 * product.lanes} x i16>"
        one, other = (text.value(f"bitcast {vector} {name} to {pairs}") for name in (left, right))
        sums = text.value(f"call {vector} @{_PAIRS[product.lanes]}({pairs} {one}, {pairs} {other})")
        return text.value(f"add {vector} {total}, {sums}")

    def _plus(self, first: str, second: str) -> str:
        if first == "0":
            return second
        return first if second == "0" else self.text.value(f"add i64 {first}, {second}")

    def _shifted(self, place: str, offset: int) -> str:
        return self._plus(place, str(offset))


def _load(text: FunctionText, product: Tiled, base: str, at: str, count: int) -> str:
    vector, align = f"<{product.lanes} x {product.type}>", product.bits // 8
    address = text.value(f"getelementptr {product.type}, ptr {base}, i64 {at}")
    if count == product.lanes:
        return text.value(f"load {vector}, ptr {address}, align {align}")
    return text.value(
        f"call {vector} @llvm.masked.load.v{product.lanes}{product.kind}{product.bits}.p0(ptr align {align} {address}, "
        f"<{product.lanes} x i1> {_mask(product.lanes, count)}, {vector} zeroinitializer)"
    )


def _store(text: FunctionText, product: Tiled, value: str, address: str, count: int) -> None:
    vector, align = f"<{product.lanes} x {product.type}>", product.bits // 8
    if count == product.lanes:
        text.line(f"store {vector} {value}, ptr {address}, align {align}")
        return
    name = f"@llvm.masked.store.v{product.lanes}{product.kind}{product.bits}.p0"
    mask = f"<{product.lanes} x i1> {_mask(product.lanes, count)}"
    text.line(f"call void {name}({vector} {value}, ptr align {align} {address}, {mask})")


def _mask(lanes: int, count: int) -> str:
    return "<" + ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes)) + ">"
