"""Native regions as LLVM IR: their steps in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import CALL, NATIVE
from spmd.backends.llvm.jit.clocks import NativeClock
from spmd.backends.llvm.matmul.batches import write_batches
from spmd.backends.llvm.matmul.blas import Routine, routine
from spmd.backends.llvm.memory.fill import fill
from spmd.backends.llvm.parallel.tasks import write_nest
from spmd.backends.native import Callback, MakeCallback
from spmd.compiler.schedule.buffers import nbytes
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.compiler.schedule.steps import (
    BatchRun,
    BlockSchedule,
    CallbackStep,
    LoopNests,
    OpStep,
    RowGroup,
    Step,
    ViewStep,
)
from spmd.compiler.schedule.tasks import TaskedNest


class RegionEmitter(FunctionEmitter):
    """Emits the function of a region; `make_callback` returns the callbacks to Python."""

    def __init__(
        self,
        name: str,
        region: NativeRegion,
        make_callback: MakeCallback,
        routine: Callable[[str], Routine] = routine,
        clock: NativeClock | None = None,
        *,
        is_linked: bool = False,
    ) -> None:
        super().__init__(name, region, routine, clock, is_linked=is_linked)
        self.callbacks: list[Callback] = []
        self._make_callback = make_callback
        #: The number of the innermost timed part.
        self._clocked: int | None = None

    def write(self, block: BlockSchedule) -> None:
        """Emit the steps of a block; values that it places end in their buffers."""
        for step in block.steps:
            with self._timed(step):
                self._write_step(step)
        for value, buffer in block.placed.items():
            self.copy(self.address(buffer), self.pointer(value), nbytes(value))
        for result, target in zip(block.results, block.targets, strict=False):
            self.copy(self.address(target), self.address(block.placed[result]), target.nbytes)

    @contextmanager
    def _timed(self, step: Step) -> Iterator[None]:
        """Time the code emitted within the `with`, if there is a clock; drop the timer if nothing is emitted."""
        if self.clock is None or isinstance(step, ViewStep):
            yield
            return
        text, outer = self.text, self._clocked
        number = self._clocked = self.clock.add(tuple(step.ops), outer, isinstance(step, CallbackStep))
        lines = len(text.innermost.lines)
        text.declarations["declare i64 @llvm.readcyclecounter()"] = None
        begin = text.value("call i64 @llvm.readcyclecounter()")
        yield
        self._clocked = outer
        if len(text.innermost.lines) == lines + 1:
            text.innermost.lines.pop()
            self.clock.parts.pop()
            return
        spent = text.value(f"sub i64 {text.value('call i64 @llvm.readcyclecounter()')}, {begin}")
        for place, amount in ((2 * number, spent), (2 * number + 1, "1")):
            at = text.value(f"getelementptr i64, ptr %counters, i64 {place}")
            before = text.value(f"load i64, ptr {at}")
            text.line(f"store i64 {text.value(f'add i64 {before}, {amount}')}, ptr {at}")

    def _write_step(self, step: Step) -> None:
        for buffer in step.made:
            self.address(buffer)
        match step:
            case LoopNests():
                for initial in step.initial:
                    target = self.pointer(initial.result)
                    if initial.element is not None:
                        fill(self.text, target, initial.element)
                    else:
                        self.copy(target, self.pointer(initial.operand), nbytes(initial.operand))
                for tasked in step.nests:
                    write_nest(self, tasked)
            case RowGroup():
                write_nest(self, TaskedNest(step.nest, step.cut, step.outlined), step.rows)
            case BatchRun():
                write_batches(self, step)
            case CallbackStep():
                self._call_back(step)
            case ViewStep():
                pass
            case OpStep():
                NATIVE[step.op.name].write(self, step)

    def _call_back(self, step: CallbackStep) -> None:
        """Emit a callback to Python that runs the step's op."""
        callback = self._make_callback(step.op)
        pointers = [self.pointer(value) for value in (*callback.inputs, *callback.outputs)]
        text = self.text
        arguments = text.allocate(f"[{max(len(pointers), 1)} x ptr]", 8)
        for place, pointer in enumerate(pointers):
            slot = text.value(f"getelementptr ptr, ptr {arguments}, i64 {place}")
            text.line(f"store ptr {pointer}, ptr {slot}")
        answer = text.value(f"call i32 @{CALL}(i64 {len(self.callbacks)}, ptr {arguments})")
        self.callbacks.append(callback)
        self.leave_unless(text.value(f"icmp eq i32 {answer}, 0"))
