"""Products as matrices in place: sizes and strides of the operands of an op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from spmd.analysis.affine import row_major
from spmd.analysis.matrices import Matrix, free_dimensions, matrix_of
from spmd.backends.llvm.matmul.blas import thread_count
from spmd.backends.llvm.matmul.integer_products import ByteOperand, IntegerProduct
from spmd.backends.llvm.matmul.tiles import LARGEST
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.rates import nanoseconds
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Op
from spmd.support.processor import Processor

#: By element type: the BLAS routine, and the LLVM type.
ROUTINES = {"f32": ("sgemm", "float"), "f64": ("dgemm", "double")}
#: By element type without a BLAS routine: the LLVM type.
INTEGERS = {"i32": "i32", "ui32": "i32", "i64": "i64", "ui64": "i64"}
#: Widest right operand, and longest left rows, of products for which packing in BLAS does not pay; longer rows conflict
#: in the cache.
_NARROW, _SHORT_ROW = 32, 1 << 10


@dataclass(frozen=True)
class Product:
    """A batched matrix product; small ones are tiled loops (`is_tiled`).

    `item` is the bytes per element, `leading` the row stride of the result in elements.
    """

    element: str
    item: int
    batch: tuple[int, ...]
    lhs: Matrix
    rhs: Matrix
    leading: int
    is_tiled: bool

    @property
    def size(self) -> int:
        """Multiply-adds of one product."""
        return self.lhs.rows * self.lhs.columns * self.rhs.columns

    @property
    def nanoseconds(self) -> int:
        """Approximate time of one product."""
        return nanoseconds("product", self.size * self.item)

    @property
    def runs_in_tasks(self) -> bool:
        """Whether threads may compute products in parallel: BLAS's own threads must be switched off meanwhile."""
        return self.is_tiled or thread_count() is not None

    def strides(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the batch strides in bytes of the left operand, the right one, and the result."""
        result = self.lhs.rows * self.rhs.columns
        in_result = tuple(stride * result for stride in row_major(self.batch))
        left, right, target = (
            tuple(stride * self.item for stride in each) for each in (self.lhs.batch, self.rhs.batch, in_result)
        )
        return left, right, target

    def steps(self, *, by_rows: bool) -> tuple[int, int, int]:
        """Return the bytes per row, or column, of the left operand, the right one, and the result."""
        if by_rows:
            return self.lhs.row_stride * self.item, 0, self.leading * self.item
        return 0, self.rhs.column_stride * self.item, self.item


def product_of(op: Op, *, in_fixed_order: bool = False) -> Product | None:
    """Return `op`, a dot_general or dot, as a batched product of matrices in the layouts that BLAS reads; None if it is
    not.

    `in_fixed_order`: products of floats are tiled loops, too; None if they cannot be.
    """
    types = {str(value.tensor.element_type) for value in (*op.operands, op.result)}
    if len(types) != 1 or not types <= {*ROUTINES, *INTEGERS}:
        return None
    product = _matrices_of(op)
    if product is None or (types <= set(ROUTINES) and not (in_fixed_order and product.rhs.column_stride == 1)):
        return product
    return replace(product, is_tiled=True) if product.rhs.column_stride == 1 else None


def integer_matrices_of(op: Op) -> Product | None:
    """Return the matrices of `op`, a product of 8-bit integers with 32-bit sums; None for anything else."""
    elements = [str(value.tensor.element_type) for value in op.operands]
    if not set(elements) <= {"i8", "ui8"} or str(op.result.tensor.element_type) not in ("i32", "ui32"):
        return None
    product = _matrices_of(op)
    is_empty = product is None or not prod(op.result.tensor.static_shape) or not product.lhs.columns
    return None if is_empty else product


def integer_product_of(op: Op, processor: Processor) -> IntegerProduct | None:
    """Return `op` as a product of 8-bit integers with 32-bit sums on `processor`; None if it is not."""
    product = integer_matrices_of(op)
    if product is None:
        return None
    lhs, rhs = product.lhs, product.rhs
    elements = [str(value.tensor.element_type) for value in op.operands]
    left = ByteOperand(lhs.row_stride, lhs.column_stride, lhs.batch, elements[0] == "i8")
    right = ByteOperand(rhs.column_stride, rhs.row_stride, rhs.batch, elements[1] == "i8")
    return IntegerProduct(product.batch, lhs.rows, rhs.columns, lhs.columns, left, right, processor)


def _matrices_of(op: Op) -> Product | None:
    """Return `op` as a product of matrices with a unit stride; None if it is not."""
    if not all(is_plain(value.type) for value in (*op.operands, op.result)):
        return None
    lhs, rhs = op.operands
    if op.name == "stablehlo.dot_general":
        if op["algorithm"] is not None:
            return None
        numbers = op["dot_dimension_numbers"]
    else:
        numbers = DotDimensionNumbersAttr((), (), (lhs.tensor.rank - 1,), (0,))
    left = free_dimensions(lhs.tensor.rank, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right = free_dimensions(rhs.tensor.rank, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    first = matrix_of(lhs, numbers.lhs_batching_dimensions, left, numbers.lhs_contracting_dimensions)
    second = matrix_of(rhs, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions, right)
    if first is None or second is None:
        return None
    sizes = [lhs.tensor.static_shape[d] for d in numbers.lhs_batching_dimensions]
    batch, first, second = _in_few_loops(sizes, first, second)
    element = str(op.result.tensor.element_type)
    item, leading = op.result.tensor.dtype.itemsize, max(second.columns, 1)
    is_tiled = _suits_tiles(first, second) and second.column_stride == 1
    return Product(element, item, batch, first, second, leading, is_tiled)


def _in_few_loops(sizes: Sequence[int], lhs: Matrix, rhs: Matrix) -> tuple[tuple[int, ...], Matrix, Matrix]:
    """Return the batching dimensions, merged where the strides of both operands allow."""
    merged: list[tuple[int, int, int]] = []
    for size, *strides in zip(sizes, lhs.batch, rhs.batch, strict=True):
        if merged and list(merged[-1][1:]) == [stride * size for stride in strides]:
            size *= merged.pop()[0]
        merged.append((size, strides[0], strides[1]))
    left, right = tuple(each[1] for each in merged), tuple(each[2] for each in merged)
    return tuple(each[0] for each in merged), replace(lhs, batch=left), replace(rhs, batch=right)


def _suits_tiles(left: Matrix, right: Matrix) -> bool:
    """Return whether a product is small, or so narrow that BLAS would pack a left operand that it reads only once."""
    size = left.rows * left.columns * right.columns
    narrow = right.columns <= _NARROW and left.columns <= _SHORT_ROW
    return size <= (LARGEST * _NARROW if narrow else LARGEST)
