"""Loops and branches as LLVM's text."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.constants import constant_array
from spmd.backends.llvm.emit.function_emitter import FunctionWriter
from spmd.backends.llvm.emit.native_ops import can_call_back, lies_in_buffers, native, supports
from spmd.backends.llvm.jit.interrupts import POLL, turns_between
from spmd.compiler.schedule.fusibility import is_fusible, is_plain
from spmd.compiler.schedule.steps import Branches, Carried, Loop, ViewStep
from spmd.ir import Block, Op


def regions_are_native(op: Op) -> bool:
    """Return whether all that the regions of `op` hold and hand on can be written; what has no native form calls
    Python.
    """
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
def _(writer: FunctionWriter, step: ViewStep) -> None:
    """Its results lie where its operands do."""


@native("stablehlo.if", regions_are_native)
@native("stablehlo.case", regions_are_native)
def _(writer: FunctionWriter, step: Branches) -> None:
    """Each branch writes its results where the op's are."""
    op, text = step.op, writer.text
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
    for label, block in zip(labels, step.branches, strict=True):
        text.start_block(label)
        with text.part():
            writer.write(block)
        text.line(f"br label %{end}")
    text.start_block(end)


@native("stablehlo.while", regions_are_native)
def _(writer: FunctionWriter, step: Loop) -> None:
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
    with text.part():
        writer.write(step.condition)
        number = text.value(f"load i8, ptr {writer.pointer(holds)}")
    truth = text.value(f"icmp ne i8 {number}, 0")
    text.line(f"br i1 {truth}, label %{body}, label %{end}")
    text.start_block(body)
    _poll(writer, step)
    with text.part():
        writer.write(step.body)
        _carry(writer, step.carried, slots)
    text.line(f"br label %{head}")
    text.start_block(end)


def _begin(writer: FunctionWriter, state: Carried) -> tuple[str, str]:
    """Put a carried value where the loop begins with it; the slots of addresses that change places, if they do."""
    home = writer.address(state.home)
    if state.begin is not None:
        writer.copy(home, writer.address(state.begin), state.begin.nbytes)
    if not state.swaps:
        return "", ""
    assert state.spare is not None
    return _slot(writer, home), _slot(writer, writer.address(state.spare))


def _slot(writer: FunctionWriter, pointer: str) -> str:
    """Return a stack slot that holds an address."""
    slot = writer.text.allocate("ptr", 8)
    writer.text.line(f"store ptr {pointer}, ptr {slot}")
    return slot


def _poll(writer: FunctionWriter, step: Loop) -> None:
    """Every so many iterations, polls for an interrupt."""
    text = writer.text
    turns = turns_between(step.work)
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
    writer.leave_unless(text.value(f"icmp eq i32 {answer}, 0"))
    text.line(f"br label %{on}")
    text.start_block(on)


def _carry(writer: FunctionWriter, carried: Sequence[Carried], slots: Sequence[tuple[str, str]]) -> None:
    """Hand what an iteration has made to the next one."""
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
