"""Functions that threads of a process run side by side, and functions of nests that stand apart (schedule/tasks.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from spmd.backends.llvm.emit.function_emitter import FunctionWriter
from spmd.backends.llvm.emit.task_function import PartFunction
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.loops import Range
from spmd.backends.llvm.loops.nests import NestWriter
from spmd.backends.llvm.parallel.workers import RUN
from spmd.compiler.schedule.fold_blocks import shared_blocks
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.tasks import Cut, FoldCut, TaskedNest
from spmd.ir import Value

#: Points of a nest that is written as a function of its own: in a loop, where a call of it costs at every turn, and
#: elsewhere, where what is alike is rather compiled once.
_LEAST_APART, _LEAST_APART_OUTSIDE = 1 << 9, 1 << 3


def call_in_parts(
    writer: FunctionWriter, count: int, write: Callable[[PartFunction], None], *, products: bool = False
) -> None:
    """Emit a call of the function that `write` writes, for `count` parts; `products`: each of which calls BLAS."""
    name, frame = _written(writer, write)
    writer.uses_workers = True
    writer.text.declarations[f"declare void @{RUN}(ptr, ptr, i64, i64, i1)"] = None
    how = f"i64 {count}, i64 {writer.threads}, i1 {str(products).lower()}"
    writer.text.call(f"call void @{RUN}(ptr @{name}, ptr {frame}, {how})")


def call_by_iterations(
    writer: FunctionWriter,
    total: int,
    parts: int,
    write: Callable[[FunctionText, Callable[[str], str], str], None],
    *,
    products: bool = False,
) -> None:
    """Emit a loop of `total` iterations, in `parts` that each run some of them; see `call_in_parts`.

    `write` writes one iteration: it is given the text, the name there of an address that has one here, and the number
    of the iteration.
    """

    def write_loop(text: FunctionText, pointer: Callable[[str], str], first: str, stop: str) -> None:
        number, _ = text.open_loop()
        write(text, pointer, number)
        text.close_loop(stop, 1, first)

    if parts == 1:
        write_loop(writer.text, str, "0", str(total))
    else:
        call_in_parts(
            writer,
            parts,
            lambda part: write_loop(part.text, part.pointer, *part.share(total, parts)),
            products=products,
        )


def call_apart(writer: FunctionWriter, write: Callable[[PartFunction], None]) -> None:
    """Emit a call of the function that `write` writes, as its part 0."""
    name, frame = _written(writer, write)
    writer.text.call(f"call void @{name}(ptr {frame}, i64 0)")


def _written(writer: FunctionWriter, write: Callable[[PartFunction], None]) -> tuple[str, str]:
    """Return the names of the function that `write` writes, and of a frame that holds what it needs.

    What is computed alike is one function: a layer of a network is compiled once, however many there are.
    """
    part = PartFunction()
    part.text.declarations, part.text.callees = writer.text.declarations, writer.text.callees
    write(part)
    part.text.line("ret void")
    name = writer.parts.setdefault(part.body(), f"{writer.name}.part{len(writer.parts)}")
    return name, writer.frame(list(part.captured))


def _write_outlined(writer: FunctionWriter, nest: Nest) -> None:
    """Emit `nest` as a function and a call of it, or where the call stands if it has few points, or stands alone.

    Updates stand apart nevertheless: among registers that live across the copy of what is updated, the processor did
    not foresee where they write, and a histogram took 2.7 times as long.
    """
    if (writer.is_one_nest and not any(stage.updates for stage in nest.stages)) or prod(nest.extents) < (
        _LEAST_APART if writer.text.depth else _LEAST_APART_OUTSIDE
    ):
        NestWriter(nest, writer.text, writer.pointer).write()
        return

    def write(part: PartFunction) -> None:
        NestWriter(nest, part.text, lambda value: part.pointer(writer.pointer(value))).write()

    call_apart(writer, write)


def write_nest(writer: FunctionWriter, tasked: TaskedNest, rows: Mapping[Value, int] = MappingProxyType({})) -> None:
    """Emit a nest, cut as it is planned; each task has memory of its own for the values `rows`, of so many bytes."""
    match tasked.cut:
        case Cut() as cut:
            _write_in_tasks(writer, tasked.nest, cut, rows)
        case FoldCut() as cut:
            _write_in_blocks(writer, tasked.nest, cut)
        case None:
            _write_outlined(writer, tasked.nest)


def _write_in_tasks(writer: FunctionWriter, nest: Nest, cut: Cut, rows: Mapping[Value, int]) -> None:
    """Emit `nest`; each part has memory of its own for the values `rows`, of so many bytes."""

    def write(part: PartFunction) -> None:
        text = part.text
        own = {value: text.allocate(f"[{size} x i8]") for value, size in rows.items()}
        first = text.value(f"mul i64 %part, {cut.size}")
        is_last = text.value(f"icmp eq i64 %part, {cut.count - 1}")
        after = text.value(f"add i64 {first}, {cut.size}")
        stop = text.value(f"select i1 {is_last}, i64 {nest.extents[cut.variable]}, i64 {after}")
        part_range = Range(cut.variable, first, stop, is_last)

        def pointer(value: Value) -> str:
            return own.get(value) or part.pointer(writer.pointer(value))

        NestWriter(nest, text, pointer, part_range).write()

    call_in_parts(writer, cut.count, write)


def _write_in_blocks(writer: FunctionWriter, nest: Nest, cut: FoldCut) -> None:
    """Emit folds: blocks in tasks, then what they gave."""
    blocks = shared_blocks(nest)
    assert blocks is not None
    memory = writer.address(cut.memory)

    def write(part: PartFunction) -> None:
        text = part.text
        first = text.value(f"mul i64 %part, {cut.size}")
        is_last = text.value(f"icmp eq i64 %part, {cut.count - 1}")
        after = text.value(f"add i64 {first}, {cut.size}")
        stop = text.value(f"select i1 {is_last}, i64 {blocks.count}, i64 {after}")
        inner = NestWriter(nest, text, lambda value: part.pointer(writer.pointer(value)))
        inner.write_blocks(part.pointer(memory), Range(-1, first, stop, is_last))

    call_in_parts(writer, cut.count, write)
    NestWriter(nest, writer.text, writer.pointer).write_from_blocks(memory)
