"""Whether a value may be made in the memory of one that is there already, element by element or all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from spmd.analysis.constants import constant_array
from spmd.compiler.schedule.buffers import SLOT, Buffer, Frame, Memory, nbytes
from spmd.compiler.schedule.fusion import VIEWS, Unit
from spmd.compiler.schedule.nest import Load, Nest
from spmd.compiler.schedule.steps import Initial
from spmd.compiler.schedule.units import nests_of
from spmd.compiler.schedule.updates import updated
from spmd.ir import Op, Value, captured_values
from spmd.ir.attributes import is_splat

_WHILE = "stablehlo.while"


class UnitsOfBlock:
    """The units of a block in their order: who makes a value, who reads it last, who gives its memory other names."""

    def __init__(self, units: Sequence[Unit], last_read: Mapping[Value, int]) -> None:
        self.units = units
        self.last_read = last_read
        #: The number of the unit that makes each value.
        self.makers: dict[Value, int] = {}
        self._naming: dict[Value, list[Unit]] = {}
        for index, unit in enumerate(units):
            for op in unit.outputs:
                self.makers.update(dict.fromkeys(op.results, index))
                if not unit.fused and (op.name in VIEWS or op.name == _WHILE):
                    for operand in op.operands:
                        self._naming.setdefault(operand, []).append(unit)

    def has_other_names(self, old: Value, new: Value) -> bool:
        """Whether values beside `new` may stand on the memory of `old`: views of it, and what loops hand on."""
        return any(not _carries(unit, old, new) for unit in self._naming.get(old, ()))


def may_overwrite(block: UnitsOfBlock, old: Value, new: Value) -> bool:
    """Whether `new`, made by a unit of `block`, may be written over `old`: nobody reads that after, nor meanwhile."""
    if block.has_other_names(old, new):
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
    alike = last == index and (_reads_where_it_writes(unit, old, new) or _carries(unit, old, new))
    return last < index or alike


def _carries(unit: Unit, old: Value, new: Value) -> bool:
    """Whether `unit` is a loop that begins with `old`, which it reads nowhere else, where it ends with `new`."""
    op = unit.outputs[0]
    if unit.fused or op.name != _WHILE or new not in op.results:
        return False
    alone = op.operands.count(old) == 1 and old not in captured_values(op)
    return alone and op.operands[op.results.index(new)] is old


def _reads_where_it_writes(unit: Unit, old: Value, new: Value) -> bool:
    """Whether `unit` reads an element of `old` only to write the one of `new` that lies there."""
    if not unit.fused or len(nests_of(unit)) != 1:
        return False
    (nest,) = nests_of(unit)
    if unit.is_update:
        (op,) = unit.outputs
        written = op.operands[: updated(op)]
        is_read = any(load.value is old for load in _read_elsewhere(nest))
        return written[op.results.index(new)] is old and written.count(old) == 1 and not is_read
    if len(nest.stages) != 1 or nest.stages[0].reductions:
        return False
    places = {(store.address, store.code.type) for store in nest.stores() if store.value is new}
    reads = [load for load in nest.loads() if load.value is old]
    return all((load.address, load.type) in places for load in reads)


def _read_elsewhere(nest: Nest) -> list[Load]:
    """What the nest of an update reads that another of its points may have written, were it in the same memory.

    All that a point reads is read before it writes.
    """
    if prod(nest.extents) == 1:
        return []
    (stage,) = nest.stages
    places = {(store.address, store.code.type) for store in stage.stores}
    return [load for load in nest.loads() if (load.address, load.type) not in places]


def lent(block: UnitsOfBlock, placed: Mapping[Value, Buffer], free: Mapping[Value, Buffer]) -> dict[Value, Buffer]:
    """Where values may lie that are read last where results are made of them: in the results' places, `free` before.

    A gradient so lies where the parameter is to be, and takes no memory of its own.
    """
    if not free:
        return {}
    lent_to: dict[Value, Buffer] = {}
    for index in range(len(block.units) - 1, -1, -1):
        for new in (value for op in block.units[index].outputs for value in op.results):
            place = free.get(new) or lent_to.get(new)
            if place is None:
                continue
            for old in _read_by(block.units[index], new):
                maker = block.makers.get(old)
                known = old in placed or old in lent_to
                if maker is None or known or block.last_read[old] != index or old.type != new.type:
                    continue
                if not _is_view(block.units[maker]) and may_overwrite(block, old, new):
                    lent_to[old] = place
                    break
    return lent_to


def _read_by(unit: Unit, new: Value) -> list[Value]:
    """The values that `unit` reads and `new` may be written over."""
    op = unit.outputs[0]
    if not unit.fused or unit.is_update:
        carries = unit.is_update or op.name == _WHILE
        return [op.operands[op.results.index(new)]] if carries else []
    return list(dict.fromkeys(load.value for nest in nests_of(unit) for load in nest.loads()))


def _is_view(unit: Unit) -> bool:
    return not unit.fused and unit.outputs[0].name in VIEWS


def overwritten(
    memory: Memory, units: Sequence[Unit], donated: Sequence[Value], outputs: Sequence[Value]
) -> dict[Value, Value]:
    """By output, the input whose memory it takes over: one of `donated`, of the same type."""
    block = UnitsOfBlock(units, memory.last_reads(units, ()))
    overwrites: dict[Value, Value] = {}
    for old in donated:
        for new in outputs:
            if new not in overwrites and new.type == old.type and may_overwrite(block, old, new):
                overwrites[new] = old
                break
    return overwrites


def place_update(memory: Memory, nest: Nest, op: Op, frame: Frame) -> Iterator[Initial]:
    """Puts the results of an update on its operands' memory where it may be written over, else on copies."""
    read = {load.value for load in _read_elsewhere(nest)}
    for operand, result in zip(op.operands, op.results, strict=False):
        array = constant_array(operand.defining_op)
        if array is not None and is_splat(array):  # rather than copied from memory that holds all of it
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


def put_over_operand(memory: Memory, nests: Sequence[Nest], value: Value, frame: Frame) -> bool:
    """Puts `value` over an operand that is read for the last time, each element where it is written; if any is."""
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
