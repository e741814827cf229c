"""Matrix products as tiled loops: small ones, for which packing in BLAS costs more than multiplying, and convolutions.

A tile of the result, some rows by two vectors, stays in registers over the contraction; each step multiplies a
broadcast left element by a row of vectors of the right operand. Sums run in the order of the contracted dimensions,
fused, and blocked if long (`tile_sums`). Small products are emitted inline with constant sizes; others call outlined
micro-kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.matmul.micro_kernels import MicroKernel, Packing, Sizes
from spmd.backends.llvm.matmul.tile_sums import LoopBlocks, Numbers, SumBlock, TileSums, blocks_of
from spmd.support.processor import Processor

#: Most multiply-adds of a product that is tiled.
LARGEST = 1 << 22
#: Least multiply-adds of a column block that calls a micro-kernel.
_LEAST_OUTLINED = 1 << 13
_VECTORS = 2


@dataclass(frozen=True)
class Depth:
    """A contracted dimension: its size, and the strides of both operands along it."""

    size: int
    left: int
    right: int


@dataclass(frozen=True)
class Outer:
    """A loop around products with the same right operand: its trip count, and the strides of left operand
    and result.
    """

    size: int
    left: int
    result: int


@dataclass(frozen=True)
class Tiled(Numbers):
    """A product of elements of LLVM `type`, `bits` wide: `rows` by `columns` sums over the dimensions `depth`.

    The left operand has any strides; rows of the right one and of the result are contiguous.
    """

    rows: int
    columns: int
    depth: tuple[Depth, ...]
    type: str
    bits: int
    left_row: int
    result_row: int
    processor: Processor
    paired: bool = False

    def __str__(self) -> str:
        how = " outlined" if self.is_outlined(min(self.columns, self.width)) else ""
        return f"tiles {self.tile_rows}x{self.width}{how}"

    def is_outlined(self, columns: int) -> bool:
        """Return whether a block of `columns` columns is a call of a micro-kernel."""
        return self.rows * self.depth_rows * columns >= _LEAST_OUTLINED

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.lanes * _VECTORS

    @property
    def tile_rows(self) -> int:
        """Rows of a tile: limited by registers, and dividing the rows evenly."""
        most = 12 if self.processor.vector_registers >= 32 else 6
        return -(-self.rows // max(1, -(-self.rows // most)))

    @property
    def depth_rows(self) -> int:
        """Rows of the right operand."""
        return prod(each.size for each in self.depth)

    @property
    def blocks(self) -> tuple[SumBlock, ...]:
        """The blocks of float sums."""
        return blocks_of([each.size for each in self.depth]) if self.kind == "f" else ()

    @property
    def packed_elements(self) -> int:
        """Elements of the packed right operand."""
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
    """Emit `result = left * right`, for each iteration of the loops `outer`.

    `packed` is the address of the right operand packed by `pack`, if it is.
    """
    for column, valid in column_blocks(text, product):
        _Columns(text, product, (left, right, result), column, valid, packed).write(outer)


def pack(text: FunctionText, product: Tiled, right: str, target: str) -> None:
    """Emit packing of the right operand into column panels.

    `target` has room for `packed_elements`; rows of the right operand must have one stride.
    """
    item, stride = product.bits // 8, product.depth[-1].right
    blocks, rest = divmod(product.columns, product.width)
    for columns, count, first in ((product.width, blocks, 0), (rest, 1, blocks * product.width)):
        if columns and count:
            packing = Packing(product.type, product.bits, product.processor, product.width, _valid(product, columns))
            source, place = (
                text.value(f"getelementptr i8, ptr {pointer}, i64 {offset * item}")
                for pointer, offset in ((right, first), (target, first * product.depth_rows))
            )
            packing.write_call(text, [source, place, str(count), str(product.depth_rows), str(stride * item)])


def column_blocks(text: FunctionText, product: Tiled) -> Iterator[tuple[str, list[int]]]:
    """Yield the first column of each block of columns, and the valid lanes of its vectors.

    Code emitted meanwhile runs for each block.
    """
    for column, columns in text.chunks(product.columns, product.width):
        yield column, list(_valid(product, columns))


def _valid(product: Tiled, columns: int) -> tuple[int, ...]:
    """Return the valid lanes of each vector of a block of `columns` columns."""
    return tuple(min(product.lanes, columns - first) for first in range(0, columns, product.lanes))


class _Columns:
    """The block of columns from `column` on, whose vectors have `valid` lanes."""

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
        if product.is_outlined(sum(self.valid)):
            self._call(left, result)
            return
        for row, rows in text.chunks(product.rows, product.tile_rows):
            self._tile(row, left, result, rows)

    # --- outlined ---

    def _call(self, left: str, result: str) -> None:
        """Emit calls of micro-kernels: for all full tiles, and for the remaining rows."""
        product = self.product
        tiles, rest = divmod(product.rows, product.tile_rows)
        done = tiles * product.tile_rows
        right = self.right if self.packed is None else self.packed
        right = self._address(right, self._first_of_right())
        result = self._plus(result, self.column)
        for rows, count, first in ((product.tile_rows, tiles, 0), (rest, 1, done)):
            if rows:
                kernel = MicroKernel(
                    product.type,
                    product.bits,
                    product.processor,
                    rows,
                    tuple(self.valid),
                    len(product.depth),
                    tuple(block.loop for block in product.blocks),
                    self.packed is not None,
                    product.paired,
                )
                addresses = (
                    self._address(self.left, self._shifted(left, first * product.left_row)),
                    right,
                    self._address(self.result, self._shifted(result, first * product.result_row)),
                )
                kernel.call(self.text, addresses, self._sizes(count))

    def _sizes(self, tiles: int) -> Sizes:
        product = self.product
        item = product.bits // 8
        loops = tuple((each.size, each.left * item, self._right_stride(each) * item) for each in product.depth)
        return Sizes(tiles, product.left_row * item, product.result_row * item, loops, product.blocks)

    # --- inline ---

    def _tile(self, row: str, left: str, result: str, rows: int) -> None:
        text, product = self.text, self.product
        sums = TileSums(text, product, rows, self.valid, [self._turns(loop) for loop in range(len(product.depth))])

        def move(loop: int, iteration: str, left: str, right: str) -> tuple[str, str]:
            depth = product.depth[loop]
            further = text.value(f"mul i64 {iteration}, {self._right_stride(depth)}")
            return self._plus(left, text.value(f"mul i64 {iteration}, {depth.left}")), self._plus(right, further)

        def step(left: str, right: str) -> None:
            places = [self._shifted(left, number * product.left_row) for number in range(rows)]
            column = [self._address(self.left, each) for each in places]
            sums.add(column, self._address(self.packed or self.right, right), whole=self.packed is not None)

        first = self._plus(left, text.value(f"mul i64 {row}, {product.left_row}"))
        sums.write_loops(first, self._first_of_right(), move, step)
        target = self._plus(self._plus(text.value(f"mul i64 {row}, {product.result_row}"), result), self.column)
        places = [self._shifted(target, number * product.result_row) for number in range(rows)]
        sums.put([self._address(self.result, place) for place in places])

    def _turns(self, loop: int) -> LoopBlocks:
        blocks = [str(block.iterations) for block in self.product.blocks if block.loop == loop]
        return LoopBlocks(str(self.product.depth[loop].size), tuple(reversed(blocks)))

    # --- addresses ---

    def _first_of_right(self) -> str:
        """Return the offset of the block in the right operand."""
        if self.packed is None:
            return self.column
        return self.text.value(f"mul i64 {self.column}, {self.product.depth_rows}")

    def _right_stride(self, depth: Depth) -> int:
        """Return the stride of a contracted dimension in the right operand, packed or not."""
        if self.packed is None:
            return depth.right
        return depth.right // self.product.depth[-1].right * self.product.width

    def _address(self, base: str, place: str) -> str:
        return self.text.value(f"getelementptr {self.product.type}, ptr {base}, i64 {place}")

    def _plus(self, first: str, second: str) -> str:
        if first == "0":
            return second
        return first if second == "0" else self.text.value(f"add i64 {first}, {second}")

    def _shifted(self, place: str, offset: int) -> str:
        return self._plus(place, str(offset))
