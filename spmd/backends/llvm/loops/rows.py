"""Units over the same rows as one nest: each row's values are written, read and forgotten before the next row's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spmd.backends.llvm.memory.buffers import SLOT, Buffer, Frame, nbytes
from spmd.backends.llvm.parallel.tasks import cut_rows, write_apart, write_in_parts
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import group_nest, in_one_row, row_elements, same_rows
from spmd.ir import Value

if TYPE_CHECKING:
    from spmd.backends.llvm.emit.function_emitter import FunctionWriter

#: Bytes of memory of its own that a part of a unit has on its stack.
_OWN = 9 << 16


def write_rows(writer: FunctionWriter, group: Sequence[Unit], frame: Frame) -> bool:
    """Writes units that go over the same rows as one nest; False, with nothing written, where they cannot."""
    nests = [nest for unit in group for nest in writer.nests(unit)]
    nest = group_nest(group, nests)
    if nest is None:
        return False
    written = [value for unit in group for op in unit.outputs for value in op.results]
    if any(_overlaps(writer, nest, value, frame) for value in written):
        return False
    private = {v for v in written if frame.last_read.get(v, -1) <= frame.index and v not in frame.placed}
    over = _over_rows(writer, nest, [value for value in written if value not in private], frame)
    nest = in_one_row(nest, private.__contains__)
    rows = {v: row_elements(nest, v, nest.outer) * v.tensor.dtype.itemsize for v in written if v in private}
    for value in written:
        if value in over:
            writer.assign(value, over[value])
        elif value not in private:
            writer.allocate(frame, value)
    nest = collapse(nest)
    cut = cut_rows(nest, nests, written, writer.threads) if sum(rows.values()) <= _OWN else None
    if cut is not None:
        write_in_parts(writer, nest, cut, rows)
        return True
    for value, size in rows.items():
        writer.assign(value, writer.scratch(frame, size))
    write_apart(writer, nest)
    return True


def _over_rows(writer: FunctionWriter, nest: Nest, written: Sequence[Value], frame: Frame) -> dict[Value, Buffer]:
    """Where values may be written row by row over what is read for the last time: by row, nobody reads it after."""
    over: dict[Value, Buffer] = {}
    for value in written:
        if value in frame.placed or value in frame.lent or nbytes(value) <= SLOT:
            continue
        for load in nest.loads():
            buffer = writer.buffer_of.get(load.value)
            if buffer is None or not buffer.owned or buffer not in frame.buffers or buffer in over.values():
                continue
            same_size = buffer.nbytes == nbytes(value) and frame.is_last_read(buffer)
            if same_size and _is_read_before(writer, nest, buffer, value):
                over[value] = buffer
                break
    return over


def _is_read_before(writer: FunctionWriter, nest: Nest, buffer: Buffer, value: Value) -> bool:
    """Whether each row of `buffer` is read before the row of `value` is written, or where it is written."""
    stores = [store for store in nest.stores() if store.value is value]
    places = {(store.address, store.code.type) for store in stores}
    written = False
    for stage in nest.stages:
        writes = any(store.value is value for store in stage.all_stores())
        for load in (load for load in stage.loads() if writer.buffer_of.get(load.value) is buffer):
            in_row = all(same_rows(nest, store.address, load.address) for store in stores)
            if written or not in_row or (writes and (load.address, load.type) not in places):
                return False
        written = written or writes
    return written


def _overlaps(writer: FunctionWriter, nest: Nest, value: Value, frame: Frame) -> bool:
    """Whether writing `value` where it is to be put could destroy what other rows still read."""
    placed = frame.placed.get(value)
    if placed is None:
        return False
    stores = [store for store in nest.stores() if store.value is value]
    for load in nest.loads():
        if writer.buffer_of.get(load.value) is placed:
            return not all(same_rows(nest, store.address, load.address) for store in stores)
    return False
