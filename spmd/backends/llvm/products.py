"""Matrix products as calls of BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product as index_product
from math import prod

from spmd.analysis.affine import row_major
from spmd.backends.llvm.blas import thread_count
from spmd.backends.llvm.function import Frame, FunctionWriter, native
from spmd.backends.llvm.integer_products import IntegerProduct, supports_pairs, write_integer_product
from spmd.backends.llvm.parts import PartFunction, call_in_parts, parts_of_time
from spmd.backends.llvm.text import FunctionText
from spmd.backends.llvm.tiles import LARGEST, Depth, Tiled, write_tiled
from spmd.compiler.schedule.forms import is_plain
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Op, Value

#: By element type: the routine, and the type in LLVM.
_ROUTINES = {"f32": ("sgemm", "float"), "f64": ("dgemm", "double")}
#: Bytes' worth of numbers multiplied and added in a nanosecond, roughly.
_SPEED = 160
#: Rows or columns that a part of a product has a multiple of.
_TURN = 48
#: Batches whose products are written one after another; more are run in a loop.
_WRITTEN_OUT = 4


@dataclass(frozen=True)
class _Matrix:
    """An operand as matrices: the strides of its batching dimensions, of its rows and of its columns, in elements."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    row_stride: int
    column_stride: int

    @property
    def leading(self) -> int:
        """BLAS's leading dimension."""
        return max(self.row_stride, self.column_stride, 1)


@dataclass(frozen=True)
class _Product:
    """Products of matrices; small ones are written as loops (`is_tiled`).

    `item` is an element's bytes, `leading` the elements from one row of a result to the next.
    """

    element: str
    item: int
    batch: tuple[int, ...]
    lhs: _Matrix
    rhs: _Matrix
    leading: int
    is_tiled: bool

    @property
    def size(self) -> int:
        """Multiplications of each product."""
        return self.lhs.rows * self.lhs.columns * self.rhs.columns

    def strides(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Of the batching dimensions: in the left operand, the right one, and the result."""
        result = self.lhs.rows * self.rhs.columns
        return self.lhs.batch, self.rhs.batch, tuple(stride * result for stride in row_major(self.batch))


def _merged(shape: Sequence[int], strides: Sequence[int], dimensions: Sequence[int]) -> tuple[int, int] | None:
    """Size and stride of several dimensions taken as one, in their order; None where they are no one dimension."""
    size, stride = 1, 0
    for dimension in reversed(dimensions):
        if shape[dimension] == 1:
            continue
        if size == 1:
            size, stride = shape[dimension], strides[dimension]
        elif strides[dimension] == stride * size:
            size *= shape[dimension]
        else:
            return None
    return size, stride


def _matrix(value: Value, batching: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> _Matrix | None:
    shape = value.tensor.static_shape
    strides = row_major(shape)
    by_row, by_column = _merged(shape, strides, rows), _merged(shape, strides, columns)
    if by_row is None or by_column is None:
        return None
    (row_count, row_stride), (column_count, column_stride) = by_row, by_column
    if row_count > 1 and column_count > 1 and 1 not in (row_stride, column_stride):
        return None
    if row_count == 1:
        row_stride = column_count if column_stride in (0, 1) else 1
    if column_count == 1:
        column_stride = 1 if row_stride != 1 else row_count
    if 1 not in (row_stride, column_stride):
        return None
    return _Matrix(tuple(strides[d] for d in batching), row_count, column_count, row_stride, column_stride)


def product_of(op: Op) -> _Product | None:
    """`op`, a dot_general or dot, as products of matrices that lie in memory as BLAS reads them; None otherwise."""
    types = {str(value.tensor.element_type) for value in (*op.operands, op.result)}
    return _matrices_of(op) if len(types) == 1 and types <= set(_ROUTINES) else None


def integer_product_of(op: Op) -> IntegerProduct | None:
    """`op` as one product of 8-bit integers whose neighbours in memory are those that are read together; None
    otherwise."""
    elements = [str(value.tensor.element_type) for value in op.operands]
    if not set(elements) <= {"i8", "ui8"} or str(op.result.tensor.element_type) not in ("i32", "ui32"):
        return None
    product = _matrices_of(op) if supports_pairs() else None
    if product is None or prod(product.batch) != 1 or not prod(op.result.tensor.static_shape):
        return None
    lhs, rhs = product.lhs, product.rhs
    if lhs.column_stride != 1 or rhs.column_stride != 1 or not lhs.columns:
        return None
    signed = [element == "i8" for element in elements]
    strides = ((lhs.row_stride, 1), (rhs.row_stride, 1))
    return IntegerProduct(lhs.rows, rhs.columns, lhs.columns, *strides, *signed)


def _matrices_of(op: Op) -> _Product | None:
    """`op` as products of matrices of which rows or columns lie side by side; None otherwise."""
    if not all(is_plain(value.type) for value in (*op.operands, op.result)):
        return None
    lhs, rhs = op.operands
    if op.name == "stablehlo.dot_general":
        if op["algorithm"] is not None:
            return None
        numbers = op["dot_dimension_numbers"]
    else:
        numbers = DotDimensionNumbersAttr((), (), (lhs.tensor.rank - 1,), (0,))
    left = _free(lhs, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right = _free(rhs, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    first = _matrix(lhs, numbers.lhs_batching_dimensions, left, numbers.lhs_contracting_dimensions)
    second = _matrix(rhs, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions, right)
    if first is None or second is None:
        return None
    batch = tuple(lhs.tensor.static_shape[d] for d in numbers.lhs_batching_dimensions)
    element = str(op.result.tensor.element_type)
    item, leading = op.result.tensor.dtype.itemsize, max(second.columns, 1)
    is_tiled = first.rows * first.columns * second.columns <= LARGEST and second.column_stride == 1
    return _Product(element, item, batch, first, second, leading, is_tiled)


def _free(value: Value, batching: Sequence[int], contracting: Sequence[int]) -> list[int]:
    return [d for d in range(value.tensor.rank) if d not in batching and d not in contracting]


def _is_native(op: Op) -> bool:
    return product_of(op) is not None or integer_product_of(op) is not None


@native("stablehlo.dot_general", _is_native)
@native("stablehlo.dot", _is_native)
def _(writer: FunctionWriter, op: Op, frame: Frame) -> None:
    integers = integer_product_of(op)
    if integers is not None:
        left, right = (writer.pointer(operand) for operand in op.operands)
        target = writer.allocate(frame, op.result).pointer
        memory = tuple(writer.scratch(frame, size).pointer for size in (integers.left_bytes, integers.right_bytes))
        write_integer_product(writer.text, integers, (left, right, target), (memory[0], memory[1]))
        return
    product = product_of(op)
    assert product is not None
    lhs, rhs = (writer.pointer(operand) for operand in op.operands)
    result = writer.allocate(frame, op.result).pointer
    if not prod(op.result.tensor.static_shape):
        return
    if not product.lhs.columns:  # sums of nothing
        writer.clear(result, op.result.tensor.nbytes)
        return
    count = prod(product.batch)
    parts = parts_of_time(count * product.size * product.item // _SPEED, writer.threads)
    if thread_count() is None and not product.is_tiled:
        parts = 1  # its own threads would get in each other's way
    pointers = (lhs, rhs, result)
    if parts > 1 and count >= parts:
        _in_batches(writer, product, pointers, parts)
    elif parts > 1 and (cut := _cut(product, -(-min(parts, writer.threads) // count))) is not None:
        _in_stretches(writer, product, pointers, cut)
    elif count <= _WRITTEN_OUT:
        for index in index_product(*map(range, product.batch)):
            _multiply(writer, writer.text, product, _moved(writer.text, product, pointers, list(map(str, index))))
    else:
        _in_loops(writer, product, pointers)


def _moved(text: FunctionText, product: _Product, pointers: Sequence[str], index: Sequence[str]) -> list[str]:
    """The addresses of one product's matrices; `index` are names or numbers, one a batching dimension."""
    moved = []
    for pointer, strides in zip(pointers, product.strides(), strict=True):
        offset = "0"
        for place, stride in zip(index, strides, strict=True):
            offset = _sum(text, offset, _times(text, place, stride * product.item))
        moved.append(_at(text, pointer, offset))
    return moved


def _times(text: FunctionText, number: str, factor: int) -> str:
    return text.value(f"mul i64 {number}, {factor}") if "%" in number else str(int(number) * factor)


def _sum(text: FunctionText, first: str, second: str) -> str:
    if "%" not in first + second:
        return str(int(first) + int(second))
    return second if first == "0" else text.value(f"add i64 {first}, {second}")


def _at(text: FunctionText, pointer: str, offset: str) -> str:
    return pointer if offset == "0" else text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")


def _in_loops(writer: FunctionWriter, product: _Product, pointers: Sequence[str]) -> None:
    """One product after another."""
    text = writer.text
    index = [text.open_loop()[0] for _ in product.batch]
    _multiply(writer, text, product, _moved(text, product, pointers, index))
    for size in reversed(product.batch):
        text.close_loop(size)


# --- in parts: each of them has products of its own, or some rows or columns of each product ---


def _in_batches(writer: FunctionWriter, product: _Product, pointers: Sequence[str], parts: int) -> None:
    count = prod(product.batch)

    def write(part: PartFunction) -> None:
        text = part.text
        done = text.value(f"mul i64 %part, {count}")
        first, stop = (text.value(f"udiv i64 {total}, {parts}") for total in (done, _sum(text, done, f"{count}")))
        inner = [part.pointer(pointer) for pointer in pointers]
        number, _ = text.open_loop()
        _multiply(writer, text, product, _moved(text, product, inner, _unraveled(text, product, number)))
        text.close_loop(stop, 1, first)

    call_in_parts(writer, parts, write, products=True)


def _unraveled(text: FunctionText, product: _Product, number: str) -> list[str]:
    """The index of product `number` in the batching dimensions."""
    index = []
    for size, stride in zip(product.batch, row_major(product.batch), strict=True):
        quotient = text.value(f"udiv i64 {number}, {stride}")
        index.append(text.value(f"urem i64 {quotient}, {size}"))
    return index


@dataclass(frozen=True)
class _Cut:
    """Rows of a product's result, or its columns, in `count` stretches of `size`, the last with what is left over."""

    by_rows: bool
    extent: int
    size: int

    @property
    def count(self) -> int:
        return self.extent // self.size


def _cut(product: _Product, num_parts: int) -> _Cut | None:
    """How each product is cut in about `num_parts` stretches; None where it is too small."""
    by_rows = product.is_tiled or product.lhs.rows >= product.rhs.columns
    extent = product.lhs.rows if by_rows else product.rhs.columns
    cut = _Cut(by_rows, extent, -(-extent // (num_parts * _TURN)) * _TURN)
    return cut if cut.count > 1 else None


def _in_stretches(writer: FunctionWriter, product: _Product, pointers: Sequence[str], cut: _Cut) -> None:
    last = cut.extent - (cut.count - 1) * cut.size

    def write(part: PartFunction) -> None:
        text = part.text
        stretch = text.value(f"urem i64 %part, {cut.count}")
        batch = _unraveled(text, product, text.value(f"udiv i64 %part, {cut.count}"))
        lhs, rhs, result = _moved(text, product, [part.pointer(pointer) for pointer in pointers], batch)
        begin = text.value(f"mul i64 {stretch}, {cut.size * product.item}")
        if cut.by_rows:
            lhs = _at(text, lhs, _times(text, begin, product.lhs.row_stride))
            result = _at(text, result, _times(text, begin, product.leading))
        else:
            rhs = _at(text, rhs, _times(text, begin, product.rhs.column_stride))
            result = _at(text, result, begin)
        if last == cut.size:
            _multiply(writer, text, _stretch_of(product, cut, last), (lhs, rhs, result))
            return
        for size, condition in ((cut.size, "ult"), (last, "eq")):
            with text.where(text.value(f"icmp {condition} i64 {stretch}, {cut.count - 1}")):
                _multiply(writer, text, _stretch_of(product, cut, size), (lhs, rhs, result))

    call_in_parts(writer, prod(product.batch) * cut.count, write, products=True)


def _stretch_of(product: _Product, cut: _Cut, size: int) -> _Product:
    """The product of so many rows, or columns."""
    if cut.by_rows:
        return replace(product, lhs=replace(product.lhs, rows=size))
    return replace(product, rhs=replace(product.rhs, columns=size))


# --- one product ---


def _multiply(writer: FunctionWriter, text: FunctionText, product: _Product, pointers: Sequence[str]) -> None:
    """One product of matrices at known addresses, in tiles or by BLAS."""
    lhs, rhs = product.lhs, product.rhs
    if product.is_tiled:
        depth = (Depth(lhs.columns, lhs.column_stride, rhs.row_stride),)
        type = _ROUTINES[product.element][1]
        tiled = Tiled(lhs.rows, rhs.columns, depth, type, 8 * product.item, lhs.row_stride, product.leading)
        left, right, result = pointers
        write_tiled(text, tiled, left, right, result)
    else:
        _call_blas(writer, text, product, pointers)


def _call_blas(writer: FunctionWriter, text: FunctionText, product: _Product, pointers: Sequence[str]) -> None:
    """BLAS counts columns first, so that it is given the operands in reverse."""
    name, type = _ROUTINES[product.element]
    gemm = writer.routine(name)

    def number(value: int) -> str:
        return writer.global_(gemm.integer, str(value))

    def flag(matrix: _Matrix) -> str:
        return writer.global_("i8", "78" if matrix.column_stride == 1 and matrix.columns >= 1 else "84")

    one, zero = (writer.global_(type, f"{value}.0") for value in (1, 0))
    arguments = [
        flag(product.rhs), flag(product.lhs),
        number(product.rhs.columns), number(product.lhs.rows), number(product.lhs.columns),
        one, pointers[1], number(product.rhs.leading), pointers[0], number(product.lhs.leading),
        zero, pointers[2], number(product.leading),
    ]  # fmt: skip
    writer.symbols[gemm.symbol] = gemm.address
    text.declarations[f"declare void @{gemm.symbol}({', '.join(['ptr'] * 13)})"] = None
    text.line(f"call void @{gemm.symbol}({', '.join(f'ptr {argument}' for argument in arguments)})")
