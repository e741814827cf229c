"""Emission of task functions, and of nests outlined as functions (schedule/tasks.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.task_function import TaskFunction
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.loops import Range
from spmd.backends.llvm.loops.nests import NestEmitter
from spmd.backends.llvm.parallel.workers import RUN
from spmd.compiler.schedule.loop_plan import PlannedNest
from spmd.compiler.schedule.tasks import Cut, FoldCut, TaskedNest
from spmd.ir import Value

#: Least points of a nest that is outlined: inside a loop, where each iteration pays for the call, and elsewhere, where
#: equal nests are then compiled once.
_LEAST_OUTLINED, _LEAST_OUTLINED_ONCE = 1 << 9, 1 << 3


def call_in_tasks(
    writer: FunctionEmitter, count: int, write: Callable[[TaskFunction], None], *, products: bool = False
) -> None:
    """Emit a parallel call of the function that `write` emits, in `count` tasks; `products`: the tasks call BLAS."""
    name, frame = _written(writer, write)
    writer.uses_workers = True
    writer.text.declarations[f"declare void @{RUN}(ptr, ptr, i64, i64, i1)"] = None
    how = f"i64 {count}, i64 {writer.threads}, i1 {str(products).lower()}"
    writer.text.call(f"call void @{RUN}(ptr @{name}, ptr {frame}, {how})")


def call_by_iterations(
    writer: FunctionEmitter,
    total: int,
    tasks: int,
    write: Callable[[FunctionText, Callable[[str], str], str], None],
    *,
    products: bool = False,
) -> None:
    """Emit a loop of `total` iterations, in `tasks` tasks; see `call_in_tasks`.

    `write` emits one iteration: it is given the text, a mapping of the caller's pointers, and the iteration number.
    """

    def write_loop(text: FunctionText, pointer: Callable[[str], str], first: str, stop: str) -> None:
        number, _ = text.open_loop()
        write(text, pointer, number)
        text.close_loop(stop, 1, first)

    if tasks == 1:
        write_loop(writer.text, str, "0", str(total))
    else:
        call_in_tasks(
            writer,
            tasks,
            lambda task: write_loop(task.text, task.pointer, *task.share(total, tasks)),
            products=products,
        )


def call_outlined(writer: FunctionEmitter, write: Callable[[TaskFunction], None]) -> None:
    """Emit a call of the function that `write` emits, as its task 0."""
    name, frame = _written(writer, write)
    writer.text.call(f"call void @{name}(ptr {frame}, i64 0)")


def _written(writer: FunctionEmitter, write: Callable[[TaskFunction], None]) -> tuple[str, str]:
    """Return the name of the function that `write` emits, and of the frame of its captured pointers.

    Equal functions are shared: a layer of a network is compiled once, however often it occurs.
    """
    task = TaskFunction()
    task.text.declarations, task.text.callees = writer.text.declarations, writer.text.callees
    write(task)
    task.text.line("ret void")
    name = writer.task_functions.setdefault(task.body(), f"{writer.name}.part{len(writer.task_functions)}")
    return name, writer.frame(list(task.captured))


def _write_outlined(writer: FunctionEmitter, nest: PlannedNest) -> None:
    """Emit `nest` as an outlined function and its call, or inline if it has few points or is the only one.

    Updates are always outlined: inline, with registers live across the copy of the operand, store addresses were
    mispredicted, and a histogram took 2.7 times as long.
    """
    if (writer.is_one_nest and not any(stage.updates for stage in nest.stages)) or prod(nest.extents) < (
        _LEAST_OUTLINED if writer.text.depth else _LEAST_OUTLINED_ONCE
    ):
        NestEmitter(nest, writer.text, writer.pointer).write()
        return

    def write(task: TaskFunction) -> None:
        NestEmitter(nest, task.text, lambda value: task.pointer(writer.pointer(value))).write()

    call_outlined(writer, write)


def write_nest(writer: FunctionEmitter, tasked: TaskedNest, rows: Mapping[Value, int] = MappingProxyType({})) -> None:
    """Emit a nest, split as planned; each task has its own memory for the values `rows`, in bytes."""
    match tasked.cut:
        case Cut() as cut:
            _write_in_tasks(writer, tasked.nest, cut, rows)
        case FoldCut() as cut:
            _write_in_blocks(writer, tasked.nest, cut)
        case None:
            _write_outlined(writer, tasked.nest)


def _write_in_tasks(writer: FunctionEmitter, nest: PlannedNest, cut: Cut, rows: Mapping[Value, int]) -> None:
    """Emit `nest` in tasks, each with its own memory for the values `rows`, in bytes."""

    def write(task: TaskFunction) -> None:
        text = task.text
        own = {value: text.allocate(f"[{size} x i8]") for value, size in rows.items()}
        first = text.value(f"mul i64 %part, {cut.size}")
        is_last = text.value(f"icmp eq i64 %part, {cut.count - 1}")
        after = text.value(f"add i64 {first}, {cut.size}")
        stop = text.value(f"select i1 {is_last}, i64 {nest.extents[cut.variable]}, i64 {after}")
        task_range = Range(cut.variable, first, stop, is_last)

        def pointer(value: Value) -> str:
            return own.get(value) or task.pointer(writer.pointer(value))

        NestEmitter(nest, text, pointer, task_range).write()

    call_in_tasks(writer, cut.count, write)


def _write_in_blocks(writer: FunctionEmitter, nest: PlannedNest, cut: FoldCut) -> None:
    """Emit a blocked reduction: blocks in tasks, then the combination of their results."""
    blocks, memory = cut.blocks, writer.address(cut.memory)

    def write(task: TaskFunction) -> None:
        text = task.text
        first = text.value(f"mul i64 %part, {cut.size}")
        is_last = text.value(f"icmp eq i64 %part, {cut.count - 1}")
        after = text.value(f"add i64 {first}, {cut.size}")
        stop = text.value(f"select i1 {is_last}, i64 {blocks.count}, i64 {after}")
        inner = NestEmitter(nest, text, lambda value: task.pointer(writer.pointer(value)))
        inner.write_blocks(blocks, task.pointer(memory), Range(-1, first, stop, is_last))

    call_in_tasks(writer, cut.count, write)
    NestEmitter(nest, writer.text, writer.pointer).write_from_blocks(blocks, memory)
