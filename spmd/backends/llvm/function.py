"""Blocks as LLVM's text: units in order, and the buffers of what they give.

A buffer is a stretch of memory that one or more values stand on: views share their operand's, and a result may be
written over an operand that nobody reads again. Buffers that hold one number are stack slots, which LLVM turns into
registers; the others lie in the arena, a block of memory that the caller brings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.analysis.memory import over_memory
from spmd.arrays import Array
from spmd.attributes import aligned
from spmd.backends.llvm.addresses import Addresses
from spmd.backends.llvm.blas import Routine, routine
from spmd.backends.llvm.clocks import NativeClock
from spmd.backends.llvm.functions import function_text
from spmd.backends.llvm.in_place import UnitsOfBlock, lent
from spmd.backends.llvm.parts import cut_rows, define, write_apart, write_in_parts, write_nest
from spmd.backends.llvm.processor import CODE_ATTRIBUTES
from spmd.backends.llvm.text import FunctionText
from spmd.compiler.schedule.arena import Arena
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.forms import is_plain
from spmd.compiler.schedule.fusion import VIEWS, Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import in_one_row, row_elements, row_groups, row_nest, rows_of, same_rows
from spmd.compiler.schedule.units import nests_of
from spmd.compiler.schedule.updates import updated
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op, Value, captured_values
from spmd.types import TokenType, Type

#: Bytes of a value that may lie on the stack, and of all that do.
_SLOT, _STACK = 64, 1 << 16
#: Bytes of memory of its own that a part of a unit has on its stack.
_OWN = 1 << 18
#: Bytes of a constant that is written into the code.
_EMBEDDED = 1 << 12


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory: the name of its address, and its number in the arena (None: it lies elsewhere).

    `owned` buffers belong to the block being written: they may be overwritten when nobody reads them again.
    """

    pointer: str
    nbytes: int
    number: int | None = None
    owned: bool = False
    values: list[Value] = field(default_factory=list)


#: Writes an op that is no loop nest: (writer, op, frame).
Handler = Callable[["FunctionWriter", Op, "Frame"], None]


@dataclass(frozen=True)
class NativeOp:
    """How an op that is no loop nest is written; `supports` says whether it can be, with its types and attributes."""

    write: Handler
    supports: Callable[[Op], bool]


NATIVE: dict[str, NativeOp] = {}

#: The native function that calls Python: the number of a callback and the addresses of its arrays in, 0 out if all is
#: well.
CALL = "spmd.call"


@dataclass(frozen=True, slots=True)
class Callback:
    """An op that Python runs: `program` takes the process and arrays of `inputs`, and gives those of `outputs`.

    `keeps_operands`: it may hold on to the arrays that it is given, whose memory is used for other values after.
    """

    program: Callable[..., tuple[Any, ...]]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    keeps_operands: bool


#: Makes the callback of an op.
MakeCallback = Callable[[Op], Callback]


def native(name: str, supports: Callable[[Op], bool]) -> Callable[[Handler], Handler]:
    """Decorator: files what writes the op `name`."""

    def add(handler: Handler) -> Handler:
        NATIVE[name] = NativeOp(handler, supports)
        return handler

    return add


def supports(op: Op) -> bool:
    """Whether `op`, which is part of no loop nest, has a native form."""
    known = NATIVE.get(op.name)
    return known is not None and known.supports(op)


def lies_in_buffers(type: Type) -> bool:
    """Whether values of `type` can be handed from op to op in native code: tokens take no memory."""
    return is_plain(type) or isinstance(type, TokenType)


def can_call_back(op: Op) -> bool:
    """Whether native code can have Python run `op`: all that goes in and out lies in buffers."""
    captured = captured_values(op) if op.regions else ()
    return all(lies_in_buffers(value.type) for value in (*op.operands, *captured, *op.results))


@dataclass(eq=False, slots=True)
class Frame:
    """A block while it is written: when each value is read last, and where results are to be put.

    `lent`: by value, the place of a result that is made of it. `buffers` are those that the block has made and that
    somebody may still read.
    """

    units: list[Unit]
    last_read: dict[Value, int]
    placed: dict[Value, Buffer]
    lent: dict[Value, Buffer] = field(default_factory=dict)
    index: int = 0
    buffers: dict[Buffer, None] = field(default_factory=dict)
    #: By buffer: how many values stood on it when it was looked at last, and the unit that reads them last.
    _reads: dict[Buffer, tuple[int, int]] = field(default_factory=dict)

    def is_last_read(self, buffer: Buffer) -> bool:
        """Whether nobody reads `buffer` after the unit that is being written."""
        count, last = self._reads.get(buffer, (-1, -1))
        if count != len(buffer.values):
            last = max((self.last_read.get(value, -1) for value in buffer.values), default=-1)
            self._reads[buffer] = len(buffer.values), last
        return last <= self.index


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
    ) -> None:
        self.name = name
        #: Finds a routine of BLAS by its name.
        self.routine = routine
        self.threads = threads
        #: What times units, if anything does, and the part that it times while others are written.
        self.clock = clock
        self._clocked: int | None = None
        #: The functions of units that stand apart: their names by their bodies.
        self.parts: dict[str, str] = {}
        self.uses_workers = False
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
        if size <= _SLOT and self._stack + size <= _STACK:
            self._stack += size
            buffer = Buffer(self.text.allocate(f"[{max(size, 1)} x i8]"), size, owned=True)
        else:
            op = value.defining_op or frame.units[frame.index].roots[0]
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
        if size <= _SLOT and self._stack + size <= _STACK:
            self._stack += size
            return Buffer(self.text.allocate(f"[{max(size, 1)} x i8]"), size)
        buffer = self._in_arena(size, "scratch memory", frame.units[frame.index].roots[0])
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
        last_reads = self.last_reads(units, results)
        frame = Frame(units, last_reads, through_views(placed))
        frame.lent = lent(self, UnitsOfBlock(units, last_reads), frame.placed, free)
        for group in row_groups(units):
            first = frame.index
            frame.index += len(group) - 1
            with self._timed(group) if len(group) > 1 else nullcontext():
                together = len(group) > 1 and self._write_rows(group, frame)
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
        roots = [op for unit in units for op in unit.roots]
        if self.clock is None or all(op.name in VIEWS for op in roots):
            yield
            return
        text, outer = self.text, self._clocked
        called = not any(unit.fused for unit in units) and not supports(roots[0])
        ops = tuple(op for unit in units for op in unit.ops)
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

    def _write_unit(self, unit: Unit, frame: Frame) -> None:
        if unit.fused:
            self._write_nest(unit, frame)
        else:
            (op,) = unit.roots
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

    def _write_rows(self, group: Sequence[Unit], frame: Frame) -> bool:
        """Writes units that go over the same rows as one nest; False, with nothing written, where they cannot."""
        nests = [nest for unit in group for nest in self.nests(unit)]
        nest = row_nest(nests, rows_of(group))
        if nest is None:
            return False
        written = [value for unit in group for op in unit.roots for value in op.results]
        if any(self._overlaps(nest, value, frame) for value in written):
            return False
        private = {v for v in written if frame.last_read.get(v, -1) <= frame.index and v not in frame.placed}
        over = self._over_rows(nest, [value for value in written if value not in private], frame)
        nest = in_one_row(nest, private.__contains__)
        rows = {v: row_elements(nest, v, nest.outer) * v.tensor.dtype.itemsize for v in written if v in private}
        for value in written:
            if value in over:
                self.assign(value, over[value])
            elif value not in private:
                self.allocate(frame, value)
        nest = collapse(nest)
        cut = cut_rows(nest, nests, written, self.threads) if sum(rows.values()) <= _OWN else None
        if cut is not None:
            write_in_parts(self, nest, cut, rows)
            return True
        for value, size in rows.items():
            self.assign(value, self.scratch(frame, size))
        write_apart(self, nest)
        return True

    def _over_rows(self, nest: Nest, written: Sequence[Value], frame: Frame) -> dict[Value, Buffer]:
        """Where values may be written row by row over what is read for the last time: by row, nobody reads it after."""
        over: dict[Value, Buffer] = {}
        for value in written:
            if value in frame.placed or value in frame.lent or nbytes(value) <= _SLOT:
                continue
            for load in nest.loads():
                buffer = self.buffer_of.get(load.value)
                if buffer is None or not buffer.owned or buffer not in frame.buffers or buffer in over.values():
                    continue
                same_size = buffer.nbytes == nbytes(value) and frame.is_last_read(buffer)
                if same_size and self._is_read_before(nest, buffer, value):
                    over[value] = buffer
                    break
        return over

    def _is_read_before(self, nest: Nest, buffer: Buffer, value: Value) -> bool:
        """Whether each row of `buffer` is read before the row of `value` is written, or where it is written."""
        stores = [store for store in nest.stores() if store.value is value]
        places = {(store.address, store.code.type) for store in stores}
        written = False
        for stage in nest.stages:
            writes = any(store.value is value for store in stage.all_stores())
            for load in (load for load in stage.loads() if self.buffer_of.get(load.value) is buffer):
                in_row = all(same_rows(nest, store.address, load.address) for store in stores)
                if written or not in_row or (writes and (load.address, load.type) not in places):
                    return False
            written = written or writes
        return written

    def _overlaps(self, nest: Nest, value: Value, frame: Frame) -> bool:
        """Whether writing `value` where it is to be put could destroy what other rows still read."""
        placed = frame.placed.get(value)
        if placed is None:
            return False
        stores = [store for store in nest.stores() if store.value is value]
        for load in nest.loads():
            if self.buffer_of.get(load.value) is placed:
                return not all(same_rows(nest, store.address, load.address) for store in stores)
        return False

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
            memory = unit.roots[0].operands[: updated(unit.roots[0])] if unit.is_update else ()
            loads = (load.value for nest in self.nests(unit) for load in nest.loads())
            return list(dict.fromkeys([*memory, *loads]))
        return [value for op in unit.roots for value in (*op.operands, *(captured_values(op) if op.regions else ()))]

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
            self._place_update(nests[0], unit.roots[0], frame)
        for op in () if unit.is_update else unit.roots:
            for value in op.results:
                if value in frame.placed or value in frame.lent or not self._over_operand(nests, value, frame):
                    self.allocate(frame, value)
        written = [value for op in unit.roots for value in op.results]
        for nest in nests:
            write_nest(self, collapse(nest), frame, written)

    def _place_update(self, nest: Nest, op: Op, frame: Frame) -> None:
        """Puts the results of an update on its operands' memory where it may be written over, else on copies."""
        read = {load.value for load in nest.loads()}
        for operand, result in zip(op.operands, op.results, strict=False):
            self.pointer(operand)
            before = self.buffer_of[operand]
            placed = frame.placed.get(result)
            mine = before.owned and before in frame.buffers and frame.is_last_read(before)
            shared = any(self.buffer_of.get(value) is before for value in read) or op.operands.count(operand) > 1
            if placed is before or (placed is None and mine and not shared):
                self.assign(result, before)
            else:
                after = self.allocate(frame, result)
                self.copy(after.pointer, before.pointer, nbytes(operand))

    def _over_operand(self, nests: list[Nest], value: Value, frame: Frame) -> bool:
        """Puts `value` over an operand that is read for the last time, each element where it is written; if any is."""
        if len(nests) != 1:
            return False
        (nest,) = nests
        stores = [store for store in nest.stores() if store.value is value]
        if len(nest.stages) != 1 or nest.stages[0].reductions or nbytes(value) <= _SLOT:
            return False
        places = {(store.address, store.code.type) for store in stores}
        for load in nest.loads():
            buffer = self.buffer_of.get(load.value)
            if buffer is None or not buffer.owned or buffer not in frame.buffers or buffer.nbytes != nbytes(value):
                continue
            same = [other for other in nest.loads() if self.buffer_of.get(other.value) is buffer]
            written = any(self.buffer_of.get(store.value) is buffer for store in nest.stores())
            if (
                frame.is_last_read(buffer)
                and not written
                and all((other.address, other.type) in places for other in same)
            ):
                self.assign(value, buffer)
                return True
        return False

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
                f"define void @{self.name}(ptr noalias readonly %arguments) #0 {{",
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
            ]
        )


def nbytes(value: Value) -> int:
    """Bytes of a tensor as its array holds it; none of a token."""
    if isinstance(value.type, TokenType):
        return 0
    tensor = value.tensor
    return prod(tensor.static_shape) * tensor.dtype.itemsize


def through_views(placed: Mapping[Value, Buffer]) -> dict[Value, Buffer]:
    """Also the operands of views that are to be put somewhere."""
    buffers = dict(placed)
    for value, buffer in placed.items():
        op = value.defining_op
        while op is not None and op.name == "stablehlo.reshape":
            value = op.operands[0]
            buffers.setdefault(value, buffer)
            op = value.defining_op
    return buffers
