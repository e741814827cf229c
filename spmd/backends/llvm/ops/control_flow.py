"""Loops and branches, views, and updates in place, as LLVM's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spmd.analysis.constants import constant_array
from spmd.backends.llvm.emit.function_emitter import FunctionWriter
from spmd.backends.llvm.emit.native_ops import can_call_back, lies_in_buffers, native, supports
from spmd.backends.llvm.jit.interrupts import POLL, turns_between
from spmd.backends.llvm.matmul.conv_input_fusion import take_images
from spmd.backends.llvm.memory.buffers import Buffer, Frame, nbytes
from spmd.backends.llvm.memory.in_place import UnitsOfBlock, may_overwrite
from spmd.compiler.schedule.costs import cost_of_unit
from spmd.compiler.schedule.fusibility import is_fusible, is_plain
from spmd.compiler.schedule.fusion import fuse
from spmd.ir import Block, Op, Value, captured_values

#: Bytes of loop state that is copied from turn to turn; larger state changes places with what replaces it.
_COPIED = 4096


def regions_are_native(op: Op) -> bool:
    """Whether all that the regions of `op` hold and hand on can be written; what has no native form calls Python."""
    return all(lies_in_buffers(value.type) for value in (*op.operands, *op.results)) and all(
        _block_is_native(block) for region in op.regions for block in region.blocks
    )


def _block_is_native(block: Block) -> bool:
    if not all(lies_in_buffers(value.type) for value in (*block.arguments, *block.terminator.operands)):
        return False
    return all(
        (constant_array(op) is not None and is_plain(op.result.type))
        or is_fusible(op)
        or supports(op)
        or can_call_back(op)
        for op in block.ops[:-1]
    )


@native("stablehlo.reshape", lambda op: is_plain(op.result.type))
@native("stablehlo.optimization_barrier", lambda op: all(is_plain(value.type) for value in op.results))
def _(writer: FunctionWriter, op: Op, frame: Frame) -> None:
    for operand, result in zip(op.operands, op.results, strict=True):
        writer.pointer(operand)
        writer.assign(result, writer.buffer_of[operand])


@native("stablehlo.if", regions_are_native)
@native("stablehlo.case", regions_are_native)
def _(writer: FunctionWriter, op: Op, frame: Frame) -> None:
    """Each branch writes its results where the op's are."""
    targets = [writer.allocate(frame, result) for result in op.results]
    text = writer.text
    type = "i8" if op.name == "stablehlo.if" else "i32"
    chosen = text.value(f"load {type}, ptr {writer.pointer(op.operands[0])}")
    labels = [text.fresh("branch") for _ in op.regions]
    end = text.fresh("joined")
    if type == "i8":
        truth = text.value(f"icmp ne i8 {chosen}, 0")
        text.line(f"br i1 {truth}, label %{labels[0]}, label %{labels[1]}")
    else:
        # The last branch is also that of every index that names none.
        cases = " ".join(f"i32 {number}, label %{label}" for number, label in enumerate(labels[:-1]))
        text.line(f"switch i32 {chosen}, label %{labels[-1]} [ {cases} ]")
    for label, region in zip(labels, op.regions, strict=True):
        text.start_block(label)
        results = region.block.terminator.operands
        with text.part():
            writer.write_results(fuse(region.block, results), results, targets)
        text.line(f"br label %{end}")
    text.start_block(end)


@dataclass(slots=True)
class _Carried:
    """One value that a loop carries: where it lies, and where its successor is made (None: it stays as it is)."""

    argument: Value
    result: Value
    buffer: Buffer
    successor: Buffer | None = None
    memory: tuple[Buffer, ...] = ()  # what both stand on, where they change places
    slot: str = ""  # where the addresses of both are kept then
    spare: str = ""


@native("stablehlo.while", regions_are_native)
def _(writer: FunctionWriter, op: Op, frame: Frame) -> None:
    _LoopWriter(writer, op, frame).write()


class _LoopWriter:
    def __init__(self, writer: FunctionWriter, op: Op, frame: Frame) -> None:
        self.writer = writer
        self.op = op
        self.frame = frame
        self.condition, self.body = (region.block for region in op.regions)
        results = self.body.terminator.operands
        self.units = take_images(writer, fuse(self.body, results), results)
        self.units_of_body = UnitsOfBlock(self.units, writer.last_reads(self.units, ()))

    def write(self) -> None:
        writer, text = self.writer, self.writer.text
        states = [self._state(place) for place in range(len(self.op.results))]
        head, body, end = (text.fresh(name) for name in ("while", "do", "done"))
        text.line(f"br label %{head}")
        text.start_block(head)
        self._bind(states)
        (holds,) = self.condition.terminator.operands
        with text.part():
            writer.write_units(fuse(self.condition, [holds]), [holds], {})
            number = text.value(f"load i8, ptr {writer.pointer(holds)}")
        truth = text.value(f"icmp ne i8 {number}, 0")
        text.line(f"br i1 {truth}, label %{body}, label %{end}")
        text.start_block(body)
        self._ask()
        with text.part():
            self._turn(states)
        text.line(f"br label %{head}")
        text.start_block(end)
        for state, result in zip(states, self.op.results, strict=True):
            for memory in state.memory:
                memory.values.append(result)
            writer.assign(result, state.buffer)

    def _ask(self) -> None:
        """Every so many turns, asks the interpreter whether to go on."""
        text = self.writer.text
        turns = turns_between(sum(cost.operations + cost.bytes for cost in map(cost_of_unit, self.units)))
        counter = text.allocate("i32", 4)
        text.entry.append(f"  store i32 0, ptr {counter}")
        count = text.value(f"load i32, ptr {counter}")
        after = text.value(f"add i32 {count}, 1")
        text.line(f"store i32 {after}, ptr {counter}")
        rest = text.value(f"and i32 {after}, {turns - 1}")
        due = text.value(f"icmp eq i32 {rest}, 0")
        ask, on = (text.fresh(name) for name in ("ask", "on"))
        text.line(f"br i1 {due}, label %{ask}, label %{on}")
        text.start_block(ask)
        answer = text.value(f"call i32 @{POLL}()")
        self.writer.leave_unless(text.value(f"icmp eq i32 {answer}, 0"))
        text.line(f"br label %{on}")
        text.start_block(on)

    # --- what is carried ---

    def _state(self, place: int) -> _Carried:
        """Where carried value `place` lies, with its first value in it."""
        writer, frame = self.writer, self.frame
        first, result = self.op.operands[place], self.op.results[place]
        argument, after = self.body.arguments[place], self.body.terminator.operands[place]
        writer.pointer(first)
        before = writer.buffer_of[first]
        if self._stays(place):
            return _Carried(argument, after, before)
        # Who is copied before this one does not read it again; the last of several may so begin where they all do.
        others = [operand for k, operand in enumerate(self.op.operands) if k > place or (k < place and self._stays(k))]
        others += captured_values(self.op)  # which every turn reads anew
        free = before.owned and before in frame.buffers and frame.is_last_read(before)
        if free and result not in frame.placed and not any(writer.buffer_of.get(o) is before for o in others):
            buffer = before
        else:
            buffer = writer.allocate(frame, result)
            buffer.values.remove(result)
            writer.copy(buffer.pointer, before.pointer, nbytes(first))
        state = _Carried(argument, after, buffer)
        if self._in_place(state, place):
            state.successor = buffer
        else:
            state.successor = writer.scratch(frame, nbytes(result))
            if nbytes(result) > _COPIED:
                state.memory = (buffer, state.successor)
                state.slot, state.spare = text_slot(writer, buffer.pointer), text_slot(writer, state.successor.pointer)
        return state

    def _stays(self, place: int) -> bool:
        """Whether carried value `place` is the same in every turn."""
        return self.body.terminator.operands[place] is self.body.arguments[place]

    def _in_place(self, state: _Carried, place: int) -> bool:
        """Whether the successor may be written over the value: nobody reads that after, nor elsewhere meanwhile."""
        results = self.body.terminator.operands
        if any(result is state.argument for result in results):
            return False
        if sum(result is state.result for result in results) > 1:
            return False
        return may_overwrite(self.writer, self.units_of_body, state.argument, state.result)

    def _bind(self, states: Sequence[_Carried]) -> None:
        """Tells where the carried values lie in this turn."""
        text, writer = self.writer.text, self.writer
        for place, state in enumerate(states):
            if state.slot:
                state.buffer = Buffer(text.value(f"load ptr, ptr {state.slot}"), state.buffer.nbytes)
                state.successor = Buffer(text.value(f"load ptr, ptr {state.spare}"), state.buffer.nbytes)
            for argument in (state.argument, self.condition.arguments[place]):
                writer.buffer_of[argument] = Buffer(state.buffer.pointer, state.buffer.nbytes)

    def _turn(self, states: Sequence[_Carried]) -> None:
        writer, text = self.writer, self.writer.text
        placed = {}
        for state in states:
            if state.successor is not None and state.result not in placed:
                placed[state.result] = state.successor
        for state in states:
            # An update in place stands on the state's own memory.
            if state.successor is state.buffer:
                writer.buffer_of[state.argument] = state.buffer
        writer.write_units(self.units, self.body.terminator.operands, placed)
        changing = [state for state in states if state.successor is not None and state.successor is not state.buffer]
        for state in changing:
            assert state.successor is not None
            writer.copy(state.successor.pointer, writer.pointer(state.result), state.buffer.nbytes)
        for state in changing:
            assert state.successor is not None
            if state.slot:
                text.line(f"store ptr {state.successor.pointer}, ptr {state.slot}")
                text.line(f"store ptr {state.buffer.pointer}, ptr {state.spare}")
            else:
                writer.copy(state.buffer.pointer, state.successor.pointer, state.buffer.nbytes)


def text_slot(writer: FunctionWriter, pointer: str) -> str:
    """A stack slot that holds an address."""
    slot = writer.text.allocate("ptr", 8)
    writer.text.line(f"store ptr {pointer}, ptr {slot}")
    return slot
