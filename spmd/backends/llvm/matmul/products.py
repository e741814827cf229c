"""Matrix products: BLAS calls, or tiles if they are small or of 8-bit integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from spmd.analysis.affine import row_major
from spmd.analysis.matrices import Matrix
from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import PlanTarget, native
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.matmul.blas import check_sizes
from spmd.backends.llvm.matmul.integer_products import IntegerProduct, pair_bytes, write_integer_product
from spmd.backends.llvm.matmul.matrices import (
    INTEGERS,
    ROUTINES,
    Product,
    integer_matrices_of,
    integer_product_of,
    product_of,
)
from spmd.backends.llvm.matmul.tile_products import BLOCK_ROWS, suits_tiles, tile_bytes, write_tile_product
from spmd.backends.llvm.matmul.tiles import Depth, Tiled, write_tiled
from spmd.backends.llvm.parallel.tasks import call_by_iterations
from spmd.compiler.schedule.rates import nanoseconds
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.compiler.schedule.tasks import tasks_of_time
from spmd.ir import Op
from spmd.support.processor import Processor

#: Tile sizes are multiples of this many rows or columns.
_GRANULARITY = 48
#: The kernel that calls a library.
_BLAS = "BLAS"


@dataclass(frozen=True)
class Ranges:
    """The rows, or columns, of a product in `count` ranges of `size`; the last one ends at `extent`."""

    extent: int
    size: int
    count: int = 1
    by_rows: bool = True

    @property
    def last(self) -> int:
        """The size of the last range."""
        return self.extent - (self.count - 1) * self.size


@dataclass(frozen=True)
class ProductForm:
    """How the products of a batch are computed: each in `ranges`, by `kernel`, with `own` bytes of scratch per task."""

    product: Product | IntegerProduct
    kernel: str
    ranges: Ranges
    own: int = 0

    def __str__(self) -> str:
        kind = "rows" if self.ranges.by_rows else "columns"
        return self.kernel + (f" by {self.ranges.size} {kind}" if self.ranges.count > 1 else "")


def _is_native(op: Op) -> bool:
    return product_of(op) is not None or integer_matrices_of(op) is not None


def _plan(op: Op, machine: PlanTarget, image_bytes: int | None) -> LibraryPlan:
    integers = integer_product_of(op, machine.processor)
    if integers is not None:
        return _plan_integers(integers, machine)
    product = product_of(op, in_fixed_order=machine.in_fixed_order)
    assert product is not None
    count = prod(product.batch)
    tasks = tasks_of_time(count * product.nanoseconds, machine.threads) if product.runs_in_tasks else 1
    ranges = Ranges(product.lhs.rows, product.lhs.rows)
    if tasks > max(1, count):
        ranges = _ranges(product, -(-min(tasks, machine.threads) // count)) or ranges
        tasks = count * ranges.count if ranges.count > 1 else 1
    kernel = str(_tiled(_range_of(product, ranges, ranges.size), machine.processor)) if product.is_tiled else _BLAS
    return LibraryPlan(tasks, form=ProductForm(product, kernel, ranges))


def _ranges(product: Product, num_parts: int) -> Ranges | None:
    """Return the split of each product into about `num_parts` ranges; None if it is too small."""
    by_rows = product.is_tiled or product.lhs.rows >= product.rhs.columns
    extent = product.lhs.rows if by_rows else product.rhs.columns
    size = -(-extent // (num_parts * _GRANULARITY)) * _GRANULARITY
    return Ranges(extent, size, extent // size, by_rows) if extent // size > 1 else None


@native("stablehlo.dot_general", _is_native, _plan)
@native("stablehlo.dot", _is_native, _plan)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    op, form, tasks = step.op, step.plan.form, step.plan.tasks
    assert isinstance(form, ProductForm)
    pointers = [writer.pointer(value) for value in (*op.operands, op.result)]
    product = form.product
    if not prod(op.result.tensor.static_shape):
        return
    if isinstance(product, Product) and not product.lhs.columns:  # empty sums
        writer.clear(pointers[2], op.result.tensor.nbytes)
        return
    if isinstance(product, Product) and form.kernel == _BLAS:
        lhs_sizes, rhs_sizes = ((each.rows, each.columns, each.leading) for each in (product.lhs, product.rhs))
        check_sizes(writer.routine(ROUTINES[product.element][0]), (*lhs_sizes, *rhs_sizes, product.leading), op)
    memory = (writer.address(step.scratch[0]), form.own) if form.own else None

    def write(text: FunctionText, pointer: Callable[[str], str], number: str) -> None:
        own = pointer(memory[0]) if memory is not None else ""
        _write_range(text, form, list(map(pointer, pointers)), number, partial(_multiply, writer, text, form, own))

    total = prod(product.batch) * form.ranges.count
    call_by_iterations(writer, total, tasks, write, memory=memory, products=form.kernel == _BLAS)


def _multiply(
    writer: FunctionEmitter, text: FunctionText, form: ProductForm, memory: str, size: int, pointers: Sequence[str]
) -> None:
    """Emit `size` rows, or columns, of one product."""
    product = form.product
    if isinstance(product, IntegerProduct):
        _KERNELS[form.kernel].write(text, product, pointers, memory, size)
    else:
        _write_product(writer, text, _range_of(product, form.ranges, size), pointers)


def _range_of(product: Product, ranges: Ranges, size: int) -> Product:
    """Return the product restricted to `size` rows, or columns."""
    if ranges.by_rows:
        return replace(product, lhs=replace(product.lhs, rows=size))
    return replace(product, rhs=replace(product.rhs, columns=size))


def _write_range(
    text: FunctionText,
    form: ProductForm,
    pointers: Sequence[str],
    number: str,
    multiply: Callable[[int, Sequence[str]], None],
) -> None:
    """Emit range `number` of all products by `multiply`, which is given its size and addresses."""
    product, ranges = form.product, form.ranges
    if ranges.count == 1:
        multiply(ranges.extent, _moved(text, product, pointers, _unraveled(text, product.batch, number)))
        return
    place = text.value(f"urem i64 {number}, {ranges.count}")
    index = _unraveled(text, product.batch, text.value(f"udiv i64 {number}, {ranges.count}"))
    begin = text.value(f"mul i64 {place}, {ranges.size}")
    steps = product.steps(by_rows=ranges.by_rows)
    moved = [
        _at(text, pointer, _times(text, begin, step) if step else "0")
        for pointer, step in zip(_moved(text, product, pointers, index), steps, strict=True)
    ]
    if ranges.last == ranges.size:
        multiply(ranges.size, moved)
        return
    for size, condition in ((ranges.size, "ult"), (ranges.last, "eq")):
        with text.where(text.value(f"icmp {condition} i64 {place}, {ranges.count - 1}")):
            multiply(size, moved)


def write_one_product(
    writer: FunctionEmitter, text: FunctionText, product: Product, number: str, places: Sequence[tuple[str, bool]]
) -> None:
    """Emit product `number` alone; `places` are (address, private) of operands and result: private ones hold this
    product's slice only.
    """
    index = _unraveled(text, product.batch, number)
    moved = _moved(text, product, [pointer for pointer, _ in places], index)
    _write_product(writer, text, product, [at if own else to for (at, own), to in zip(places, moved, strict=True)])


def _moved(
    text: FunctionText, product: Product | IntegerProduct, pointers: Sequence[str], index: Sequence[str]
) -> list[str]:
    """Return the addresses of one product's matrices; `index` has one SSA name or number per batching dimension."""
    moved = []
    for pointer, strides in zip(pointers, product.strides(), strict=True):
        offset = "0"
        for place, stride in zip(index, strides, strict=True):
            offset = _sum(text, offset, _times(text, place, stride))
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


def _unraveled(text: FunctionText, sizes: Sequence[int], number: str) -> list[str]:
    """Return the index of product `number` in the batching dimensions of `sizes`."""
    index = []
    for place, (size, stride) in enumerate(zip(sizes, row_major(sizes), strict=True)):
        if size == 1:
            index.append("0")
            continue
        quotient = number if stride == 1 else text.value(f"udiv i64 {number}, {stride}")
        index.append(text.value(f"urem i64 {quotient}, {size}") if prod(sizes[:place]) > 1 else quotient)
    return index


# --- integer products ---


@dataclass(frozen=True)
class _IntegerKernel:
    """A kernel for 8-bit integers; its name is that of its rate (schedule/rates.py)."""

    granularity: Callable[[IntegerProduct], int]
    scratch_bytes: Callable[[IntegerProduct], int]
    write: Callable[[FunctionText, IntegerProduct, Sequence[str], str, int], None]


_KERNELS = {
    "integer pairs": _IntegerKernel(lambda product: product.whole.tile_rows, pair_bytes, write_integer_product),
    "integer tiles": _IntegerKernel(lambda product: BLOCK_ROWS, tile_bytes, write_tile_product),
}


def _plan_integers(product: IntegerProduct, machine: PlanTarget) -> LibraryPlan:
    name = "integer tiles" if suits_tiles(product) and not product.is_long else "integer pairs"
    kernel, batch = _KERNELS[name], prod(product.batch)
    tasks = tasks_of_time(nanoseconds(name, product.size), machine.threads)
    granularity = kernel.granularity(product)
    size = min(-(-product.rows // (-(-tasks // batch) * granularity)) * granularity, product.rows)
    ranges = Ranges(product.rows, size, -(-product.rows // size))
    tasks, own = min(tasks, batch * ranges.count), kernel.scratch_bytes(product)
    return LibraryPlan(tasks, (tasks * own,), ProductForm(product, name, ranges, own))


# --- one product ---


def _write_product(writer: FunctionEmitter, text: FunctionText, product: Product, pointers: Sequence[str]) -> None:
    """Emit one product of matrices at known addresses, tiled or by BLAS."""
    if product.is_tiled:
        left, right, result = pointers
        write_tiled(text, _tiled(product, writer.target.processor), left, right, result)
    else:
        _call_blas(writer, text, product, pointers)


def _tiled(product: Product, processor: Processor) -> Tiled:
    """Return one product as tiled loops."""
    lhs, rhs = product.lhs, product.rhs
    depth = (Depth(lhs.columns, lhs.column_stride, rhs.row_stride),)
    type = INTEGERS.get(product.element) or ROUTINES[product.element][1]
    return Tiled(lhs.rows, rhs.columns, depth, type, 8 * product.item, lhs.row_stride, product.leading, processor)


def _call_blas(writer: FunctionEmitter, text: FunctionText, product: Product, pointers: Sequence[str]) -> None:
    """Emit a BLAS call. BLAS is column-major, so the operands are exchanged."""
    name, type = ROUTINES[product.element]
    gemm = writer.routine(name)

    def number(value: int) -> str:
        return writer.global_(gemm.integer, str(value))

    def flag(matrix: Matrix) -> str:
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
    text.call(f"call void @{gemm.symbol}({', '.join(f'ptr {argument}' for argument in arguments)})")
