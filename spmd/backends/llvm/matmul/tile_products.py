"""Products of matrices of 8-bit integers in the processor's tile registers (AMX).

A tile register holds sixteen rows of sixteen sums of 32 bits, or of 64 numbers. One instruction adds to a tile of sums
the product of a tile of the left operand, whose rows are read as they lie in memory, and one of the right operand, in
which four numbers along what is contracted are neighbours: each block of columns is laid out so once for all rows.
Four tiles of sums are held at a time. Sums wrap, as i32 does.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import index_type
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.backends.llvm.matmul.integer_products import IntegerProduct, gathered_lanes, interleaved, neighbours
from spmd.backends.llvm.matmul.tiles import column_blocks

#: Rows, and sums of a row, of a tile; tiles of sums side by side, and one over another; numbers of a row.
_ROWS, _PAIRED, _NUMBERS = 16, 2, 64
_BYTES = _ROWS * _NUMBERS
#: Rows of a block of four tiles of sums.
BLOCK_ROWS = _ROWS * _PAIRED
#: The first tile of the left operand, and of the right one, behind the four of sums.
_LEFT, _RIGHT = 4, 6
#: Rows and columns below which tiles would be mostly empty.
_FEWEST = 12


def suits_tiles(product: IntegerProduct) -> bool:
    """Return whether its processor has tile registers for `product`, whose left operand's rows lie as they are read."""
    sizes = min(product.rows, product.columns)
    return product.processor.has_tiles and product.left.contracted == 1 and sizes >= _FEWEST and product.depth >= _ROWS


def tile_bytes(product: IntegerProduct) -> int:
    """Memory for a block of columns, a block of rows and four tiles of sums."""
    return 2 * _panel_bytes(product) + BLOCK_ROWS * _padded(product) + _PAIRED**2 * _BYTES


def _padded(product: IntegerProduct) -> int:
    """Contracted numbers in whole tiles."""
    return -(-product.depth // _NUMBERS) * _NUMBERS


def _panel_bytes(product: IntegerProduct) -> int:
    """Memory of a tile's columns."""
    return _padded(product) * _ROWS


def write_tile_product(
    text: FunctionText, product: IntegerProduct, pointers: Sequence[str], memory: str, rows: int
) -> None:
    """Emit the first `rows` rows of one product of the addresses `pointers` (left, right, result).

    `memory` has `tile_bytes`.
    """
    left, right, result = pointers
    _configure(text)
    for column, valid in column_blocks(text, product.whole):
        start = text.value(f"mul i64 {column}, {product.right.free}")
        _lay_out(text, product, _at(text, right, start), memory, valid)
        place = _at(text, result, text.value(f"mul i64 {column}, 4"))
        block = _Block(text, product, left, place, memory, valid)
        for row, count in text.chunks(rows, BLOCK_ROWS):
            block.write(row, count)
    text.line("call void @llvm.x86.tilerelease()")


def _configure(text: FunctionText) -> None:
    """Eight tiles, each of sixteen rows of 64 bytes."""
    sizes = bytearray(64)
    sizes[0] = 1
    for tile in range(8):
        sizes[16 + 2 * tile] = _NUMBERS
        sizes[48 + tile] = _ROWS
    slot = text.allocate("<64 x i8>")
    text.line(f"store <64 x i8> <{', '.join(f'i8 {size}' for size in sizes)}>, ptr {slot}")
    text.line(f"call void @llvm.x86.ldtilecfg(ptr {slot})")


# --- the right operand ---


def _lay_out(text: FunctionText, product: IntegerProduct, source: str, target: str, valid: Sequence[int]) -> None:
    """The columns from `source` on, four contracted numbers side by side, with zeros behind; a panel for each tile."""
    size = _panel_bytes(product)

    def four(number: str, codes: int) -> None:
        for panel, count in enumerate(valid):
            start = _at(text, source, str(panel * _ROWS * product.right.free))
            vector = _four(text, product, start, number, codes, count)
            place = _at(text, target, text.value(f"add i64 {text.value(f'mul i64 {number}, {_ROWS}')}, {panel * size}"))
            text.line(f"store <{_NUMBERS} x i8> {vector}, ptr {place}, align 1")

    for number, codes in text.chunks(product.depth, 4):
        four(number, codes)
    written = -(-product.depth // 4) * 4
    if written < _padded(product):
        number, _ = text.open_loop()
        for panel in range(len(valid)):
            place = _at(text, target, text.value(f"add i64 {text.value(f'mul i64 {number}, {_ROWS}')}, {panel * size}"))
            text.line(f"store <{_NUMBERS} x i8> zeroinitializer, ptr {place}, align 1")
        text.close_loop(_padded(product), 4, str(written))


def _four(text: FunctionText, product: IntegerProduct, source: str, number: str, codes: int, count: int) -> str:
    """Return a row of a panel: from contracted number `number` on `codes` of each of `count` columns, as <64 x i8>."""
    right = product.right
    if right.contracted == 1:
        start = _at(text, source, number)
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
    """Blocks of rows of one block of columns, of each of whose tiles as many columns are `valid`."""

    def __init__(
        self, text: FunctionText, product: IntegerProduct, left: str, result: str, memory: str, valid: Sequence[int]
    ) -> None:
        self.text = text
        self.product = product
        self.left = left
        self.result = result
        self.panels = memory
        self.rows = _at(text, memory, str(2 * _panel_bytes(product)))
        self.sums = _at(text, memory, str(2 * _panel_bytes(product) + BLOCK_ROWS * _padded(product)))
        self.valid = valid

    def write(self, row: str, count: int) -> None:
        """The sums of `count` rows from `row` on."""
        text, product = self.text, self.product
        start = _at(text, self.left, text.value(f"mul i64 {row}, {product.left.free}"))
        stride = product.left.free
        if count < BLOCK_ROWS or product.depth % _NUMBERS:  # tiles would reach behind the operand
            self._copy(start, count)
            start, stride = self.rows, _padded(product)
        heights = [min(_ROWS, count - first) for first in range(0, count, _ROWS)]
        for tile in range(_PAIRED**2):
            text.line(f"call void @llvm.x86.tilezero(i8 {tile})")
        number, _ = text.open_loop()
        self._add(_at(text, start, number), stride, number, len(heights))
        text.close_loop(_padded(product), _NUMBERS)
        place = _at(text, self.result, text.value(f"mul i64 {row}, {4 * product.columns}"))
        for down, height in enumerate(heights):
            for across, width in enumerate(self.valid):
                corner = down * _ROWS * 4 * product.columns + across * _NUMBERS
                self._store(_PAIRED * down + across, _at(text, place, str(corner)), height, width)

    def _copy(self, source: str, count: int) -> None:
        """Rows of the left operand, each in whole tiles. What stands behind them meets zeros of the right one."""
        text, depth = self.text, self.product.depth
        row, _ = text.open_loop()
        start = _at(text, source, text.value(f"mul i64 {row}, {self.product.left.free}"))
        target = _at(text, self.rows, text.value(f"mul i64 {row}, {_padded(self.product)}"))
        for number, numbers in text.chunks(depth, _NUMBERS):
            vector = neighbours(text, start, number, _NUMBERS, numbers)
            text.line(f"store <{_NUMBERS} x i8> {vector}, ptr {_at(text, target, number)}, align 1")
        text.close_loop(count)

    def _add(self, left: str, stride: int, number: str, heights: int) -> None:
        """Add the products of the contracted numbers from `number` on."""
        text, product = self.text, self.product
        for down in range(heights):
            place = _at(text, left, str(down * _ROWS * stride))
            text.line(f"call void @llvm.x86.tileloadd64(i8 {_LEFT + down}, ptr {place}, i64 {stride})")
        panel = _at(text, self.panels, text.value(f"mul i64 {number}, {_ROWS}"))
        for across in range(len(self.valid)):
            place = _at(text, panel, str(across * _panel_bytes(product)))
            text.line(f"call void @llvm.x86.tileloadd64(i8 {_RIGHT + across}, ptr {place}, i64 {_NUMBERS})")
        signs = "".join("s" if operand.signed else "u" for operand in (product.left, product.right))
        for down in range(heights):
            for across in range(len(self.valid)):
                tiles = (_PAIRED * down + across, _LEFT + down, _RIGHT + across)
                text.line(f"call void @llvm.x86.tdpb{signs}d({', '.join(f'i8 {tile}' for tile in tiles)})")

    def _store(self, tile: int, target: str, height: int, width: int) -> None:
        """The sums of a tile, of which `height` rows of `width` are wanted."""
        text, stride = self.text, 4 * self.product.columns
        if height == width == _ROWS:
            text.line(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {target}, i64 {stride})")
            return
        sums = _at(text, self.sums, str(tile * _BYTES))
        text.line(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {sums}, i64 {_NUMBERS})")
        row, _ = text.open_loop()
        source = _at(text, sums, text.value(f"mul i64 {row}, {_NUMBERS}"))
        vector = text.value(f"load <{_ROWS} x i32>, ptr {source}, align 4")
        place = _at(text, target, text.value(f"mul i64 {row}, {stride}"))
        lanes = f"<{_ROWS} x i1> {first_lanes(_ROWS, width)}"
        name = f"@llvm.masked.store.v{_ROWS}i32.p0"
        text.line(f"call void {name}(<{_ROWS} x i32> {vector}, ptr align 4 {place}, {lanes})")
        text.close_loop(height)


def _at(text: FunctionText, pointer: str, offset: str) -> str:
    return text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
