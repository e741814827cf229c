"""Products of batches with the units between them, batch by batch (schedule/batch_tiling.py)."""

from __future__ import annotations

from collections.abc import Mapping

from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.task_function import TaskFunction
from spmd.backends.llvm.loops.loops import Range
from spmd.backends.llvm.loops.nests import NestEmitter
from spmd.backends.llvm.matmul.matrices import Product
from spmd.backends.llvm.matmul.products import write_one_product
from spmd.backends.llvm.parallel.tasks import call_in_tasks, call_outlined
from spmd.compiler.schedule.steps import BatchRun
from spmd.ir import Value


def write_batches(writer: FunctionEmitter, run: BatchRun) -> None:
    """Emit a run of batches, in tasks if it has several."""
    memory = writer.address(run.memory)

    def write(task: TaskFunction) -> None:
        text = task.text
        first, stop = task.share(run.count, run.tasks)
        begin = text.value(f"mul i64 %part, {run.room}")
        own = text.value(f"getelementptr i8, ptr {task.pointer(memory)}, i64 {begin}")
        mine = {v: text.value(f"getelementptr i8, ptr {own}, i64 {offset}") for v, offset in run.offsets.items()}
        batch, _ = text.open_loop()
        for number in range(len(run.groups)):
            _write_group(writer, task, run, number, batch, mine)
        text.close_loop(stop, 1, first)

    if run.tasks == 1:
        call_outlined(writer, write)
    else:
        call_in_tasks(writer, run.tasks, write, products=True)


def _write_group(
    writer: FunctionEmitter, task: TaskFunction, run: BatchRun, number: int, batch: str, mine: Mapping[Value, str]
) -> None:
    def at(value: Value) -> str:
        return mine.get(value) or task.pointer(writer.pointer(value))

    if number in run.nests:
        nest, variable = run.nests[number]
        NestEmitter(nest, task.text, at, Range(variable, batch, None, "true")).write()
        return
    (op,) = run.groups[number][0].outputs
    product = run.products[number]
    assert isinstance(product, Product)
    places = [(at(value), value in run.offsets) for value in (*op.operands, op.result)]
    write_one_product(writer, task.text, product, batch, places)
