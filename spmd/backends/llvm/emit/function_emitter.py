"""Blocks as LLVM's text: units in order, and the buffers of what they give.

A buffer is a stretch of memory that one or more values stand on: views share their operand's, and a result may be
written over an operand that nobody reads again. Buffers that hold one number are stack slots, which LLVM turns into
registers; the others lie in the arena, a block of memory that the caller brings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.analysis.memory import over_memory
from spmd.backends.llvm.emit.math_library import function_text
from spmd.backends.llvm.emit.native_ops import CALL, NATIVE, Callback, MakeCallback, supports
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit.clocks import NativeClock
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES
from spmd.backends.llvm.loops.rows import write_rows
from spmd.backends.llvm.matmul.batch_tiling import plan_batches
from spmd.backends.llvm.matmul.blas import Routine, routine
from spmd.backends.llvm.matmul.conv_input_fusion import Images, take_images
from spmd.backends.llvm.memory.addresses import Addresses
from spmd.backends.llvm.memory.buffers import SLOT, Buffer, Frame, nbytes, through_views
from spmd.backends.llvm.memory.in_place import UnitsOfBlock, lent, place_update, put_over_operand
from spmd.backends.llvm.parallel.tasks import define, write_nest
from spmd.compiler.schedule.arena import Arena
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.fusion import VIEWS, Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import row_groups
from spmd.compiler.schedule.units import nests_of
from spmd.compiler.schedule.updates import updated
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op, Value, captured_values
from spmd.ir.attributes import aligned
from spmd.support.arrays import Array

#: Bytes of all values that lie on the stack.
_STACK = 1 << 16
#: Bytes of a constant that is written into the code.
_EMBEDDED = 1 << 12


class FunctionWriter:
    """Writes one native function, `void name(ptr arguments)`.

    It is given the addresses of the inputs, the outputs, the arena, and the constants that it asks for. Units that are
    worth it are cut in parts for so many `threads`.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        make_callback: MakeCallback,
        threads: int = 1,
        routine: Callable[[str], Routine] = routine,
        clock: NativeClock | None = None,
        *,
        may_ask: bool = True,
    ) -> None:
        self.name = name
        #: Whether the function runs in this process, or one like it, which has asked for what must be asked for.
        self.may_ask = may_ask
        #: Finds a routine of BLAS by its name.
        self.routine = routine
        self.threads = threads
        #: What times units, if anything does, and the part that it times while others are written.
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
        self.arena = Arena()
        #: Memory of results, where others may lie before they are written.
        self._free: set[Buffer] = set()
        #: Bytes of the arena, known in the end.
        self.arena_size = 0
        self.globals: dict[str, str] = {}
        #: Constants that the caller has to bring, after the inputs, the outputs and the arena.
        self.constants: list[Array] = []
        self.buffer_of: dict[Value, Buffer] = {}
        self.symbols: dict[str, int] = {}
        #: Whether it asks from time to time whether it is to go on, or calls Python: it may end with an exception.
        self.may_raise = False
        self._addresses = Addresses()
        self._stack = 0
        self._nests: dict[Unit, list[Nest]] = {}
        #: By convolution, what makes its images one at a time.
        self.images: dict[Op, Images] = {}
        self.inputs, self.outputs = list(inputs), list(outputs)
        for place, value in enumerate(inputs):
            self.buffer_of[value] = Buffer(self.argument(place), nbytes(value), values=[value])

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

    def allocate(self, frame: Frame, value: Value) -> Buffer:
        """A buffer for `value`: where it is to be put, or one of the block's own."""
        placed = frame.placed.get(value) or frame.lent.get(value)
        if placed is not None:
            if placed in self._free:
                self.arena.lend(placed.pointer, placed.nbytes)
            return self.assign(value, placed)
        size = nbytes(value)
        if size <= SLOT and self._stack + size <= _STACK:
            self._stack += size
            buffer = Buffer(self.text.allocate(f"[{max(size, 1)} x i8]"), size, owned=True)
        else:
            op = value.defining_op or frame.units[frame.index].outputs[0]
            buffer = self._in_arena(size, str(value.type), op)
        frame.buffers[buffer] = None
        return self.assign(value, buffer)

    def _in_arena(self, size: int, what: str, op: Op) -> Buffer:
        number = self.arena.allocate(size)
        if (fault := over_memory(what, size, self.arena.needed)) is not None:
            raise CompileError(Diagnostic(op.location, fault, op.name))
        return Buffer(f"%arena{number}", size, number, owned=True)

    def scratch(self, frame: Frame, size: int) -> Buffer:
        """Memory without a value until the unit that is being written is done."""
        if size <= SLOT and self._stack + size <= _STACK:
            self._stack += size
            return Buffer(self.text.allocate(f"[{max(size, 1)} x i8]"), size)
        buffer = self._in_arena(size, "scratch memory", frame.units[frame.index].outputs[0])
        frame.buffers[buffer] = None
        return buffer

    def assign(self, value: Value, buffer: Buffer) -> Buffer:
        """Says that `value` stands on `buffer`."""
        self.buffer_of[value] = buffer
        buffer.values.append(value)
        return buffer

    def pointer(self, value: Value) -> str:
        """The name of the address of `value`."""
        buffer = self.buffer_of.get(value)
        if buffer is None:
            array = constant_array(value.defining_op)
            assert array is not None, f"{value} has no buffer"
            buffer = self.buffer_of[value] = Buffer(self.constant(array), array.nbytes, values=[value])
        return buffer.pointer

    def constant(self, array: Array) -> str:
        """The name of the address of the elements of `array`."""
        if array.nbytes <= _EMBEDDED:
            data = "".join(f"\\{byte:02X}" for byte in np.ascontiguousarray(array).tobytes())
            return self.global_(f"[{max(array.nbytes, 1)} x i8]", f'c"{data or chr(92) + "00"}"')
        self.constants.append(aligned(array))
        return self.argument(len(self.inputs) + len(self.outputs) + len(self.constants))

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

    def write_results(
        self, units: list[Unit], results: Sequence[Value], targets: Sequence[Buffer], free: Collection[Buffer] = ()
    ) -> None:
        """Writes units; each of `results` is in its target in the end, also where one value is several results.

        Before that, targets in `free` may hold something else.
        """
        placed: dict[Value, Buffer] = {}
        for result, target in zip(results, targets, strict=True):
            placed.setdefault(result, target)
        self._free |= set(free)
        self.write_units(units, results, placed, {v: buffer for v, buffer in placed.items() if buffer in free})
        for result, target in zip(results, targets, strict=True):
            self.copy(target.pointer, placed[result].pointer, target.nbytes)

    def write_units(
        self,
        units: list[Unit],
        results: Sequence[Value],
        placed: Mapping[Value, Buffer],
        free: Mapping[Value, Buffer] = MappingProxyType({}),
    ) -> None:
        """Writes units in their order; each value in `placed` is in its place in the end.

        Those in `free` may lend it before they are made.
        """
        units = take_images(self, units, results)
        last_reads = self.last_reads(units, results)
        frame = Frame(units, last_reads, through_views(placed))
        frame.lent = lent(self, UnitsOfBlock(units, last_reads), frame.placed, free)
        groups = row_groups(units)
        self.is_one_nest &= len(groups) <= 1
        while groups:
            batches = plan_batches(self, groups, frame)
            if batches is not None:
                frame.index += len(batches.units) - 1
                with self._timed(batches.units):
                    batches.write(self, frame)
                self._release(frame)
                frame.index += 1
                del groups[: len(batches.groups)]
                continue
            group = groups.pop(0)
            first = frame.index
            frame.index += len(group) - 1
            with self._timed(group) if len(group) > 1 else nullcontext():
                together = len(group) > 1 and write_rows(self, group, frame)
            if not together:
                frame.index = first
                for unit in group:
                    with self._timed([unit]):
                        self._write_unit(unit, frame)
                    self._release(frame)
                    frame.index += 1
            else:
                self._release(frame)
                frame.index += 1
        for value, buffer in placed.items():
            self.copy(buffer.pointer, self.pointer(value), nbytes(value))
        frame.index = len(units) + 1
        self._release(frame)

    @contextmanager
    def _timed(self, units: Sequence[Unit]) -> Iterator[None]:
        """Has the clock, if there is one, time what is written within; nothing is timed where nothing is written."""
        outputs = [op for unit in units for op in unit.outputs]
        if self.clock is None or all(op.name in VIEWS for op in outputs):
            yield
            return
        text, outer = self.text, self._clocked
        called = not any(unit.fused for unit in units) and not supports(outputs[0])
        ops = tuple(op for unit in units for op in (*self._ops_of_images(unit), *unit.ops))
        number = self._clocked = self.clock.add(ops, outer, called)
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

    def _ops_of_images(self, unit: Unit) -> Sequence[Op]:
        """What `unit` runs that another unit was made of."""
        images = self.images.get(unit.outputs[0])
        return () if images is None else images.unit.ops

    def _write_unit(self, unit: Unit, frame: Frame) -> None:
        if unit.fused:
            self._write_nest(unit, frame)
        else:
            (op,) = unit.outputs
            if supports(op):
                NATIVE[op.name].write(self, op, frame)
            else:
                self._call_back(op, frame)

    def _call_back(self, op: Op, frame: Frame) -> None:
        """Has Python run `op`."""
        callback = self._make_callback(op)
        pointers = [self.pointer(value) for value in callback.inputs]
        pointers += [self.allocate(frame, value).pointer for value in callback.outputs]
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

    def last_reads(self, units: Sequence[Unit], results: Iterable[Value]) -> dict[Value, int]:
        """The number of the unit that reads each value last; one past the end for results."""
        last: dict[Value, int] = {}
        for index, unit in enumerate(units):
            last.update(dict.fromkeys(self.reads(unit), index))
        last.update(dict.fromkeys(results, len(units)))
        return last

    def reads(self, unit: Unit) -> list[Value]:
        """The values that `unit` reads from memory."""
        if unit.fused:
            memory = unit.outputs[0].operands[: updated(unit.outputs[0])] if unit.is_update else ()
            loads = (load.value for nest in self.nests(unit) for load in nest.loads())
            return list(dict.fromkeys([*memory, *loads]))
        (op,) = unit.outputs
        of_images = self.images[op].nest.loads() if op in self.images else ()
        captured = captured_values(op) if op.regions else ()
        return [*op.operands, *captured, *(load.value for load in of_images)]

    def nests(self, unit: Unit) -> list[Nest]:
        """The loop nests of a fused unit, in their order."""
        nests_of_unit = self._nests.get(unit)
        if nests_of_unit is None:
            nests_of_unit = self._nests[unit] = nests_of(unit)
        return nests_of_unit

    def _release(self, frame: Frame) -> None:
        """Gives back the memory of what nobody reads any more."""
        for buffer in [buffer for buffer in frame.buffers if frame.is_last_read(buffer)]:
            del frame.buffers[buffer]
            if buffer.owned and buffer.number is not None:
                self.arena.release(buffer.number)

    def _write_nest(self, unit: Unit, frame: Frame) -> None:
        nests = self.nests(unit)
        if unit.is_update:
            place_update(self, nests[0], unit.outputs[0], frame)
        for op in () if unit.is_update else unit.outputs:
            for value in op.results:
                if value in frame.placed or value in frame.lent or not put_over_operand(self, nests, value, frame):
                    self.allocate(frame, value)
        written = [value for op in unit.outputs for value in op.results]
        for nest in nests:
            write_nest(self, collapse(nest), frame, written)

    # --- the whole ---

    def finish(self, *, whole: bool = False) -> str:
        """The module's text. `whole` ones hold the functions of floats that they call."""
        arena = self.argument(len(self.inputs) + len(self.outputs))
        placement = self.arena.place()
        self.arena_size = placement.size
        counters: list[str] = []
        if self.clock is not None:
            last = len(self.inputs) + len(self.outputs) + 1 + len(self.constants)
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
