"""Tiled products of 8-bit integers with 32-bit sums.

Processors multiply 16 or 32 pairs of 16-bit integers at a time and add adjacent products. Operands are widened and
packed into such pairs along the contracted dimension, per tile: the right one's column panel once for all rows, the
left one's rows when needed. Sums wrap, as i32 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from spmd.analysis.affine import row_major
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.backends.llvm.matmul.tiles import Depth, Tiled, column_blocks, write_tiled
from spmd.support.processor import Processor

#: Elements of a row that are widened at a time.
_NUMBERS = 32
#: Length of the stretches into which the contracted dimension of a product with fewer than `_FEW` rows and columns is
#: split: widened at once, it would take more memory than both operands.
_STRETCH, _FEW = 1 << 16, 64


@dataclass(frozen=True)
class ByteOperand:
    """An operand of 8-bit integers: its strides along rows of the result (the right operand: columns), along the
    contracted dimension, and between batches. One of the first two is 1.
    """

    free: int
    contracted: int
    batch: tuple[int, ...]
    signed: bool


@dataclass(frozen=True)
class IntegerProduct:
    """Products of `rows` x `depth` by `depth` x `columns`, batched, on a processor."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    left: ByteOperand
    right: ByteOperand
    processor: Processor

    @property
    def size(self) -> int:
        """Multiplications of all products."""
        return prod(self.batch) * self.rows * self.columns * self.depth

    @property
    def is_long(self) -> bool:
        """Whether the contracted dimension is split into stretches."""
        return self.depth > _STRETCH and self.rows + self.columns < _FEW

    @property
    def pairs(self) -> int:
        """Pairs along the contracted dimension, padded with zero."""
        return -(-self.depth // 2)

    def strides(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the batch strides in bytes of the left operand, the right one, and the result."""
        result = 4 * self.rows * self.columns
        return self.left.batch, self.right.batch, tuple(stride * result for stride in row_major(self.batch))

    def steps(self, *, by_rows: bool) -> tuple[int, int, int]:
        """Return the bytes per row of the left operand, the right one, and the result."""
        assert by_rows, "columns are not split"
        return self.left.free, 0, 4 * self.columns

    def tile(self, rows: int, columns: int) -> Tiled:
        """Return the product of a tile of widened rows and columns.

        Contiguous rows are packed row by row, others pair by pair.
        """
        by_row = self.left.contracted == 1
        row = -(-self.depth // _NUMBERS) * (_NUMBERS // 2) if by_row else 1
        depth = Depth(self.pairs, 1 if by_row else -(-rows // self.sums) * self.sums, self.columns)
        return Tiled(rows, columns, (depth,), "i32", 32, row, self.columns, self.processor, paired=True)

    @property
    def sums(self) -> int:
        """Sums per vector register."""
        return self.processor.vector_bits // 32

    @property
    def whole(self) -> Tiled:
        """The whole product, which determines tile sizes."""
        return self.tile(self.rows, self.columns)

    @property
    def left_bytes(self) -> int:
        """Bytes for the packed rows of a tile."""
        rows = self.whole.tile_rows
        tile = self.tile(rows, 1)
        return 4 * max(rows * tile.left_row, self.pairs * tile.depth[0].left)


def pair_bytes(product: IntegerProduct) -> int:
    """Return the bytes for the packed rows of a tile, one column panel, and the sums of a stretch."""
    if product.is_long:
        return pair_bytes(replace(product, depth=_STRETCH)) + 4 * product.rows * product.columns
    return product.left_bytes + 4 * product.pairs * product.whole.width


def write_integer_product(
    text: FunctionText, product: IntegerProduct, pointers: Sequence[str], memory: str, rows: int
) -> None:
    """Emit the first `rows` rows of one product; `pointers` are left, right and result.

    `memory` has `pair_bytes`.
    """
    if not product.is_long:
        _write_stretch(text, product, pointers, memory, rows)
        return
    left, right, result = pointers
    count = rows * product.columns
    sums = offset_pointer(text, memory, str(pair_bytes(product) - 4 * product.rows * product.columns))
    text.line(f"call void @llvm.memset.p0.i64(ptr {result}, i8 0, i64 {4 * count}, i1 false)")
    for first, depth in text.chunks(product.depth, _STRETCH):
        begins = [
            offset_pointer(text, pointer, text.value(f"mul i64 {first}, {operand.contracted}"))
            for pointer, operand in ((left, product.left), (right, product.right))
        ]
        _write_stretch(text, replace(product, depth=depth), [*begins, sums], memory, rows)
        place, _ = text.open_loop()
        total, more = (text.value(f"getelementptr i32, ptr {pointer}, i64 {place}") for pointer in (result, sums))
        values = [text.value(f"load i32, ptr {pointer}") for pointer in (total, more)]
        text.line(f"store i32 {text.value(f'add i32 {values[0]}, {values[1]}')}, ptr {total}")
        text.close_loop(count)


def _write_stretch(
    text: FunctionText, product: IntegerProduct, pointers: Sequence[str], memory: str, rows: int
) -> None:
    """Emit the first `rows` rows of a product whose contracted dimension is widened at once."""
    left, right, result = pointers
    tiled = product.whole
    block = offset_pointer(text, memory, str(product.left_bytes))
    for column, valid in column_blocks(text, tiled):
        start = offset_pointer(text, right, text.value(f"mul i64 {column}, {product.right.free}"))
        _widen_pairs(text, product, product.right, start, sum(valid), block, tiled.width)

        def tile(row: str, count: int, column: str = column, valid: Sequence[int] = valid) -> None:
            start = offset_pointer(text, left, text.value(f"mul i64 {row}, {product.left.free}"))
            part = product.tile(count, sum(valid))
            if product.left.contracted == 1:
                _widen_rows(text, product, start, count, memory, part.left_row)
            else:
                _widen_pairs(text, product, product.left, start, count, memory, part.depth[0].left)
            place = text.value(f"add i64 {text.value(f'mul i64 {row}, {product.columns}')}, {column}")
            target = text.value(f"getelementptr i32, ptr {result}, i64 {place}")
            write_tiled(text, part, memory, block, target, (), block)

        for row, count in text.chunks(rows, tiled.tile_rows):
            tile(row, count)


def _widen_rows(
    text: FunctionText, product: IntegerProduct, source: str, rows: int, target: str, row_stride: int
) -> None:
    """Widen contiguous rows from `source` on to rows of pairs, padded with zeros."""
    row, _ = text.open_loop()
    start = offset_pointer(text, source, text.value(f"mul i64 {row}, {product.left.free}"))
    place = text.value(f"mul i64 {row}, {2 * row_stride}")
    whole, rest = product.depth - product.depth % _NUMBERS, product.depth % _NUMBERS

    def chunk(number: str, count: int) -> None:
        wide = _widened(text, neighbours(text, start, number, _NUMBERS, count), _NUMBERS, "i16", product.left.signed)
        to = text.value(f"getelementptr i16, ptr {target}, i64 {text.value(f'add i64 {place}, {number}')}")
        text.line(f"store <{_NUMBERS} x i16> {wide}, ptr {to}, align 4")

    if whole:
        number, _ = text.open_loop()
        chunk(number, _NUMBERS)
        text.close_loop(whole, _NUMBERS)
    if rest:
        chunk(str(whole), rest)
    text.close_loop(rows)


def _widen_pairs(
    text: FunctionText, product: IntegerProduct, operand: ByteOperand, source: str, count: int, target: str, width: int
) -> None:
    """Pack pairs along the contracted dimension of `count` rows or columns from `source` on, with a stride of `width`
    elements.
    """
    lanes = product.sums
    step = 2 if operand.contracted != 1 else 4

    def pairs(number: str, codes: int) -> None:
        """Pack `codes` contracted elements from `number` on."""
        for lane in range(0, count, lanes):
            valid = min(lanes, count - lane)
            start = offset_pointer(text, source, str(lane * operand.free))
            read = _contiguous if operand.contracted != 1 else _strided
            vectors = read(text, operand, start, number, codes, lanes, valid)
            for first in range(0, codes, 2):
                joined = _joined(text, lanes, vectors[first : first + 2])
                half = text.value(f"mul i64 {number}, {width // 2}")  # even by construction
                at = text.value(f"add i64 {half}, {first // 2 * width + lane}")
                address = text.value(f"getelementptr i32, ptr {target}, i64 {at}")
                text.line(f"store <{lanes} x i32> {joined}, ptr {address}, align 4")

    for number, codes in text.chunks(product.depth, step):
        pairs(number, codes)


def _contiguous(
    text: FunctionText, operand: ByteOperand, source: str, number: str, codes: int, lanes: int, valid: int
) -> list[str]:
    """Return `codes` vectors of i32, one per contracted element from `number` on; lanes are contiguous in memory."""
    vectors = []
    for code in range(codes):
        place = text.value(f"mul i64 {text.value(f'add i64 {number}, {code}')}, {operand.contracted}")
        vectors.append(_widened(text, neighbours(text, source, place, lanes, valid), lanes, "i32", operand.signed))
    return vectors


def _strided(
    text: FunctionText, operand: ByteOperand, source: str, number: str, codes: int, lanes: int, valid: int
) -> list[str]:
    """Return the same if contracted elements are contiguous in memory: four of each lane are gathered at a time."""
    start = offset_pointer(text, source, number)
    offsets = ", ".join(f"i64 {lane * operand.free}" for lane in range(lanes))
    places = text.value(f"getelementptr i8, ptr {start}, <{lanes} x i64> <{offsets}>")
    vectors = []
    if codes == 4:
        words = gathered_lanes(text, "i32", places, lanes, valid)
        for code in range(codes):
            high = text.value(f"shl <{lanes} x i32> {words}, {_splat(24 - 8 * code, lanes)}")
            shift = "ashr" if operand.signed else "lshr"
            vectors.append(text.value(f"{shift} <{lanes} x i32> {high}, {_splat(24, lanes)}"))
        return vectors
    for code in range(codes):
        there = text.value(f"getelementptr i8, <{lanes} x ptr> {places}, i64 {code}")
        number_of_lane = gathered_lanes(text, "i8", there, lanes, valid)
        vectors.append(_widened(text, number_of_lane, lanes, "i32", operand.signed))
    return vectors


def _joined(text: FunctionText, lanes: int, vectors: Sequence[str]) -> str:
    """Return one or two vectors of integers as pairs."""
    pairs = text.value(f"and <{lanes} x i32> {vectors[0]}, {_splat(0xFFFF, lanes)}")
    if len(vectors) == 1:
        return pairs
    high = text.value(f"shl <{lanes} x i32> {vectors[1]}, {_splat(16, lanes)}")
    return text.value(f"or <{lanes} x i32> {pairs}, {high}")


def gathered_lanes(text: FunctionText, type: str, places: str, lanes: int, valid: int) -> str:
    """Return the elements gathered from the `lanes` addresses `places`, of which `valid` are loaded."""
    mask = f"<{lanes} x i1> {first_lanes(lanes, valid)}"
    name = f"@llvm.masked.gather.v{lanes}{type}.v{lanes}p0"
    arguments = f"<{lanes} x ptr> align 1 {places}, {mask}, <{lanes} x {type}> zeroinitializer"
    return text.value(f"call <{lanes} x {type}> {name}({arguments})")


def interleaved(text: FunctionText, first: str, second: str, type: str, lanes: int) -> str:
    """Return two vectors of `lanes`, interleaved."""
    vector = f"<{lanes} x {type}>"
    order = ", ".join(f"i32 {lane}, i32 {lanes + lane}" for lane in range(lanes))
    return text.value(f"shufflevector {vector} {first}, {vector} {second}, <{2 * lanes} x i32> <{order}>")


def neighbours(text: FunctionText, source: str, at: str, width: int, count: int) -> str:
    """Return a vector of `width` bytes, of which `count` are loaded."""
    address = offset_pointer(text, source, at)
    if count == width:
        return text.value(f"load <{width} x i8>, ptr {address}, align 1")
    arguments = f"ptr align 1 {address}, <{width} x i1> {first_lanes(width, count)}, <{width} x i8> zeroinitializer"
    return text.value(f"call <{width} x i8> @llvm.masked.load.v{width}i8.p0({arguments})")


def _widened(text: FunctionText, value: str, width: int, target: str, signed: bool) -> str:
    return text.value(f"{'sext' if signed else 'zext'} <{width} x i8> {value} to <{width} x {target}>")


def offset_pointer(text: FunctionText, pointer: str, offset: str) -> str:
    return text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")


def _splat(value: int, lanes: int) -> str:
    return "<" + ", ".join([f"i32 {value}"] * lanes) + ">"
