"""Batch tiling: batched products and the units between them, one batch at a time.

Attention multiplies queries and keys, normalizes the rows of the product, and multiplies them by the values. Unit by
unit, the products of all batches go through memory; batch by batch they stay in cache, and private intermediates take
the memory of one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod

from spmd.analysis.affine import Affine, Variable, row_major
from spmd.analysis.index_maps import element_type
from spmd.compiler.schedule.arena import Arena
from spmd.compiler.schedule.buffers import BufferAssignment, PlanFrame, nbytes
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.loop_plan import PlannedNest, planned
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import group_nest, in_one_row, row_elements
from spmd.compiler.schedule.steps import BatchRun
from spmd.compiler.schedule.target import BatchedProduct, Target
from spmd.compiler.schedule.tasks import tasks_of_time, time_of_nests
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Op, Value

#: Bytes of intermediates: least of all batches together, most per batch.
_LEAST, _MOST = 1 << 20, 3 << 20
#: Most groups of units before the first product of a run.
_BEFORE = 4


@dataclass
class _Run:
    """Groups of units executed batch by batch: `count` batches.

    `nests` are those of fused units, `depths` how many of their first loops are batch loops; `written` is the number of
    the group that produces each value.
    """

    count: int
    groups: list[Sequence[Unit]] = field(default_factory=list)
    nests: dict[int, Nest] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    products: dict[int, BatchedProduct] = field(default_factory=dict)
    written: dict[Value, int] = field(default_factory=dict)

    @property
    def units(self) -> list[Unit]:
        return [unit for group in self.groups for unit in group]

    # --- membership ---

    def take(self, memory: BufferAssignment, group: Sequence[Unit]) -> bool:
        """Append a group; return False, with nothing changed, if its batches depend on other batches."""
        number = len(self.groups)
        taken = self._take_nests(group, number) if group[0].fused else self._take_product(memory.target, group, number)
        if taken:
            self.groups.append(group)
        return taken

    def _take_product(self, target: Target, group: Sequence[Unit], number: int) -> bool:
        (op,) = group[0].outputs
        product = _batched_product(target, op)
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

    def _take_nests(self, group: Sequence[Unit], number: int) -> bool:
        if any(unit.is_update for unit in group):
            return False
        nests = [nest for unit in group for nest in nests_of(unit)]
        if len(nests) != len(group) or any(len(nest.stages) != 1 for nest in nests):
            return False
        nest = nests[0] if len(group) == 1 else group_nest(group, nests)
        if nest is None or nest.outer != tuple(range(len(nest.outer))):
            return False
        depth = next((d for d in range(len(nest.extents) + 1) if prod(nest.extents[:d]) == self.count), None)
        if depth is None or (nest.outer and len(nest.outer) < depth):
            return False
        if any(variable not in stage.parallel for stage in nest.stages for variable in range(depth)):
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
        """Return the elements per batch of `value`."""
        return prod(value.tensor.static_shape) // self.count

    def _is_by_batch(self, nest: Nest, depth: int, value: Value, address: Affine) -> bool:
        """Return whether each batch accesses its own contiguous slice of `value`, in order."""
        size = self._size(value)
        if size * self.count != prod(value.tensor.static_shape) or element_type(value).is_complex:
            return False
        for variable, stride in enumerate(row_major(nest.extents[:depth])):
            if nest.extents[variable] > 1 and address.coefficient(variable) != stride * size:
                return False
        within = Affine(address.offset, tuple((v, c) for v, c in address.terms if v >= depth), address.dynamic)
        bounds = within.bounds(nest.extents)
        return bounds is not None and bounds[0] >= 0 and bounds[1] < size

    def reads(self, memory: BufferAssignment, group: Sequence[Unit]) -> bool:
        """Return whether `group` reads a value produced in the run."""
        return any(value in self.written for unit in group for value in memory.reads(unit))


def _batched_product(target: Target, op: Op) -> BatchedProduct | None:
    """Return `op` as a product with several batches; None if it is no such product or is empty."""
    product = target.product(op) if op.name == "stablehlo.dot_general" else None
    if product is None or prod(product.batch) < 2 or not product.size:
        return None
    return product


def _run_of(memory: BufferAssignment, groups: Sequence[Sequence[Unit]], begin: int) -> _Run | None:
    """Return the run that begins with number `begin` of `groups`; None if there is none."""
    near = (group[0] for group in groups[begin : begin + _BEFORE + 1])
    ahead = [_batched_product(memory.target, unit.outputs[0]) for unit in near if not unit.fused]
    first = next((product for product in ahead if product is not None), None)
    if first is None:
        return None
    run = _Run(prod(first.batch))
    for group in islice(groups, begin, None):
        if not run.take(memory, group):
            break
    # A trailing group that depends on no product of the run gains nothing.
    while run.groups and not run.reads(memory, run.groups[-1]):
        _drop_last(run)
    return run if len(run.products) and len(run.groups) > 1 else None


def _drop_last(run: _Run) -> None:
    number = len(run.groups) - 1
    run.groups.pop()
    run.nests.pop(number, None)
    run.products.pop(number, None)
    run.written = {value: group for value, group in run.written.items() if group != number}


def plan_batches(
    memory: BufferAssignment, groups: Sequence[Sequence[Unit]], begin: int, frame: PlanFrame
) -> BatchRun | None:
    """Return the leading `groups` from number `begin` on as a step that runs batch by batch; None if that does
    not pay.
    """
    run = _run_of(memory, groups, begin)
    if run is None:
        return None
    last = frame.index + len(run.units) - 1
    private = {v for v in run.written if frame.last_read.get(v, -1) <= last and v not in frame.placed}
    handed = sum(map(nbytes, private))
    if handed < _LEAST or handed > _MOST * run.count or _overlaps(memory, run, private, frame):
        return None
    tasks = _tasks(memory.target, run)
    return None if tasks is None else _batches(memory, run, frame, private, tasks)


def _overlaps(memory: BufferAssignment, run: _Run, private: set[Value], frame: PlanFrame) -> bool:
    """Return whether storing one batch could clobber values that other batches still read."""
    stored = [value for value in run.written if value not in private]
    if any(value in frame.early for value in stored):
        return True
    read = {memory.buffer_of.get(value) for unit in run.units for value in memory.reads(unit)}
    return any(frame.placed[value] in read for value in stored if value in frame.placed)


def _tasks(target: Target, run: _Run) -> int | None:
    """Return how many tasks the batches are split into; None if splitting units separately is better."""
    time = sum(prod(product.batch) * product.nanoseconds for product in run.products.values())
    time += sum(
        time_of_nests([nest], [value for value, group in run.written.items() if group == number])
        for number, nest in run.nests.items()
    )
    tasks = tasks_of_time(time, target.threads)
    if tasks == 1:
        return 1
    if run.count < 2 * target.threads or not all(product.runs_in_tasks for product in run.products.values()):
        return None
    return min(tasks, run.count)


def _batches(memory: BufferAssignment, run: _Run, frame: PlanFrame, private: set[Value], tasks: int) -> BatchRun | None:
    """Return the step with private values shrunk to one batch, or one row of it; None if the loops do not
    allow that.
    """
    group_of = [number for number, group in enumerate(run.groups) for _ in group]
    last = {v: max(run.written[v], group_of[frame.last_read.get(v, frame.index) - frame.index]) for v in private}
    nests: dict[int, tuple[PlannedNest, Variable]] = {}
    sizes = {value: nbytes(value) // run.count for value in run.written if value in private}
    for number, nest in run.nests.items():
        depth = run.depths[number]
        outer, batches = nest.outer or tuple(range(depth)), tuple(range(depth))
        of_row = {v for v in private if nest.outer and run.written[v] == last[v] == number}
        sizes.update({v: row_elements(nest, v, nest.outer) * v.tensor.dtype.itemsize for v in of_row})
        nest = in_one_row(nest, of_row.__contains__)
        nest = in_one_row(replace(nest, outer=batches), (private - of_row).__contains__)
        nest = collapse(replace(nest, outer=outer), separate=batches)
        batch = next((v for v in batches if v in nest.outer and nest.extents[v] == run.count), None)
        if batch is None:
            return None
        nests[number] = planned(nest), batch
    offsets, room = _placed(run, sizes, last)
    frame.index += len(run.units) - 1
    for value in run.written:
        if value not in offsets:
            memory.allocate(frame, value)
    own = memory.scratch(frame, room * tasks)
    return BatchRun(run.units, [], run.groups, nests, run.products, run.count, tasks, offsets, room, memory=own)


def _placed(run: _Run, sizes: Mapping[Value, int], last: Mapping[Value, int]) -> tuple[dict[Value, int], int]:
    """Return offsets of the values in `sizes` in the memory of a task, and its size; `last`: the group of their last
    use.
    """
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
