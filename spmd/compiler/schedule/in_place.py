"""In-place computation: whether a value may be stored over another, element by element or as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from spmd.analysis.constants import constant_array
from spmd.compiler.schedule.buffers import SLOT, Buffer, BufferAssignment, PlanFrame, nbytes
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Load, Nest
from spmd.compiler.schedule.steps import Initial
from spmd.compiler.schedule.units import nests_of
from spmd.compiler.schedule.updates import updated
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Op, Value, captured_values
from spmd.ir.attributes import is_splat


class BlockUses:
    """The units of a block in execution order, with the producer, last use and views of values."""

    def __init__(self, units: Sequence[Unit], last_read: Mapping[Value, int]) -> None:
        self.units = units
        self.last_read = last_read
        #: The number of the unit that produces each value.
        self.makers: dict[Value, int] = {}
        self._views: dict[Value, list[Unit]] = {}
        for index, unit in enumerate(units):
            for op in unit.outputs:
                self.makers.update(dict.fromkeys(op.results, index))
                if unit.is_view or has_trait(op, Trait.LOOP):
                    for operand in op.operands:
                        self._views.setdefault(operand, []).append(unit)

    def has_aliases(self, old: Value, new: Value) -> bool:
        """Return whether values other than `new` may alias `old`: views of it, and results of loops."""
        return any(not _carries(unit, old, new) for unit in self._views.get(old, ()))


def may_overwrite(block: BlockUses, old: Value, new: Value) -> bool:
    """Return whether `new`, produced by a unit of `block`, may overwrite `old`, which must have no later or concurrent
    reader.
    """
    if block.has_aliases(old, new):
        return False
    makers = [block.makers.get(new)]
    while (op := new.defining_op) is not None and op.name == "stablehlo.reshape":
        new = op.operands[0]
        makers.append(block.makers.get(new))
    index = min((index for index in makers if index is not None), default=None)
    if index is None:
        return False
    last = block.last_read.get(old, -1)
    unit = block.units[index]
    alike = last == index and (_reads_what_it_overwrites(unit, old, new) or _carries(unit, old, new))
    return last < index or alike


def _carries(unit: Unit, old: Value, new: Value) -> bool:
    """Return whether `unit` is a loop with `old` as initial and `new` as final carried value, and no other use of
    `old`.
    """
    op = unit.outputs[0]
    if not has_trait(op, Trait.LOOP) or new not in op.results:
        return False
    alone = op.operands.count(old) == 1 and old not in captured_values(op)
    return alone and op.operands[op.results.index(new)] is old


def _reads_what_it_overwrites(unit: Unit, old: Value, new: Value) -> bool:
    """Return whether `unit` loads each element of `old` only to store the element of `new` at the same address."""
    if not unit.fused or len(nests_of(unit)) != 1:
        return False
    (nest,) = nests_of(unit)
    if unit.is_update:
        (op,) = unit.outputs
        written = op.operands[: updated(op)]
        is_read = any(load.value is old for load in _conflicting_loads(nest))
        return written[op.results.index(new)] is old and written.count(old) == 1 and not is_read
    if len(nest.stages) != 1 or nest.stages[0].reductions:
        return False
    places = {(store.address, store.code.type) for store in nest.stores() if store.value is new}
    reads = [load for load in nest.loads() if load.value is old]
    return all((load.address, load.type) in places for load in reads)


def _conflicting_loads(nest: Nest) -> list[Load]:
    """Return the loads of an update's nest that may read what another point has written, if they share memory.

    A point loads everything before it stores.
    """
    if prod(nest.extents) == 1:
        return []
    (stage,) = nest.stages
    places = {(store.address, store.code.type) for store in stage.stores}
    return [load for load in nest.loads() if (load.address, load.type) not in places]


def early_placements(
    block: BlockUses, placed: Mapping[Value, Buffer], free: Mapping[Value, Buffer]
) -> dict[Value, Buffer]:
    """Return result buffers, among `free`, that operands may occupy until their last use, which computes the result.

    A gradient is so computed in the memory of the new parameter.
    """
    if not free:
        return {}
    early: dict[Value, Buffer] = {}
    for index in range(len(block.units) - 1, -1, -1):
        for new in (value for op in block.units[index].outputs for value in op.results):
            place = free.get(new) or early.get(new)
            if place is None:
                continue
            for old in _read_by(block.units[index], new):
                maker = block.makers.get(old)
                known = old in placed or old in early
                if maker is None or known or block.last_read[old] != index or old.type != new.type:
                    continue
                if not block.units[maker].is_view and may_overwrite(block, old, new):
                    early[old] = place
                    break
    return early


def _read_by(unit: Unit, new: Value) -> list[Value]:
    """Return the operands of `unit` that `new` may overwrite."""
    op = unit.outputs[0]
    if not unit.fused or unit.is_update:
        carries = unit.is_update or has_trait(op, Trait.LOOP)
        return [op.operands[op.results.index(new)]] if carries else []
    return list(dict.fromkeys(load.value for nest in nests_of(unit) for load in nest.loads()))


def overwritten(
    memory: BufferAssignment, units: Sequence[Unit], donated: Sequence[Value], outputs: Sequence[Value]
) -> dict[Value, Value]:
    """Return the donated input, of equal type, that each output overwrites."""
    block = BlockUses(units, memory.last_reads(units, ()))
    overwrites: dict[Value, Value] = {}
    for old in donated:
        for new in outputs:
            if new not in overwrites and new.type == old.type and may_overwrite(block, old, new):
                overwrites[new] = old
                break
    return overwrites


def place_update(memory: BufferAssignment, nest: Nest, op: Op, frame: PlanFrame) -> Iterator[Initial]:
    """Assign buffers to the results of an update: the operand's if it may be overwritten, else a copy to initialize."""
    read = {load.value for load in _conflicting_loads(nest)}
    for operand, result in zip(op.operands, op.results, strict=False):
        array = constant_array(operand.defining_op)
        if array is not None and is_splat(array):  # filled rather than copied from a constant in memory
            memory.allocate(frame, result)
            yield Initial(result, operand, array)
            continue
        before = memory.of(operand)
        placed = frame.placed.get(result)
        mine = frame.is_mine(before) and frame.is_last_read(before)
        shared = any(memory.buffer_of.get(value) is before for value in read)
        shared = shared or op.operands[: updated(op)].count(operand) > 1
        if placed is before or (placed is None and mine and not shared):
            memory.assign(result, before)
        elif memory.allocate(frame, result) is not before:
            yield Initial(result, operand)


def reuse_operand_buffer(memory: BufferAssignment, nests: Sequence[Nest], value: Value, frame: PlanFrame) -> bool:
    """Assign `value` to the buffer of an operand with its last use here, stored element by element; return whether
    there is one.
    """
    if len(nests) != 1:
        return False
    (nest,) = nests
    stores = [store for store in nest.stores() if store.value is value]
    if len(nest.stages) != 1 or nest.stages[0].reductions or nbytes(value) <= SLOT:
        return False
    places = {(store.address, store.code.type) for store in stores}
    for load in nest.loads():
        buffer = memory.buffer_of.get(load.value)
        if buffer is None or not frame.is_mine(buffer) or buffer.nbytes != nbytes(value):
            continue
        same = [other for other in nest.loads() if memory.buffer_of.get(other.value) is buffer]
        written = any(memory.buffer_of.get(store.value) is buffer for store in nest.stores())
        if frame.is_last_read(buffer) and not written and all((other.address, other.type) in places for other in same):
            memory.assign(value, buffer)
            return True
    return False
