"""Products of matrices of 8-bit integers with sums of 32 bits, in tiles.

Processors multiply sixteen or thirty-two pairs of 16-bit numbers at a time and add up neighbouring products. Both
operands are widened to such pairs, neighbours along what is contracted: the left one row by row, the right one in the
blocks that tiles read. Sums wrap, as i32 does.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmd.backends.llvm.processor import host
from spmd.backends.llvm.strides import first_lanes
from spmd.backends.llvm.text import FunctionText
from spmd.backends.llvm.tiles import Depth, Tiled, column_blocks, write_tiled

_LANES = 16


@dataclass(frozen=True)
class IntegerProduct:
    """`rows` x `depth` by `depth` x `columns` numbers of 8 bits, each operand with the strides of its two dimensions;
    an operand is signed or not."""

    rows: int
    columns: int
    depth: int
    left: tuple[int, int]
    right: tuple[int, int]
    left_signed: bool
    right_signed: bool

    @property
    def pairs(self) -> int:
        """Pairs of what is contracted, the last one with a zero where there is no second."""
        return -(-self.depth // 2)

    @property
    def padded_pairs(self) -> int:
        """Pairs of one row of the left operand as it is laid out: whole vectors."""
        return -(-self.pairs // _LANES) * _LANES

    @property
    def tiled(self) -> Tiled:
        depth = (Depth(self.pairs, 1, self.columns),)
        return Tiled(self.rows, self.columns, depth, "i32", 32, self.padded_pairs, self.columns)

    @property
    def left_bytes(self) -> int:
        return 4 * self.rows * self.padded_pairs

    @property
    def right_bytes(self) -> int:
        return 4 * self.tiled.packed_elements


def supports_pairs() -> bool:
    """Whether this processor multiplies pairs."""
    return host().triple.startswith("x86_64")


def write_integer_product(
    text: FunctionText, product: IntegerProduct, pointers: tuple[str, str, str], memory: tuple[str, str]
) -> None:
    """Writes the product of the addresses `pointers` (left, right, result); `memory` has `left_bytes` and
    `right_bytes`."""
    left, right, result = pointers
    _widen_left(text, product, left, memory[0])
    _widen_right(text, product, right, memory[1])
    write_tiled(text, product.tiled, memory[0], right, result, (), memory[1])


def _widened(text: FunctionText, value: str, width: int, source: str, target: str, signed: bool) -> str:
    return text.value(f"{'sext' if signed else 'zext'} <{width} x {source}> {value} to <{width} x {target}>")


def _widen_left(text: FunctionText, product: IntegerProduct, source: str, target: str) -> None:
    """Rows of 16-bit numbers, whole vectors, with zeros behind."""
    width = 2 * _LANES
    row, _ = text.open_loop()
    start = text.value(f"mul i64 {row}, {product.left[0]}")
    place = text.value(f"mul i64 {row}, {2 * product.padded_pairs}")
    whole = product.depth - product.depth % width

    def chunk(number: str, count: int) -> None:
        at = text.value(f"add i64 {start}, {number}")
        codes = _load_bytes(text, source, at, width, count)
        wide = _widened(text, codes, width, "i8", "i16", product.left_signed)
        to = text.value(f"getelementptr i16, ptr {target}, i64 {text.value(f'add i64 {place}, {number}')}")
        text.line(f"store <{width} x i16> {wide}, ptr {to}, align 4")

    if whole:
        number, _ = text.open_loop()
        chunk(number, width)
        text.close_loop(whole, width)
    if product.depth % width:
        chunk(str(whole), product.depth % width)
    text.close_loop(product.rows)


def _load_bytes(text: FunctionText, source: str, at: str, width: int, count: int) -> str:
    address = text.value(f"getelementptr i8, ptr {source}, i64 {at}")
    if count == width:
        return text.value(f"load <{width} x i8>, ptr {address}, align 1")
    arguments = f"ptr align 1 {address}, <{width} x i1> {first_lanes(width, count)}, <{width} x i8> zeroinitializer"
    return text.value(f"call <{width} x i8> @llvm.masked.load.v{width}i8.p0({arguments})")


def _widen_right(text: FunctionText, product: IntegerProduct, source: str, target: str) -> None:
    """Pairs of rows, in the blocks of columns that tiles read."""
    tiled = product.tiled
    lanes = tiled.lanes
    for column, valid in column_blocks(text, tiled):
        block = text.value(f"mul i64 {column}, {product.pairs}")

        def row(pair: str, both: bool, column: str = column, valid: list[int] = valid, block: str = block) -> None:
            place = text.value(f"add i64 {block}, {text.value(f'mul i64 {pair}, {tiled.width}')}")
            first = text.value(f"mul i64 {pair}, {2 * product.right[0]}")
            start = text.value(f"add i64 {first}, {column}")
            for number, count in enumerate(valid):
                at = text.value(f"add i64 {start}, {number * lanes}")
                low = _load_bytes(text, source, at, lanes, count)
                lanes_of_value = _widened(text, low, lanes, "i8", "i32", product.right_signed)
                if both:
                    behind = text.value(f"add i64 {at}, {product.right[0]}")
                    high = _load_bytes(text, source, behind, lanes, count)
                    wide = _widened(text, high, lanes, "i8", "i32", product.right_signed)
                    splat = ", ".join(["i32 16"] * lanes)
                    shifted = text.value(f"shl <{lanes} x i32> {wide}, <{splat}>")
                    mask = ", ".join(["i32 65535"] * lanes)
                    lanes_of_value = text.value(f"and <{lanes} x i32> {lanes_of_value}, <{mask}>")
                    lanes_of_value = text.value(f"or <{lanes} x i32> {lanes_of_value}, {shifted}")
                else:
                    mask = ", ".join(["i32 65535"] * lanes)
                    lanes_of_value = text.value(f"and <{lanes} x i32> {lanes_of_value}, <{mask}>")
                to = text.value(f"add i64 {place}, {number * lanes}")
                address = text.value(f"getelementptr i32, ptr {target}, i64 {to}")
                text.line(f"store <{lanes} x i32> {lanes_of_value}, ptr {address}, align 4")

        if product.depth > 1:
            pair, _ = text.open_loop()
            row(pair, both=True)
            text.close_loop(product.depth // 2)
        if product.depth % 2:
            with text.part():
                row(str(product.depth // 2), both=False)
