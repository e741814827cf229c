"""Small matrix products as loops: where BLAS would spend more time on packing its operands than on multiplying.

A tile of the result, some rows by two vectors, stays in registers while a loop goes over what is contracted; each
step is a broadcast element of the left operand times a stretch of a row of the right one. Sums run in the order of the
contracted dimension, in fused steps, whatever the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmd.backends.llvm.processor import host
from spmd.backends.llvm.text import FunctionText

#: Multiply-adds up to which a product is written as loops.
LARGEST = 1 << 22
_VECTORS = 2


@dataclass(frozen=True)
class Tiled:
    """A product of `rows` x `depth` by `depth` x `columns` numbers of LLVM's `type`, `bits` wide.

    The left operand has any strides; the right one and the result have rows of neighbours, `right_stride` apart in
    the right one.
    """

    rows: int
    columns: int
    depth: int
    type: str
    bits: int
    left_row: int
    left_column: int
    right_stride: int

    @property
    def lanes(self) -> int:
        """Numbers of one vector register."""
        return host().vector_bits // self.bits

    @property
    def tile_rows(self) -> int:
        """Rows of a tile: as many as leave registers for the operands."""
        return 12 if host().vector_bits >= 512 else 6


def write_tiled(text: FunctionText, product: Tiled, left: str, right: str, result: str) -> None:
    """Writes `result = left * right`, the names of three addresses."""
    width = product.lanes * _VECTORS
    whole, rest = divmod(product.columns, width)
    if whole:
        column, _ = text.open_loop()
        _rows(text, product, left, right, result, column, [product.lanes] * _VECTORS)
        text.close_loop(whole * width, width)
    if rest:
        vectors = [min(product.lanes, rest - start) for start in range(0, rest, product.lanes)]
        _rows(text, product, left, right, result, str(whole * width), vectors)


def _rows(
    text: FunctionText, product: Tiled, left: str, right: str, result: str, column: str, valid: list[int]
) -> None:
    """A block of columns from `column` on; of each of its vectors as many lanes are `valid`."""
    whole, rest = divmod(product.rows, product.tile_rows)
    if whole:
        row, _ = text.open_loop()
        _tile(text, product, (left, right, result), (row, column), product.tile_rows, valid)
        text.close_loop(whole * product.tile_rows, product.tile_rows)
    if rest:
        with text.part():
            place = (str(whole * product.tile_rows), column)
            _tile(text, product, (left, right, result), place, rest, valid)


def _tile(
    text: FunctionText,
    product: Tiled,
    operands: tuple[str, str, str],
    place: tuple[str, str],
    rows: int,
    valid: list[int],
) -> None:
    left, right, result = operands
    row, column = place
    type, vector = product.type, f"<{product.lanes} x {product.type}>"
    sums = [[text.allocate(vector) for _ in valid] for _ in range(rows)]
    for slots in sums:
        for slot in slots:
            text.line(f"store {vector} zeroinitializer, ptr {slot}")
    first = text.value(f"mul i64 {row}, {product.left_row}")
    turn, _ = text.open_loop()
    across = text.value(f"mul i64 {turn}, {product.left_column}")
    start = text.value(f"add i64 {first}, {across}")
    down = text.value(f"mul i64 {turn}, {product.right_stride}")
    beside = text.value(f"add i64 {down}, {column}")
    stretches = [
        _load(text, product, right, text.value(f"add i64 {beside}, {number * product.lanes}"), count)
        for number, count in enumerate(valid)
    ]
    for number, slots in enumerate(sums):
        at = text.value(f"add i64 {start}, {number * product.left_row}")
        address = text.value(f"getelementptr {type}, ptr {left}, i64 {at}")
        one = text.value(f"load {type}, ptr {address}")
        single = text.value(f"insertelement {vector} poison, {type} {one}, i64 0")
        places = f"<{product.lanes} x i32> zeroinitializer"
        all_lanes = text.value(f"shufflevector {vector} {single}, {vector} poison, {places}")
        for slot, stretch in zip(slots, stretches, strict=True):
            before = text.value(f"load {vector}, ptr {slot}")
            name = f"@llvm.fma.v{product.lanes}f{product.bits}"
            after = text.value(f"call {vector} {name}({vector} {all_lanes}, {vector} {stretch}, {vector} {before})")
            text.line(f"store {vector} {after}, ptr {slot}")
    text.close_loop(product.depth)
    for number, slots in enumerate(sums):
        line = text.value(f"add i64 {row}, {number}")
        offset = text.value(f"mul i64 {line}, {product.columns}")
        target = text.value(f"add i64 {offset}, {column}")
        for which, (slot, count) in enumerate(zip(slots, valid, strict=True)):
            value = text.value(f"load {vector}, ptr {slot}")
            at = text.value(f"add i64 {target}, {which * product.lanes}")
            address = text.value(f"getelementptr {type}, ptr {result}, i64 {at}")
            _store(text, product, value, address, count)


def _load(text: FunctionText, product: Tiled, base: str, at: str, count: int) -> str:
    vector, align = f"<{product.lanes} x {product.type}>", product.bits // 8
    address = text.value(f"getelementptr {product.type}, ptr {base}, i64 {at}")
    if count == product.lanes:
        return text.value(f"load {vector}, ptr {address}, align {align}")
    return text.value(
        f"call {vector} @llvm.masked.load.v{product.lanes}f{product.bits}.p0(ptr align {align} {address}, "
        f"<{product.lanes} x i1> {_mask(product.lanes, count)}, {vector} zeroinitializer)"
    )


def _store(text: FunctionText, product: Tiled, value: str, address: str, count: int) -> None:
    vector, align = f"<{product.lanes} x {product.type}>", product.bits // 8
    if count == product.lanes:
        text.line(f"store {vector} {value}, ptr {address}, align {align}")
        return
    name = f"@llvm.masked.store.v{product.lanes}f{product.bits}.p0"
    mask = f"<{product.lanes} x i1> {_mask(product.lanes, count)}"
    text.line(f"call void {name}({vector} {value}, ptr align {align} {address}, {mask})")


def _mask(lanes: int, count: int) -> str:
    return "<" + ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes)) + ">"
