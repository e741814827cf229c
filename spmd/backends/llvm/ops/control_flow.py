"""Loops and branches as LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.constants import constant_array
from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import can_call_back, has_buffer, native, supports
from spmd.backends.llvm.jit.interrupts import POLL, iterations_between_polls
from spmd.compiler.schedule.fusibility import is_fusible, is_plain
from spmd.compiler.schedule.steps import Branches, Carried, ViewStep, WhileLoop
from spmd.ir import Block, Op


def regions_are_native(op: Op) -> bool:
    """Return whether the regions of `op` can be compiled; ops without native code become callbacks."""
    return all(has_buffer(value.type) for value in (*op.operands, *op.results)) and all(
        _block_is_native(block) for region in op.regions for block in region.blocks
    )


def _block_is_native(block: Block) -> bool:
    if not all(has_buffer(value.type) for value in (*block.arguments, *block.terminator.operands)):
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
def _(writer: FunctionEmitter, step: ViewStep) -> None:
    """Emit nothing: the results alias the operands."""


@native("stablehlo.if", regions_are_native)
@native("stablehlo.case", regions_are_native)
def _(writer: FunctionEmitter, step: Branches) -> None:
    """Emit a branch or switch; each branch stores to the buffers of the op's results."""
    op, text = step.op, writer.text
    type = "i8" if op.name == "stablehlo.if" else "i32"
    chosen = text.value(f"load {type}, ptr {writer.pointer(op.operands[0])}")
    labels = [text.fresh("branch") for _ in op.regions]
    end = text.fresh("joined")
    if type == "i8":
        truth = text.value(f"icmp ne i8 {chosen}, 0")
        text.line(f"br i1 {truth}, label %{labels[0]}, label %{labels[1]}")
    else:
        # The last branch is the default, as for an index out of range.
        cases = " ".join(f"i32 {number}, label %{label}" for number, label in enumerate(labels[:-1]))
        text.line(f"switch i32 {chosen}, label %{labels[-1]} [ {cases} ]")
    for label, block in zip(labels, step.branches, strict=True):
        text.start_block(label)
        with text.scope():
            writer.write(block)
        text.line(f"br label %{end}")
    text.start_block(end)


@native("stablehlo.while", regions_are_native)
def _(writer: FunctionEmitter, step: WhileLoop) -> None:
    text = writer.text
    slots = [_begin(writer, state) for state in step.carried]
    head, body, end = (text.fresh(name) for name in ("while", "do", "done"))
    text.line(f"br label %{head}")
    text.start_block(head)
    for state, (slot, spare) in zip(step.carried, slots, strict=True):
        if state.swaps:
            assert state.successor is not None
            writer.name_swapped(state.buffer, text.value(f"load ptr, ptr {slot}"))
            writer.name_swapped(state.successor, text.value(f"load ptr, ptr {spare}"))
    (holds,) = step.condition.results
    with text.scope():
        writer.write(step.condition)
        number = text.value(f"load i8, ptr {writer.pointer(holds)}")
    truth = text.value(f"icmp ne i8 {number}, 0")
    text.line(f"br i1 {truth}, label %{body}, label %{end}")
    text.start_block(body)
    _poll(writer, step)
    with text.scope():
        writer.write(step.body)
        _carry(writer, step.carried, slots)
    text.line(f"br label %{head}")
    text.start_block(end)


def _begin(writer: FunctionEmitter, state: Carried) -> tuple[str, str]:
    """Initialize a carried value; return the slots of the pointers that are swapped, if it swaps."""
    home = writer.address(state.home)
    if state.begin is not None:
        writer.copy(home, writer.address(state.begin), state.begin.nbytes)
    if not state.swaps:
        return "", ""
    assert state.spare is not None
    return _slot(writer, home), _slot(writer, writer.address(state.spare))


def _slot(writer: FunctionEmitter, pointer: str) -> str:
    """Return a stack slot that holds a pointer."""
    slot = writer.text.allocate("ptr", 8)
    writer.text.line(f"store ptr {pointer}, ptr {slot}")
    return slot


def _poll(writer: FunctionEmitter, step: WhileLoop) -> None:
    """Emit a poll for interrupts every few iterations."""
    text = writer.text
    iterations = iterations_between_polls(step.work)
    counter = text.allocate("i32", 4)
    text.entry.append(f"  store i32 0, ptr {counter}")
    count = text.value(f"load i32, ptr {counter}")
    after = text.value(f"add i32 {count}, 1")
    text.line(f"store i32 {after}, ptr {counter}")
    rest = text.value(f"and i32 {after}, {iterations - 1}")
    due = text.value(f"icmp eq i32 {rest}, 0")
    ask, on = (text.fresh(name) for name in ("ask", "on"))
    text.line(f"br i1 {due}, label %{ask}, label %{on}")
    text.start_block(ask)
    answer = text.value(f"call i32 @{POLL}()")
    writer.leave_unless(text.value(f"icmp eq i32 {answer}, 0"))
    text.line(f"br label %{on}")
    text.start_block(on)


def _carry(writer: FunctionEmitter, carried: Sequence[Carried], slots: Sequence[tuple[str, str]]) -> None:
    """Emit the update of carried values at the end of an iteration."""
    changing = [
        (state, writer.address(state.buffer), writer.address(state.successor), slot, spare)
        for state, (slot, spare) in zip(carried, slots, strict=True)
        if state.successor is not None and state.successor is not state.buffer
    ]
    for state, _, successor, _, _ in changing:
        writer.copy(successor, writer.pointer(state.result), state.home.nbytes)
    for state, buffer, successor, slot, spare in changing:
        if state.swaps:
            writer.text.line(f"store ptr {successor}, ptr {slot}")
            writer.text.line(f"store ptr {buffer}, ptr {spare}")
        else:
            writer.copy(buffer, successor, state.home.nbytes)
