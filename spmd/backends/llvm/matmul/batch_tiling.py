"""Products of batches with what is computed between them, one batch after another.

Attention multiplies queries and keys, makes weights of the rows of the product, and multiplies these and the values.
Unit after unit, the products of all batches go out to memory and come in again; batch by batch they lie in the cache,
and what units hand to each other alone is the memory of one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from spmd.analysis.affine import Affine, Variable, row_major
from spmd.analysis.index_maps import element_type
from spmd.backends.llvm.loops.loops import Range
from spmd.backends.llvm.loops.nests import NestWriter
from spmd.backends.llvm.matmul.blas import thread_count
from spmd.backends.llvm.matmul.matrices import Product, product_of
from spmd.backends.llvm.matmul.products import time_of_product, write_one_product
from spmd.backends.llvm.memory.buffers import Frame, nbytes
from spmd.backends.llvm.parallel.tasks import PartFunction, call_apart, call_in_parts, parts_of_time, time_of_nests
from spmd.compiler.schedule.arena import Arena
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import group_nest, in_one_row, row_elements
from spmd.ir import Op, Value

if TYPE_CHECKING:
    from spmd.backends.llvm.emit.function_emitter import FunctionWriter

#: Bytes that products hand on: of all batches together at least, of one at most.
_LEAST, _MOST = 1 << 20, 3 << 20
#: Groups of units before the first product of a run.
_BEFORE = 4


@dataclass
class _Run:
    """Groups of units that are run batch by batch: `count` batches.

    `nests` are those of fused units, `depths` how many of their first loops go over the batches; `written` is the
    number of the group that writes each value.
    """

    count: int
    groups: list[Sequence[Unit]] = field(default_factory=list)
    nests: dict[int, Nest] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    products: dict[int, Product] = field(default_factory=dict)
    written: dict[Value, int] = field(default_factory=dict)

    @property
    def units(self) -> list[Unit]:
        return [unit for group in self.groups for unit in group]

    # --- what may be in a run ---

    def take(self, writer: FunctionWriter, group: Sequence[Unit]) -> bool:
        """Takes in a group; False, with nothing changed, where its batches need other batches."""
        number = len(self.groups)
        taken = self._take_nests(writer, group, number) if group[0].fused else self._take_product(group, number)
        if taken:
            self.groups.append(group)
        return taken

    def _take_product(self, group: Sequence[Unit], number: int) -> bool:
        (op,) = group[0].outputs
        product = batched_product(op)
        if product is None or prod(product.batch) != self.count:
            return False
        for operand, matrix in zip(op.operands, (product.lhs, product.rhs), strict=True):
            if operand in self.written:
                strides = [stride * self._size(operand) for stride in row_major(product.batch)]
                if any(n > 1 and a != b for n, a, b in zip(product.batch, matrix.batch, strides, strict=True)):
                    return False
        self.products[number] = product
        self.written[op.result] = number
        return True

    def _take_nests(self, writer: FunctionWriter, group: Sequence[Unit], number: int) -> bool:
        if any(unit.is_update for unit in group):
            return False
        nests = [nest for unit in group for nest in writer.nests(unit)]
        if len(nests) != len(group) or any(len(nest.stages) != 1 for nest in nests):
            return False
        nest = nests[0] if len(group) == 1 else group_nest(group, nests)
        if nest is None or nest.outer != tuple(range(len(nest.outer))):
            return False
        depth = next((d for d in range(len(nest.extents) + 1) if prod(nest.extents[:d]) == self.count), None)
        if depth is None or (nest.outer and len(nest.outer) < depth):
            return False
        if any(variable not in stage.kept for stage in nest.stages for variable in range(depth)):
            return False
        values = [value for unit in group for op in unit.outputs for value in op.results]
        written = {**self.written, **dict.fromkeys(values, number)}
        places = [(store.value, store.address) for store in nest.stores()]
        places += [(load.value, load.address) for load in nest.loads() if load.value in written]
        if not all(self._is_by_batch(nest, depth, value, address) for value, address in places):
            return False
        self.written, self.nests[number], self.depths[number] = written, nest, depth
        return True

    def _size(self, value: Value) -> int:
        """The elements of a batch of `value`."""
        return prod(value.tensor.static_shape) // self.count

    def _is_by_batch(self, nest: Nest, depth: int, value: Value, address: Affine) -> bool:
        """Whether each batch goes to a stretch of `value` of its own, all of them one after another."""
        size = self._size(value)
        if size * self.count != prod(value.tensor.static_shape) or element_type(value).is_complex:
            return False
        for variable, stride in enumerate(row_major(nest.extents[:depth])):
            if nest.extents[variable] > 1 and address.coefficient(variable) != stride * size:
                return False
        within = Affine(address.offset, tuple((v, c) for v, c in address.terms if v >= depth), address.dynamic)
        bounds = within.bounds(nest.extents)
        return bounds is not None and bounds[0] >= 0 and bounds[1] < size

    def reads(self, writer: FunctionWriter, group: Sequence[Unit]) -> bool:
        """Whether `group` reads what is written in the run."""
        return any(value in self.written for unit in group for value in writer.reads(unit))


def batched_product(op: Op) -> Product | None:
    """`op` as products of several batches; None where it is anything else, or computes nothing."""
    product = product_of(op) if op.name == "stablehlo.dot_general" else None
    if product is None or prod(product.batch) < 2 or not product.size:
        return None
    return product


def _run_of(writer: FunctionWriter, groups: Sequence[Sequence[Unit]]) -> _Run | None:
    """The run that begins with the first of `groups`; None where there is none."""
    ahead = [batched_product(group[0].outputs[0]) for group in groups[: _BEFORE + 1] if not group[0].fused]
    first = next((product for product in ahead if product is not None), None)
    if first is None:
        return None
    run = _Run(prod(first.batch))
    for group in groups:
        if not run.take(writer, group):
            break
    # What no product is made of, and what is made of none, gains nothing.
    while run.groups and not run.reads(writer, run.groups[-1]):
        _drop_last(run)
    return run if len(run.products) and len(run.groups) > 1 else None


def _drop_last(run: _Run) -> None:
    number = len(run.groups) - 1
    run.groups.pop()
    run.nests.pop(number, None)
    run.products.pop(number, None)
    run.written = {value: group for value, group in run.written.items() if group != number}


def plan_batches(writer: FunctionWriter, groups: Sequence[Sequence[Unit]], frame: Frame) -> Batches | None:
    """How the first of `groups` are written batch by batch; None where that does not pay."""
    run = _run_of(writer, groups)
    if run is None:
        return None
    last = frame.index + len(run.units) - 1
    private = {v for v in run.written if frame.last_read.get(v, -1) <= last and v not in frame.placed}
    handed = sum(map(nbytes, private))
    if handed < _LEAST or handed > _MOST * run.count or _overlaps(writer, run, private, frame):
        return None
    parts = _parts(writer, run)
    return None if parts is None else _batches(run, frame, private, parts)


def _overlaps(writer: FunctionWriter, run: _Run, private: set[Value], frame: Frame) -> bool:
    """Whether writing a batch could destroy what others still read."""
    kept = [value for value in run.written if value not in private]
    if any(value in frame.lent for value in kept):
        return True
    read = {writer.buffer_of.get(value) for unit in run.units for value in writer.reads(unit)}
    return any(frame.placed[value] in read for value in kept if value in frame.placed)


def _parts(writer: FunctionWriter, run: _Run) -> int | None:
    """How many parts the batches are cut in; None where units are better cut by themselves."""
    time = sum(prod(product.batch) * time_of_product(product) for product in run.products.values())
    time += sum(
        time_of_nests([nest], [value for value, group in run.written.items() if group == number])
        for number, nest in run.nests.items()
    )
    parts = parts_of_time(time, writer.threads)
    if parts == 1:
        return 1
    uses_blas = any(not product.is_tiled for product in run.products.values())
    if run.count < 2 * writer.threads or (thread_count() is None and uses_blas):
        return None
    return min(parts, run.count)


def _batches(run: _Run, frame: Frame, private: set[Value], parts: int) -> Batches | None:
    """The run with memory of one batch, or of a row of it, for what is private; None where loops go otherwise."""
    group_of = [number for number, group in enumerate(run.groups) for _ in group]
    last = {v: max(run.written[v], group_of[frame.last_read.get(v, frame.index) - frame.index]) for v in private}
    nests: dict[int, tuple[Nest, Variable]] = {}
    sizes = {value: nbytes(value) // run.count for value in run.written if value in private}
    for number, nest in run.nests.items():
        depth = run.depths[number]
        outer, batches = nest.outer or tuple(range(depth)), tuple(range(depth))
        of_row = {v for v in private if nest.outer and run.written[v] == last[v] == number}
        sizes.update({v: row_elements(nest, v, nest.outer) * v.tensor.dtype.itemsize for v in of_row})
        nest = in_one_row(nest, of_row.__contains__)
        nest = in_one_row(replace(nest, outer=batches), (private - of_row).__contains__)
        nest = collapse(replace(nest, outer=outer), apart=batches)
        batch = next((v for v in batches if v in nest.outer and nest.extents[v] == run.count), None)
        if batch is None:
            return None
        nests[number] = nest, batch
    return Batches(run, nests, parts, *_placed(run, sizes, last))


def _placed(run: _Run, sizes: Mapping[Value, int], last: Mapping[Value, int]) -> tuple[dict[Value, int], int]:
    """Where values of `sizes`, that group `last` reads last, lie in the memory of a part, and how large that is."""
    arena = Arena()
    numbers: dict[Value, int] = {}
    for group in range(len(run.groups)):
        for value in sizes:
            if run.written[value] == group:
                numbers[value] = arena.allocate(sizes[value])
        for value in sizes:
            if last[value] == group:
                arena.release(numbers[value])
    placement = arena.place()
    return {value: placement.offsets[number] for value, number in numbers.items()}, placement.size


class Batches:
    """A run as it is written: in `parts`; `nests` with the loops that go over the batches, by number of the group.

    `offsets` are the places, in the `room` bytes that a part has, of what units of a batch hand to each other alone.
    """

    def __init__(
        self,
        run: _Run,
        nests: Mapping[int, tuple[Nest, Variable]],
        parts: int,
        offsets: Mapping[Value, int],
        room: int,
    ) -> None:
        self.run, self.nests, self.parts = run, nests, parts
        self.offsets, self.room = offsets, room
        self.groups, self.units = run.groups, run.units

    def write(self, writer: FunctionWriter, frame: Frame) -> None:
        """Writes the run, of which the frame's unit is the last."""
        for value in self.run.written:
            if value not in self.offsets:
                writer.allocate(frame, value)
        memory = writer.scratch(frame, self.room * self.parts).pointer

        def write(part: PartFunction) -> None:
            text = part.text
            done = text.value(f"mul i64 %part, {self.run.count}")
            after = text.value(f"add i64 {done}, {self.run.count}")
            first, stop = (text.value(f"udiv i64 {total}, {self.parts}") for total in (done, after))
            begin = text.value(f"mul i64 %part, {self.room}")
            own = text.value(f"getelementptr i8, ptr {part.pointer(memory)}, i64 {begin}")
            mine = {v: text.value(f"getelementptr i8, ptr {own}, i64 {offset}") for v, offset in self.offsets.items()}
            turn, _ = text.open_loop()
            for number in range(len(self.groups)):
                self._write_group(writer, part, number, turn, mine)
            text.close_loop(stop, 1, first)

        if self.parts == 1:
            call_apart(writer, write)
        else:
            call_in_parts(writer, self.parts, write, products=True)

    def _write_group(
        self, writer: FunctionWriter, part: PartFunction, number: int, turn: str, mine: Mapping[Value, str]
    ) -> None:
        def at(value: Value) -> str:
            return mine.get(value) or part.pointer(writer.pointer(value))

        if number in self.nests:
            nest, batch = self.nests[number]
            NestWriter(nest, part.text, at, Range(batch, turn, None, "true")).write()
            return
        (op,) = self.groups[number][0].outputs
        values = (*op.operands, op.result)
        places = [(at(value), value in self.offsets) for value in values]
        write_one_product(writer, part.text, self.run.products[number], turn, places)
