"""Matrix products as calls of BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as index_product
from math import prod

from spmd.analysis.affine import row_major
from spmd.backends.llvm.blas import routine
from spmd.backends.llvm.function import Frame, FunctionWriter, native
from spmd.backends.llvm.tiles import LARGEST, Tiled, write_tiled
from spmd.compiler.schedule.forms import is_plain
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Op, Value

#: By element type: the routine, and the type in LLVM.
_ROUTINES = {"f32": ("sgemm", "float"), "f64": ("dgemm", "double")}
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
    batch: tuple[int, ...]
    lhs: _Matrix
    rhs: _Matrix


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
    if len(types) != 1 or not types <= set(_ROUTINES) or not all(is_plain(v.type) for v in (*op.operands, op.result)):
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
    return _Product(batch, first, second)


def _free(value: Value, batching: Sequence[int], contracting: Sequence[int]) -> list[int]:
    return [d for d in range(value.tensor.rank) if d not in batching and d not in contracting]


@native("stablehlo.dot_general", lambda op: product_of(op) is not None)
@native("stablehlo.dot", lambda op: product_of(op) is not None)
def _(writer: FunctionWriter, op: Op, frame: Frame) -> None:
    product = product_of(op)
    assert product is not None
    lhs, rhs = (writer.pointer(operand) for operand in op.operands)
    result = writer.allocate(frame, op.result).pointer
    element = str(op.result.tensor.element_type)
    item = op.result.tensor.dtype.itemsize
    if not prod(op.result.tensor.static_shape):
        return
    if not product.lhs.columns:  # sums of nothing
        writer.clear(result, op.result.tensor.nbytes)
        return
    size = product.lhs.rows * product.rhs.columns
    if prod(product.batch) <= _WRITTEN_OUT:
        for number, index in enumerate(index_product(*map(range, product.batch))):
            offsets = [
                sum(place * stride for place, stride in zip(index, matrix.batch, strict=True))
                for matrix in (product.lhs, product.rhs)
            ]
            places = [str(item * offset) for offset in (*offsets, number * size)]
            _multiply(writer, product, element, lhs, rhs, result, places)
        return
    _in_loops(writer, product, element, item, lhs, rhs, result)


def _in_loops(
    writer: FunctionWriter, product: _Product, element: str, item: int, lhs: str, rhs: str, result: str
) -> None:
    text = writer.text
    places = ["0", "0", "0"]
    results = [stride * product.lhs.rows * product.rhs.columns for stride in row_major(product.batch)]
    for strides in zip(product.lhs.batch, product.rhs.batch, results, strict=True):
        name, _ = text.open_loop()
        for which, stride in enumerate(strides):
            step = text.value(f"mul i64 {name}, {stride * item}")
            places[which] = text.value(f"add i64 {places[which]}, {step}")
    _multiply(writer, product, element, lhs, rhs, result, places)
    for size in reversed(product.batch):
        text.close_loop(size)


def _multiply(
    writer: FunctionWriter, product: _Product, element: str, lhs: str, rhs: str, result: str, places: Sequence[str]
) -> None:
    """One product. BLAS counts columns first, so that it is given the operands in reverse."""
    name, type = _ROUTINES[element]
    gemm = routine(name)
    text = writer.text
    pointers = [
        pointer if place == "0" else text.value(f"getelementptr i8, ptr {pointer}, i64 {place}")
        for pointer, place in zip((lhs, rhs, result), places, strict=True)
    ]

    def number(value: int) -> str:
        return writer.global_(gemm.integer, str(value))

    def flag(matrix: _Matrix) -> str:
        return writer.global_("i8", "78" if matrix.column_stride == 1 and matrix.columns >= 1 else "84")

    lhs_matrix, rhs_matrix = product.lhs, product.rhs
    size = lhs_matrix.rows * lhs_matrix.columns * rhs_matrix.columns
    if size <= LARGEST and rhs_matrix.column_stride == 1:
        bits = 32 if element == "f32" else 64
        tiled = Tiled(
            lhs_matrix.rows,
            rhs_matrix.columns,
            lhs_matrix.columns,
            type,
            bits,
            lhs_matrix.row_stride,
            lhs_matrix.column_stride,
            rhs_matrix.row_stride,
        )
        write_tiled(text, tiled, pointers[0], pointers[1], pointers[2])
        return

    one, zero = (writer.global_(type, f"{value}.0") for value in (1, 0))
    arguments = [
        flag(product.rhs), flag(product.lhs),
        number(product.rhs.columns), number(product.lhs.rows), number(product.lhs.columns),
        one, pointers[1], number(product.rhs.leading), pointers[0], number(product.lhs.leading),
        zero, pointers[2], number(max(product.rhs.columns, 1)),
    ]  # fmt: skip
    writer.symbols[name] = gemm.address
    text.declarations[f"declare void @{name}({', '.join(['ptr'] * 13)})"] = None
    text.line(f"call void @{name}({', '.join(f'ptr {argument}' for argument in arguments)})")
