"""Emission of task functions, and of nests outlined as functions (schedule/tasks.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    memory: tuple[str, int] | None = None,
    products: bool = False,
) -> None:
    """Emit a loop of `total` iterations, in `tasks` tasks; see `call_in_tasks`.

    `write` emits one iteration: it is given the text, a mapping of the caller's pointers, and the iteration number.
    `memory`: scratch memory, which is mapped to the task's own part of it, and the size of a part in bytes.
    """

    def write_loop(text: FunctionText, pointer: Callable[[str], str], first: str, stop: str) -> None:
        number, _ = text.open_loop()
        write(text, pointer, number)
        text.close_loop(stop, 1, first)

    def write_task(task: TaskFunction) -> None:
        own: dict[str, str] = {}
        if memory is not None:
            begin = task.text.value(f"mul i64 %part, {memory[1]}")
            own[memory[0]] = task.text.value(f"getelementptr i8, ptr {task.pointer(memory[0])}, i64 {begin}")

        def pointer(outside: str) -> str:
            return own.get(outside) or task.pointer(outside)

        if tasks == total:
            write(task.text, pointer, "%part")
        else:
            write_loop(task.text, pointer, *task.share(total, tasks))

    if tasks > 1:
        call_in_tasks(writer, tasks, write_task, products=products)
    elif total > 1:
        write_loop(writer.text, str, "0", str(total))
    else:
        write(writer.text, str, "0")


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


def write_nest(writer: FunctionEmitter, tasked: TaskedNest, rows: Mapping[Value, int] = MappingProxyType({})) -> None:
    """Emit a nest, split as planned; each task has its own memory for the values `rows`, in bytes."""
    match tasked.cut:
        case Cut() as cut:
            _write_in_tasks(writer, tasked.nest, cut, rows)
        case FoldCut() as cut:
            _write_in_blocks(writer, tasked.nest, cut)
        case None if tasked.outlined:
            call_outlined(writer, lambda task: _inner(writer, task, tasked.nest).write())
        case None:
            NestEmitter(tasked.nest, writer.text, writer.pointer).write()


def _inner(writer: FunctionEmitter, task: TaskFunction, nest: PlannedNest) -> NestEmitter:
    """Return the emitter of `nest` within the function of `task`."""
    return NestEmitter(nest, task.text, lambda value: task.pointer(writer.pointer(value)))


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
        part = Range(-1, first, stop, is_last)
        _inner(writer, task, nest).write_blocks(blocks, task.pointer(memory), part)

    call_in_tasks(writer, cut.count, write)
    NestEmitter(nest, writer.text, writer.pointer).write_from_blocks(blocks, memory)
