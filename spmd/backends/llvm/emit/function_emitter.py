"""Native regions as LLVM's text: their steps in order, and the addresses of their buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from spmd.backends.llvm.emit.math_library import function_text
from spmd.backends.llvm.emit.native_ops import CALL, NATIVE
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit.clocks import NativeClock
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES
from spmd.backends.llvm.matmul.batches import write_batches
from spmd.backends.llvm.matmul.blas import Routine, routine
from spmd.backends.llvm.memory.addresses import Addresses
from spmd.backends.llvm.memory.fill import fill
from spmd.backends.llvm.parallel.tasks import define, write_nest
from spmd.backends.native import Callback, MakeCallback
from spmd.compiler.schedule.buffers import Buffer, Home, nbytes
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.compiler.schedule.steps import (
    BatchRun,
    BlockSchedule,
    LoopNests,
    OpStep,
    RowGroup,
    Step,
    ViewStep,
)
from spmd.compiler.schedule.steps import Callback as CallbackStep
from spmd.compiler.schedule.tasks import TaskedNest
from spmd.ir import Value
from spmd.ir.attributes import aligned
from spmd.support.arrays import Array

#: Bytes of a constant that is written into the code.
_EMBEDDED = 1 << 12


class FunctionWriter:
    """Writes one native function, `void name(ptr arguments)`.

    It is given the addresses of the inputs, the outputs, the arena, and the constants that it needs.
    """

    def __init__(
        self,
        name: str,
        region: NativeRegion,
        make_callback: MakeCallback,
        routine: Callable[[str], Routine] = routine,
        clock: NativeClock | None = None,
        *,
        is_hosted: bool = True,
    ) -> None:
        self.name = name
        self.region = region
        #: Whether the function runs in a process of this package, which has made the processor ready for it.
        self.is_hosted = is_hosted
        #: Finds a routine of BLAS by its name.
        self.routine = routine
        self.threads = region.threads
        #: What times steps, if anything does, and the part that it times while others are written.
        self.clock = clock
        self._clocked: int | None = None
        #: The functions of units that stand apart: their names by their bodies.
        self.parts: dict[str, str] = {}
        self.uses_workers = False
        #: Whether no block has had more than one loop nest so far.
        self.is_one_nest = True
        self._make_callback = make_callback
        self.callbacks: list[Callback] = []
        self.text = FunctionText()
        self.globals: dict[str, str] = {}
        #: Constants that the caller has to bring, after the inputs, the outputs and the arena.
        self.constants: list[Array] = []
        self.symbols: dict[str, int] = {}
        #: Whether it polls for interrupts, or calls Python: it may end with an exception.
        self.may_raise = False
        self._addresses = Addresses()
        #: The name of the address of each buffer.
        self._names: dict[Buffer, str] = {}
        self._first_constant = len(region.inputs) + len(region.outputs) + 1

    # --- arguments and memory ---

    def argument(self, place: int) -> str:
        """The name of the address that the caller gives as number `place`."""
        return self._addresses.argument(place)

    def frame(self, addresses: Sequence[str]) -> str:
        """The name of the address of a frame that holds addresses, for a function to look into."""
        text = self.text
        begin, open_places = self._addresses.frame(addresses)
        frame = text.value(begin)
        for place in open_places:
            at = text.value(f"getelementptr ptr, ptr {frame}, i64 {place}")
            text.line(f"store ptr {addresses[place]}, ptr {at}")
        return frame

    def address(self, buffer: Buffer) -> str:
        """The name of the address of `buffer`."""
        name = self._names.get(buffer)
        if name is None:
            name = self._names[buffer] = self._address(buffer)
        return name

    def _address(self, buffer: Buffer) -> str:
        if buffer.alias is not None:
            return self.address(buffer.alias)
        if buffer.array is not None:
            return self.constant(buffer.array)
        if buffer.home is Home.STACK:
            return self.text.allocate(f"[{max(buffer.nbytes, 1)} x i8]")
        return f"%arena{buffer.number}" if buffer.home is Home.ARENA else self.argument(buffer.number)

    def name_swapped(self, buffer: Buffer, name: str) -> None:
        """Gives `buffer`, whose address is known while running, that name."""
        self._names[buffer] = name

    def pointer(self, value: Value) -> str:
        """The name of the address of `value`."""
        return self.address(self.region.memory.of(value))

    def constant(self, array: Array) -> str:
        """The name of the address of the elements of `array`."""
        if array.nbytes <= _EMBEDDED:
            data = "".join(f"\\{byte:02X}" for byte in np.ascontiguousarray(array).tobytes())
            return self.global_(f"[{max(array.nbytes, 1)} x i8]", f'c"{data or chr(92) + "00"}"')
        self.constants.append(aligned(array))
        return self.argument(self._first_constant + len(self.constants) - 1)

    def global_(self, type: str, value: str) -> str:
        """The name of a constant of the module."""
        text = f"private unnamed_addr constant {type} {value}, align 64"
        return self.globals.setdefault(text, f"@{self.name}.c{len(self.globals)}")

    def copy(self, target: str, source: str, size: int) -> None:
        """Copies bytes between buffers that do not overlap."""
        if size and target != source:
            self.text.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def clear(self, target: str, size: int) -> None:
        """Fills bytes with zeros."""
        self.text.line(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")

    # --- blocks ---

    def write(self, block: BlockSchedule) -> None:
        """Writes the steps of a block; all values that it places are in their buffers in the end."""
        self.is_one_nest &= block.is_one_group
        for step in block.steps:
            with self._timed(step):
                self._write_step(step)
        for value, buffer in block.placed.items():
            self.copy(self.address(buffer), self.pointer(value), nbytes(value))
        for result, target in zip(block.results, block.targets, strict=False):
            self.copy(self.address(target), self.address(block.placed[result]), target.nbytes)

    @contextmanager
    def _timed(self, step: Step) -> Iterator[None]:
        """Has the clock, if there is one, time what is written within; nothing is timed where nothing is written."""
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
                write_nest(self, TaskedNest(step.nest, step.cut), step.rows)
            case BatchRun():
                write_batches(self, step)
            case CallbackStep():
                self._call_back(step)
            case ViewStep():
                pass
            case OpStep():
                NATIVE[step.op.name].write(self, step)

    def _call_back(self, step: CallbackStep) -> None:
        """Has Python run the step's op."""
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

    def leave_unless(self, holds: str) -> None:
        """Ends the function where `holds` (an i1) does not: an exception is waiting."""
        text = self.text
        self.may_raise = True
        leave, on = text.fresh("leave"), text.fresh("on")
        text.line(f"br i1 {holds}, label %{on}, label %{leave}")
        text.start_block(leave)
        text.line("ret void")
        text.start_block(on)

    # --- the whole ---

    def finish(self, *, whole: bool = False) -> str:
        """The module's text. `whole` ones hold the functions of floats that they call."""
        arena, placement = self.argument(self._first_constant - 1), self.region.placement
        counters: list[str] = []
        if self.clock is not None:
            last = self._first_constant + len(self.constants)
            counters.append(f"  %counters.at = getelementptr ptr, ptr %arguments, i64 {last}")
            counters.append("  %counters = load ptr, ptr %counters.at")
        self.text.line("ret void")
        addresses = self._addresses.prologue(self.name, self.text.lines, placement, arena)
        return "\n".join(
            [
                *(f"{name} = {text}" for text, name in self.globals.items()),
                *self._addresses.tables(self.name, placement, arena),
                f"define void @{self.name}(ptr noalias readonly %arguments) #{int(self.text.only_calls)} {{",
                self.text.body([*counters, *addresses]),
                "}",
                *(define(name, body) for body, name in self.parts.items()),
                *self.text.declarations,
                *(
                    function_text(callee, linkage="internal") if whole else callee.declaration
                    for callee in self.text.callees.values()
                ),
                "!0 = !{}",
                f"attributes #0 = {{ nounwind {CODE_ATTRIBUTES} }}",
                f"attributes #1 = {{ noinline nounwind optnone {CODE_ATTRIBUTES} }}",
            ]
        )
