"""Memory of row groups: values used within a group alone take one row."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.compiler.schedule.buffers import SLOT, Buffer, BufferAssignment, PlanFrame, nbytes
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.loop_plan import planned
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import group_nest, in_one_row, row_elements, same_rows
from spmd.compiler.schedule.steps import RowGroup
from spmd.compiler.schedule.tasks import cut_loop, is_outlined, tasks_of_nests
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Value

#: Most bytes of rows that a task keeps on its stack.
_OWN = 9 << 16


def plan_rows(memory: BufferAssignment, group: Sequence[Unit], frame: PlanFrame) -> RowGroup | None:
    """Return units over the same rows as one step; None, with nothing planned, if they cannot be merged."""
    nests = [nest for unit in group for nest in nests_of(unit)]
    nest = group_nest(group, nests)
    if nest is None:
        return None
    written = [value for unit in group for op in unit.outputs for value in op.results]
    if any(_overlaps(memory, nest, value, frame) for value in written):
        return None
    frame.index += len(group) - 1
    private = {v for v in written if frame.last_read.get(v, -1) <= frame.index and v not in frame.placed}
    over = _over_rows(memory, nest, [value for value in written if value not in private], frame)
    nest = in_one_row(nest, private.__contains__)
    rows = {v: row_elements(nest, v, nest.outer) * v.tensor.dtype.itemsize for v in written if v in private}
    for value in written:
        if value in over:
            memory.assign(value, over[value])
        elif value not in private:
            memory.allocate(frame, value)
    whole = planned(collapse(nest))
    tasks = tasks_of_nests(nests, written, memory.target.threads) if sum(rows.values()) <= _OWN else 1
    cut = cut_loop(whole, tasks) if tasks > 1 else None
    for value, size in () if cut is not None else rows.items():
        memory.assign(value, memory.scratch(frame, size))
    return RowGroup(group, [], nest=whole, cut=cut, outlined=is_outlined(memory, whole), rows=rows)


def _over_rows(memory: BufferAssignment, nest: Nest, written: Sequence[Value], frame: PlanFrame) -> dict[Value, Buffer]:
    """Return operand buffers that values may overwrite row by row because this is their last use."""
    over: dict[Value, Buffer] = {}
    for value in written:
        if value in frame.placed or value in frame.early or nbytes(value) <= SLOT:
            continue
        for load in nest.loads():
            buffer = memory.buffer_of.get(load.value)
            if buffer is None or not frame.is_mine(buffer) or buffer in over.values():
                continue
            same_size = buffer.nbytes == nbytes(value) and frame.is_last_read(buffer)
            if same_size and _is_read_before(memory, nest, buffer, value):
                over[value] = buffer
                break
    return over


def _is_read_before(memory: BufferAssignment, nest: Nest, buffer: Buffer, value: Value) -> bool:
    """Return whether each row of `buffer` is loaded before or where the row of `value` is stored."""
    stores = [store for store in nest.stores() if store.value is value]
    places = {(store.address, store.code.type) for store in stores}
    written = False
    for stage in nest.stages:
        writes = any(store.value is value for store in stage.all_stores())
        for load in (load for load in stage.loads() if memory.buffer_of.get(load.value) is buffer):
            in_row = all(same_rows(nest, store.address, load.address) for store in stores)
            if written or not in_row or (writes and (load.address, load.type) not in places):
                return False
        written = written or writes
    return written


def _overlaps(memory: BufferAssignment, nest: Nest, value: Value, frame: PlanFrame) -> bool:
    """Return whether storing `value` to its assigned buffer could clobber another row that is still to be loaded."""
    placed = frame.placed.get(value)
    if placed is None:
        return False
    stores = [store for store in nest.stores() if store.value is value]
    for load in nest.loads():
        if memory.buffer_of.get(load.value) is placed:
            return not all(same_rows(nest, store.address, load.address) for store in stores)
    return False
