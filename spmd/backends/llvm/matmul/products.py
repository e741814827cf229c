"""Matrix products: BLAS calls, or tiles if they are small or of 8-bit integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product as index_product
from math import prod

from spmd.analysis.affine import row_major
from spmd.analysis.matrices import Matrix
from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import PlanTarget, native
from spmd.backends.llvm.emit.task_function import TaskFunction
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
from spmd.backends.llvm.parallel.tasks import call_by_iterations, call_in_tasks
from spmd.compiler.schedule.rates import nanoseconds
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.compiler.schedule.tasks import tasks_of_time
from spmd.ir import Op

#: Tile sizes are multiples of this many rows or columns.
_GRANULARITY = 48
#: Most batches whose products are unrolled.
_MOST_UNROLLED = 4


def _is_native(op: Op) -> bool:
    return product_of(op) is not None or integer_matrices_of(op) is not None


def _plan(op: Op, machine: PlanTarget, image_bytes: int | None) -> LibraryPlan:
    integers = integer_product_of(op, machine.processor)
    if integers is not None:
        return _plan_integers(integers, machine)
    product = product_of(op, in_fixed_order=machine.in_fixed_order)
    assert product is not None
    tasks = tasks_of_time(prod(product.batch) * product.nanoseconds, machine.threads)
    return LibraryPlan(tasks if product.runs_in_tasks else 1)


@native("stablehlo.dot_general", _is_native, _plan)
@native("stablehlo.dot", _is_native, _plan)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    op = step.op
    integers = integer_product_of(op, writer.target.processor)
    if integers is not None:
        _write_integers(writer, step, integers)
        return
    product = product_of(op, in_fixed_order=writer.target.in_fixed_order)
    assert product is not None
    lhs, rhs = (writer.pointer(operand) for operand in op.operands)
    result = writer.pointer(op.result)
    if not prod(op.result.tensor.static_shape):
        return
    if not product.lhs.columns:  # empty sums
        writer.clear(result, op.result.tensor.nbytes)
        return
    if not product.is_tiled:
        lhs_sizes, rhs_sizes = ((each.rows, each.columns, each.leading) for each in (product.lhs, product.rhs))
        check_sizes(writer.routine(ROUTINES[product.element][0]), (*lhs_sizes, *rhs_sizes, product.leading), op)
    count, parts = prod(product.batch), step.plan.tasks
    pointers = (lhs, rhs, result)
    if parts > 1 and count >= parts:
        _in_batches(writer, product, pointers, parts)
    elif parts > 1 and (cut := _cut(product, -(-min(parts, writer.threads) // count))) is not None:
        _in_ranges(writer, product, pointers, cut)
    else:
        _in_sequence(writer, product, pointers)


def write_one_product(
    writer: FunctionEmitter, text: FunctionText, product: Product, number: str, places: Sequence[tuple[str, bool]]
) -> None:
    """Emit product `number` alone; `places` are (address, private) of operands and result: private ones hold this
    product's slice only.
    """
    index = _unraveled(text, product, number)
    moved = _moved(text, product, [pointer for pointer, _ in places], index)
    _multiply(writer, text, product, [at if own else to for (at, own), to in zip(places, moved, strict=True)])


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


def _in_sequence(writer: FunctionEmitter, product: Product, pointers: Sequence[str]) -> None:
    """Emit one product after another."""
    text = writer.text
    if prod(product.batch) <= _MOST_UNROLLED:
        for place in index_product(*map(range, product.batch)):
            _multiply(writer, text, product, _moved(text, product, pointers, list(map(str, place))))
        return
    index = [text.open_loop()[0] for _ in product.batch]
    _multiply(writer, text, product, _moved(text, product, pointers, index))
    for size in reversed(product.batch):
        text.close_loop(size)


# --- tasks: products, or rows or columns of each product ---


def _in_batches(writer: FunctionEmitter, product: Product, pointers: Sequence[str], parts: int) -> None:
    def write(text: FunctionText, pointer: Callable[[str], str], number: str) -> None:
        inner = list(map(pointer, pointers))
        _multiply(writer, text, product, _moved(text, product, inner, _unraveled(text, product, number)))

    call_by_iterations(writer, prod(product.batch), parts, write, products=True)


def _unraveled(text: FunctionText, product: Product | IntegerProduct, number: str) -> list[str]:
    """Return the index of product `number` in the batching dimensions."""
    index = []
    for size, stride in zip(product.batch, row_major(product.batch), strict=True):
        quotient = text.value(f"udiv i64 {number}, {stride}")
        index.append(text.value(f"urem i64 {quotient}, {size}"))
    return index


@dataclass(frozen=True)
class _Cut:
    """The split of a result's rows, or columns, into `count` ranges of `size`; the last one includes the remainder."""

    by_rows: bool
    extent: int
    size: int

    @property
    def count(self) -> int:
        return self.extent // self.size


def _cut(product: Product, num_parts: int) -> _Cut | None:
    """Return the split of each product into about `num_parts` ranges; None if it is too small."""
    by_rows = product.is_tiled or product.lhs.rows >= product.rhs.columns
    extent = product.lhs.rows if by_rows else product.rhs.columns
    cut = _Cut(by_rows, extent, -(-extent // (num_parts * _GRANULARITY)) * _GRANULARITY)
    return cut if cut.count > 1 else None


def _in_ranges(writer: FunctionEmitter, product: Product, pointers: Sequence[str], cut: _Cut) -> None:
    last = cut.extent - (cut.count - 1) * cut.size

    def write(task: TaskFunction) -> None:
        text = task.text
        range_number = text.value(f"urem i64 %part, {cut.count}")
        batch = _unraveled(text, product, text.value(f"udiv i64 %part, {cut.count}"))
        lhs, rhs, result = _moved(text, product, [task.pointer(pointer) for pointer in pointers], batch)
        begin = text.value(f"mul i64 {range_number}, {cut.size * product.item}")
        if cut.by_rows:
            lhs = _at(text, lhs, _times(text, begin, product.lhs.row_stride))
            result = _at(text, result, _times(text, begin, product.leading))
        else:
            rhs = _at(text, rhs, _times(text, begin, product.rhs.column_stride))
            result = _at(text, result, begin)
        if last == cut.size:
            _multiply(writer, text, _range_of(product, cut, last), (lhs, rhs, result))
            return
        for size, condition in ((cut.size, "ult"), (last, "eq")):
            with text.where(text.value(f"icmp {condition} i64 {range_number}, {cut.count - 1}")):
                _multiply(writer, text, _range_of(product, cut, size), (lhs, rhs, result))

    call_in_tasks(writer, prod(product.batch) * cut.count, write, products=True)


def _range_of(product: Product, cut: _Cut, size: int) -> Product:
    """Return the product restricted to `size` rows, or columns."""
    if cut.by_rows:
        return replace(product, lhs=replace(product.lhs, rows=size))
    return replace(product, rhs=replace(product.rhs, columns=size))


# --- integer products ---


@dataclass(frozen=True)
class _IntegerKernel:
    """A kernel for 8-bit integers: its rate (schedule/rates.py); granularity of row ranges; scratch bytes;
    and emitter.
    """

    rate: str
    granularity: Callable[[IntegerProduct], int]
    scratch_bytes: Callable[[IntegerProduct], int]
    write: Callable[[FunctionText, IntegerProduct, Sequence[str], str, int], None]


_PAIRS = _IntegerKernel("integer pairs", lambda product: product.whole.tile_rows, pair_bytes, write_integer_product)
_TILES = _IntegerKernel("integer tiles", lambda product: BLOCK_ROWS, tile_bytes, write_tile_product)


def _kernel_of(product: IntegerProduct) -> _IntegerKernel:
    return _TILES if suits_tiles(product) and not product.is_long else _PAIRS


def _rows_per_range(product: IntegerProduct, kernel: _IntegerKernel, tasks: int) -> int:
    """Return the rows per range for the given number of tasks."""
    granularity = kernel.granularity(product)
    return min(-(-product.rows // (-(-tasks // prod(product.batch)) * granularity)) * granularity, product.rows)


def _plan_integers(product: IntegerProduct, machine: PlanTarget) -> LibraryPlan:
    kernel = _kernel_of(product)
    tasks = tasks_of_time(nanoseconds(kernel.rate, product.size), machine.threads)
    size = _rows_per_range(product, kernel, tasks)
    running = min(tasks, prod(product.batch) * -(-product.rows // size))
    return LibraryPlan(tasks, (running * kernel.scratch_bytes(product),))


def _write_integers(writer: FunctionEmitter, step: LibraryCall, product: IntegerProduct) -> None:
    """Emit the products in ranges of rows, split into tasks with scratch memory of their own."""
    pointers = [writer.pointer(value) for value in (*step.op.operands, step.op.result)]
    count = prod(product.batch)
    kernel = _kernel_of(product)
    size = _rows_per_range(product, kernel, step.plan.tasks)
    ranges = -(-product.rows // size)
    parts = min(step.plan.tasks, count * ranges)
    own_bytes = kernel.scratch_bytes(product)
    memory = writer.address(step.scratch[0])
    if parts == 1:
        _integers_in_sequence(writer.text, kernel, product, pointers, memory, size, ("0", str(count * ranges)))
        return

    def write(task: TaskFunction) -> None:
        text = task.text
        turns = task.share(count * ranges, parts)
        own = _at(text, task.pointer(memory), text.value(f"mul i64 %part, {own_bytes}"))
        _integers_in_sequence(text, kernel, product, list(map(task.pointer, pointers)), own, size, turns)

    call_in_tasks(writer, parts, write)


def _integers_in_sequence(
    text: FunctionText,
    kernel: _IntegerKernel,
    product: IntegerProduct,
    pointers: Sequence[str],
    memory: str,
    size: int,
    turns: tuple[str, str],
) -> None:
    """Emit the ranges of `size` rows numbered from the first of `turns` to before the second."""
    ranges = -(-product.rows // size)
    last = product.rows - (ranges - 1) * size
    number, _ = text.open_loop()
    range_number = text.value(f"urem i64 {number}, {ranges}")
    index = _unraveled(text, product, text.value(f"udiv i64 {number}, {ranges}"))
    moved = _moved(text, product, pointers, index)
    begin = text.value(f"mul i64 {range_number}, {size}")
    moved[0] = _at(text, moved[0], _times(text, begin, product.left.free))
    moved[2] = _at(text, moved[2], _times(text, begin, 4 * product.columns))
    if last == size:
        kernel.write(text, product, moved, memory, size)
    else:
        for rows, condition in ((size, "ult"), (last, "eq")):
            with text.where(text.value(f"icmp {condition} i64 {range_number}, {ranges - 1}")):
                kernel.write(text, product, moved, memory, rows)
    text.close_loop(turns[1], 1, turns[0])


# --- one product ---


def _multiply(writer: FunctionEmitter, text: FunctionText, product: Product, pointers: Sequence[str]) -> None:
    """Emit one product of matrices at known addresses, tiled or by BLAS."""
    lhs, rhs = product.lhs, product.rhs
    if product.is_tiled:
        depth = (Depth(lhs.columns, lhs.column_stride, rhs.row_stride),)
        type = INTEGERS.get(product.element) or ROUTINES[product.element][1]
        strides = lhs.row_stride, product.leading
        tiled = Tiled(lhs.rows, rhs.columns, depth, type, 8 * product.item, *strides, writer.target.processor)
        left, right, result = pointers
        write_tiled(text, tiled, left, right, result)
    else:
        _call_blas(writer, text, product, pointers)


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
