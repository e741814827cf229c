"""Products of 8-bit integers in tile registers (AMX).

A tile register holds 16 rows of 16 32-bit sums, or of 64 8-bit elements. One instruction adds to a tile of sums the
product of a left tile, loaded in place, and a right tile, in which four contracted elements are adjacent: each column
panel is packed once for all rows. Four tiles of sums are kept in registers. Sums wrap, as i32 does.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import index_type
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.backends.llvm.matmul.integer_products import (
    IntegerProduct,
    gathered_lanes,
    interleaved,
    neighbours,
    offset_pointer,
)
from spmd.backends.llvm.matmul.tiles import column_blocks

#: Rows of a tile, and sums per row; tiles of sums per side of a block; elements per row.
_ROWS, _PAIRED, _NUMBERS = 16, 2, 64
_BYTES = _ROWS * _NUMBERS
#: Rows of a block of four tiles of sums.
BLOCK_ROWS = _ROWS * _PAIRED
#: Numbers of the first left and right tile, after the four tiles of sums.
_LEFT, _RIGHT = 4, 6
#: Least rows and columns for which tiles are not mostly empty.
_FEWEST = 12


def suits_tiles(product: IntegerProduct) -> bool:
    """Return whether the processor has tile registers for `product`, whose left rows must be contiguous."""
    sizes = min(product.rows, product.columns)
    return product.processor.has_tiles and product.left.contracted == 1 and sizes >= _FEWEST and product.depth >= _ROWS


def tile_bytes(product: IntegerProduct) -> int:
    """Return the bytes for two column panels, a block of rows and four tiles of sums."""
    return 2 * _panel_bytes(product) + BLOCK_ROWS * _padded(product) + _PAIRED**2 * _BYTES


def _padded(product: IntegerProduct) -> int:
    """Return the contracted size, padded to whole tiles."""
    return -(-product.depth // _NUMBERS) * _NUMBERS


def _panel_bytes(product: IntegerProduct) -> int:
    """Return the bytes of a tile's column panel."""
    return _padded(product) * _ROWS


def write_tile_product(
    text: FunctionText, product: IntegerProduct, pointers: Sequence[str], memory: str, rows: int
) -> None:
    """Emit the first `rows` rows of one product; `pointers` are left, right and result.

    `memory` has `tile_bytes`.
    """
    left, right, result = pointers
    _configure(text)
    for column, valid in column_blocks(text, product.whole):
        start = text.value(f"mul i64 {column}, {product.right.free}")
        _pack_panels(text, product, offset_pointer(text, right, start), memory, valid)
        place = offset_pointer(text, result, text.value(f"mul i64 {column}, 4"))
        block = _Block(text, product, left, place, memory, valid)
        for row, count in text.chunks(rows, BLOCK_ROWS):
            block.write(row, count)
    text.line("call void @llvm.x86.tilerelease()")


def _configure(text: FunctionText) -> None:
    """Configure eight tiles of 16 rows of 64 bytes."""
    sizes = bytearray(64)
    sizes[0] = 1
    for tile in range(8):
        sizes[16 + 2 * tile] = _NUMBERS
        sizes[48 + tile] = _ROWS
    slot = text.allocate("<64 x i8>")
    text.line(f"store <64 x i8> <{', '.join(f'i8 {size}' for size in sizes)}>, ptr {slot}")
    text.line(f"call void @llvm.x86.ldtilecfg(ptr {slot})")


# --- the right operand ---


def _pack_panels(text: FunctionText, product: IntegerProduct, source: str, target: str, valid: Sequence[int]) -> None:
    """Pack the columns from `source` on into panels, one per tile, with four contracted elements adjacent, padded with
    zeros.
    """
    size = _panel_bytes(product)

    def pack_rows(number: str, codes: int) -> None:
        for panel, count in enumerate(valid):
            start = offset_pointer(text, source, str(panel * _ROWS * product.right.free))
            vector = _panel_row(text, product, start, number, codes, count)
            place = offset_pointer(
                text, target, text.value(f"add i64 {text.value(f'mul i64 {number}, {_ROWS}')}, {panel * size}")
            )
            text.line(f"store <{_NUMBERS} x i8> {vector}, ptr {place}, align 1")

    for number, codes in text.chunks(product.depth, 4):
        pack_rows(number, codes)
    written = -(-product.depth // 4) * 4
    if written < _padded(product):
        number, _ = text.open_loop()
        for panel in range(len(valid)):
            place = offset_pointer(
                text, target, text.value(f"add i64 {text.value(f'mul i64 {number}, {_ROWS}')}, {panel * size}")
            )
            text.line(f"store <{_NUMBERS} x i8> zeroinitializer, ptr {place}, align 1")
        text.close_loop(_padded(product), 4, str(written))


def _panel_row(text: FunctionText, product: IntegerProduct, source: str, number: str, codes: int, count: int) -> str:
    """Return a row of a panel: `codes` contracted elements from `number` on for each of `count` columns, as <64
    x i8>.
    """
    right = product.right
    if right.contracted == 1:
        start = offset_pointer(text, source, number)
        index = index_type((_ROWS - 1) * right.free)
        offsets = ", ".join(f"{index} {lane * right.free}" for lane in range(_ROWS))
        lanes = text.value(f"getelementptr i8, ptr {start}, <{_ROWS} x {index}> <{offsets}>")
        if codes == 4:
            words = gathered_lanes(text, "i32", lanes, _ROWS, count)
            return text.value(f"bitcast <{_ROWS} x i32> {words} to <{_NUMBERS} x i8>")
        there = [text.value(f"getelementptr i8, <{_ROWS} x ptr> {lanes}, i64 {code}") for code in range(codes)]
        rows = [gathered_lanes(text, "i8", each, _ROWS, count) for each in there]
    else:
        numbers = [text.value(f"add i64 {number}, {code}") for code in range(codes)]
        places = [text.value(f"mul i64 {each}, {right.contracted}") for each in numbers]
        rows = [neighbours(text, source, place, _ROWS, count) for place in places]
    rows += ["zeroinitializer"] * (4 - codes)
    pairs = [interleaved(text, rows[first], rows[first + 1], "i8", _ROWS) for first in (0, 2)]
    wide = [text.value(f"bitcast <{2 * _ROWS} x i8> {pair} to <{_ROWS} x i16>") for pair in pairs]
    joined = interleaved(text, wide[0], wide[1], "i16", _ROWS)
    return text.value(f"bitcast <{2 * _ROWS} x i16> {joined} to <{_NUMBERS} x i8>")


# --- sums ---


class _Block:
    """Blocks of rows for one block of columns, whose tiles have `valid` columns."""

    def __init__(
        self, text: FunctionText, product: IntegerProduct, left: str, result: str, memory: str, valid: Sequence[int]
    ) -> None:
        self.text = text
        self.product = product
        self.left = left
        self.result = result
        self.panels = memory
        self.rows = offset_pointer(text, memory, str(2 * _panel_bytes(product)))
        self.sums = offset_pointer(text, memory, str(2 * _panel_bytes(product) + BLOCK_ROWS * _padded(product)))
        self.valid = valid

    def write(self, row: str, count: int) -> None:
        """Emit the sums of `count` rows from `row` on."""
        text, product = self.text, self.product
        start = offset_pointer(text, self.left, text.value(f"mul i64 {row}, {product.left.free}"))
        stride = product.left.free
        if count < BLOCK_ROWS or product.depth % _NUMBERS:  # tiles would exceed the operand
            self._copy(start, count)
            start, stride = self.rows, _padded(product)
        heights = [min(_ROWS, count - first) for first in range(0, count, _ROWS)]
        for tile in range(_PAIRED**2):
            text.line(f"call void @llvm.x86.tilezero(i8 {tile})")
        number, _ = text.open_loop()
        self._add(offset_pointer(text, start, number), stride, number, len(heights))
        text.close_loop(_padded(product), _NUMBERS)
        place = offset_pointer(text, self.result, text.value(f"mul i64 {row}, {4 * product.columns}"))
        for down, height in enumerate(heights):
            for across, width in enumerate(self.valid):
                corner = down * _ROWS * 4 * product.columns + across * _NUMBERS
                self._store(_PAIRED * down + across, offset_pointer(text, place, str(corner)), height, width)

    def _copy(self, source: str, count: int) -> None:
        """Copy rows of the left operand, padded to whole tiles; the padding is multiplied by zeros."""
        text, depth = self.text, self.product.depth
        row, _ = text.open_loop()
        start = offset_pointer(text, source, text.value(f"mul i64 {row}, {self.product.left.free}"))
        target = offset_pointer(text, self.rows, text.value(f"mul i64 {row}, {_padded(self.product)}"))
        for number, numbers in text.chunks(depth, _NUMBERS):
            vector = neighbours(text, start, number, _NUMBERS, numbers)
            text.line(f"store <{_NUMBERS} x i8> {vector}, ptr {offset_pointer(text, target, number)}, align 1")
        text.close_loop(count)

    def _add(self, left: str, stride: int, number: str, heights: int) -> None:
        """Add the products of the contracted elements from `number` on."""
        text, product = self.text, self.product
        for down in range(heights):
            place = offset_pointer(text, left, str(down * _ROWS * stride))
            text.line(f"call void @llvm.x86.tileloadd64(i8 {_LEFT + down}, ptr {place}, i64 {stride})")
        panel = offset_pointer(text, self.panels, text.value(f"mul i64 {number}, {_ROWS}"))
        for across in range(len(self.valid)):
            place = offset_pointer(text, panel, str(across * _panel_bytes(product)))
            text.line(f"call void @llvm.x86.tileloadd64(i8 {_RIGHT + across}, ptr {place}, i64 {_NUMBERS})")
        signs = "".join("s" if operand.signed else "u" for operand in (product.left, product.right))
        for down in range(heights):
            for across in range(len(self.valid)):
                tiles = (_PAIRED * down + across, _LEFT + down, _RIGHT + across)
                text.line(f"call void @llvm.x86.tdpb{signs}d({', '.join(f'i8 {tile}' for tile in tiles)})")

    def _store(self, tile: int, target: str, height: int, width: int) -> None:
        """Store `height` rows of `width` sums of a tile."""
        text, stride = self.text, 4 * self.product.columns
        if height == width == _ROWS:
            text.line(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {target}, i64 {stride})")
            return
        sums = offset_pointer(text, self.sums, str(tile * _BYTES))
        text.line(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {sums}, i64 {_NUMBERS})")
        row, _ = text.open_loop()
        source = offset_pointer(text, sums, text.value(f"mul i64 {row}, {_NUMBERS}"))
        vector = text.value(f"load <{_ROWS} x i32>, ptr {source}, align 4")
        place = offset_pointer(text, target, text.value(f"mul i64 {row}, {stride}"))
        lanes = f"<{_ROWS} x i1> {first_lanes(_ROWS, width)}"
        name = f"@llvm.masked.store.v{_ROWS}i32.p0"
        text.line(f"call void {name}(<{_ROWS} x i32> {vector}, ptr align 4 {place}, {lanes})")
        text.close_loop(height)
