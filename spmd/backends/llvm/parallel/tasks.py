"""Units cut in parts, which the threads of a process do side by side.

A loop nest that takes long enough is written as a function of a part's number, and the workers are called with it. A
part is a stretch of one loop that is not folded: whoever runs it, and however many parts there are, each point is
computed alike. A fold of everything, or of a few columns, is cut at the blocks that it is folded by anyway
(reductions/reductions.py): their results are put down, and folded in their order when all are there. So no bit depends
on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from spmd.analysis.affine import Variable
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.copies import apart_copy_of
from spmd.backends.llvm.loops.lanes import WRITTEN_OUT
from spmd.backends.llvm.loops.loops import Range
from spmd.backends.llvm.loops.nests import NestWriter
from spmd.backends.llvm.loops.windows import apart_window_of
from spmd.backends.llvm.parallel.workers import RUN
from spmd.compiler.schedule.costs import cost_of_nests
from spmd.compiler.schedule.nest import Nest
from spmd.ir import Value

if TYPE_CHECKING:
    from spmd.backends.llvm.emit.function_emitter import FunctionWriter
    from spmd.backends.llvm.memory.buffers import Frame

#: Operations, and bytes, of a nanosecond, roughly; what a unit takes at least to be cut, and a part of it.
_OPERATIONS, _BYTES = 16, 16
_LEAST_UNIT, _LEAST_PART = 50_000, 4_000
#: Points of a nest that is looked at.
_LEAST_POINTS = 1 << 10
#: Points of a nest that is written as a function of its own: in a loop, where a call of it costs at every turn, and
#: elsewhere, where what is alike is rather compiled once.
_LEAST_APART, _LEAST_APART_OUTSIDE = 1 << 9, 1 << 3
#: Parts for each thread, so that one that comes late does not keep the others waiting.
_EACH = 4


@dataclass(eq=False)
class PartFunction:
    """A function `void (ptr frame, i64 part)` as it is written. What it needs from outside lies in the frame."""

    text: FunctionText = field(default_factory=FunctionText)
    captured: dict[str, str] = field(default_factory=dict)

    def pointer(self, outside: str) -> str:
        """The name, in here, of an address that has the name `outside` where the parts are called."""
        if outside.startswith("@"):
            return outside
        return self.captured.setdefault(outside, f"%captured{len(self.captured)}")

    def body(self) -> str:
        """The function's attributes, and its text in braces."""
        loads = []
        for place, name in enumerate(self.captured.values()):
            loads += [
                f"  {name}.at = getelementptr ptr, ptr %frame, i64 {place}",
                f"  {name} = load ptr, ptr {name}.at, !invariant.load !0",
            ]
        body = self.text.body([*loads, "  br label %entry"])
        return f"#{int(self.text.only_calls)} {{\n{body}\n}}"


def define(name: str, body: str) -> str:
    """The text of the function `name` with the body of a PartFunction."""
    return f"define internal void @{name}(ptr noalias readonly %frame, i64 %part) {body}"


def parts_of(nests: Sequence[Nest], results: Sequence[Value], threads: int) -> int:
    """How many parts the nests that write `results` are cut in: 1 where it is not worth it."""
    if threads == 1 or max(prod(nest.extents) for nest in nests) < _LEAST_POINTS:
        return 1
    return parts_of_time(time_of_nests(nests, results), threads)


def time_of_nests(nests: Sequence[Nest], results: Sequence[Value]) -> int:
    """How many nanoseconds the nests that write `results` take, roughly."""
    cost = cost_of_nests(nests, results)
    return cost.operations // _OPERATIONS + cost.bytes // _BYTES


def parts_of_time(time: int, threads: int) -> int:
    """How many parts a unit is cut in that takes so many nanoseconds: 1 where it is not worth it."""
    return 1 if threads == 1 or time < _LEAST_UNIT else max(1, min(time // _LEAST_PART, _EACH * threads))


def call_in_parts(
    writer: FunctionWriter, count: int, write: Callable[[PartFunction], None], *, products: bool = False
) -> None:
    """Writes a call of the function that `write` writes, for `count` parts; `products`: each of which calls BLAS."""
    name, frame = _written(writer, write)
    writer.uses_workers = True
    writer.text.declarations[f"declare void @{RUN}(ptr, ptr, i64, i64, i1)"] = None
    how = f"i64 {count}, i64 {writer.threads}, i1 {str(products).lower()}"
    writer.text.call(f"call void @{RUN}(ptr @{name}, ptr {frame}, {how})")


def call_apart(writer: FunctionWriter, write: Callable[[PartFunction], None]) -> None:
    """Writes a call of the function that `write` writes, as its part 0."""
    name, frame = _written(writer, write)
    writer.text.call(f"call void @{name}(ptr {frame}, i64 0)")


def _written(writer: FunctionWriter, write: Callable[[PartFunction], None]) -> tuple[str, str]:
    """The names of the function that `write` writes, and of a frame that holds what it needs.

    What is computed alike is one function: a layer of a network is compiled once, however many there are.
    """
    part = PartFunction()
    part.text.declarations, part.text.callees = writer.text.declarations, writer.text.callees
    write(part)
    part.text.line("ret void")
    name = writer.parts.setdefault(part.body(), f"{writer.name}.part{len(writer.parts)}")
    return name, writer.frame(list(part.captured))


def write_apart(writer: FunctionWriter, nest: Nest) -> None:
    """Writes `nest` as a function and a call of it, or where the call stands if it has few points, or stands alone, or
    is a call by itself.

    Updates stand apart nevertheless: among registers that live across the copy of what is updated, the processor did
    not foresee where they write, and a histogram took 2.7 times as long.
    """
    if (
        (writer.is_one_nest and not any(stage.updates for stage in nest.stages))
        or apart_copy_of(nest) is not None
        or apart_window_of(nest) is not None
        or prod(nest.extents) < (_LEAST_APART if writer.text.depth else _LEAST_APART_OUTSIDE)
    ):
        NestWriter(nest, writer.text, writer.pointer).write()
        return

    def write(part: PartFunction) -> None:
        NestWriter(nest, part.text, lambda value: part.pointer(writer.pointer(value))).write()

    call_apart(writer, write)


def write_nest(writer: FunctionWriter, nest: Nest, frame: Frame, results: Sequence[Value]) -> None:
    """Writes `nest`, which writes `results` with as few loops as may be, in parts where that pays."""
    num_parts = parts_of([nest], results, writer.threads)
    if num_parts > 1 and not any(stage.updates for stage in nest.stages):
        cut = _cut(nest, num_parts)
        found = 1 if cut is None else cut.count
        blocks = NestWriter(nest, writer.text, writer.pointer).fold_blocks() if found < writer.threads else None
        if blocks is not None and blocks.count > found:
            _write_in_blocks(writer, nest, frame, num_parts)
            return
        if cut is not None:
            write_in_parts(writer, nest, cut, {})
            return
    write_apart(writer, nest)


@dataclass(frozen=True)
class Cut:
    """A loop in `count` parts of `size` turns each, and what is left over in the last one."""

    variable: Variable
    size: int
    count: int


def _cut(nest: Nest, num_parts: int) -> Cut | None:
    """Where `nest` is cut: at the outermost of the loops that are long enough, or the longest; None if it cannot be."""
    if nest.outer:
        candidates = [(variable, 1) for variable in nest.outer]
    elif len(nest.stages) != 1 or prod(nest.extents) <= WRITTEN_OUT:
        return None
    else:
        (stage,) = nest.stages
        candidates = [(variable, NestWriter.turns(nest, stage, variable)) for variable in stage.kept]
    best: Cut | None = None
    for variable, turn in candidates:
        extent = nest.extents[variable]
        size = -(-extent // (num_parts * turn)) * turn
        count = extent // size
        if count > (1 if best is None else best.count):
            best = Cut(variable, size, count)
        if count * 4 >= num_parts * 3:
            break
    return best


def cut_rows(nest: Nest, nests: Sequence[Nest], results: Sequence[Value], threads: int) -> Cut | None:
    """Where `nest`, units over the same rows that had the nests `nests`, is cut, if that pays."""
    num_parts = parts_of(nests, results, threads)
    return _cut(nest, num_parts) if num_parts > 1 else None


def write_in_parts(writer: FunctionWriter, nest: Nest, cut: Cut, rows: dict[Value, int]) -> None:
    """Writes `nest`; each part has memory of its own for the values `rows`, of so many bytes."""

    def write(part: PartFunction) -> None:
        text = part.text
        own = {value: text.allocate(f"[{size} x i8]") for value, size in rows.items()}
        first = text.value(f"mul i64 %part, {cut.size}")
        is_last = text.value(f"icmp eq i64 %part, {cut.count - 1}")
        after = text.value(f"add i64 {first}, {cut.size}")
        stop = text.value(f"select i1 {is_last}, i64 {nest.extents[cut.variable]}, i64 {after}")
        part_range = Range(cut.variable, first, stop, is_last)

        def pointer(value: Value) -> str:
            return own.get(value) or part.pointer(writer.pointer(value))

        NestWriter(nest, text, pointer, part_range).write()

    call_in_parts(writer, cut.count, write)


def _write_in_blocks(writer: FunctionWriter, nest: Nest, frame: Frame, num_parts: int) -> None:
    """Writes folds: blocks in parts, then what they gave."""
    blocks = NestWriter(nest, writer.text, writer.pointer).fold_blocks()
    assert blocks is not None
    memory = writer.scratch(frame, blocks.nbytes).pointer
    size = -(-blocks.count // num_parts)
    count = blocks.count // size

    def write(part: PartFunction) -> None:
        text = part.text
        first = text.value(f"mul i64 %part, {size}")
        is_last = text.value(f"icmp eq i64 %part, {count - 1}")
        after = text.value(f"add i64 {first}, {size}")
        stop = text.value(f"select i1 {is_last}, i64 {blocks.count}, i64 {after}")
        inner = NestWriter(nest, text, lambda value: part.pointer(writer.pointer(value)))
        inner.write_blocks(part.pointer(memory), Range(-1, first, stop, is_last))

    call_in_parts(writer, count, write)
    NestWriter(nest, writer.text, writer.pointer).write_from_blocks(memory)
