"""Which ops are computed together: a block's ops become units.

Ops are looked at from the last to the first, so that whoever reads a value is placed before the value is. A value that
one unit reads is computed inside it, where that costs nothing; a cheap one is computed wherever it is read; any other
is written to memory, by a unit of its own or by one that goes over the same points anyway. A unit never waits for what
waits for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from math import prod

from spmd.analysis.constants import constant_array
from spmd.compiler.schedule.fusibility import (
    cost_of,
    is_fusible,
    is_in_parts,
    is_movement,
    is_plain,
    iteration_shape,
)
from spmd.compiler.schedule.gemv import is_matrix_vector, matrix_number
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.paths import MEMORY, ONCE, POINT, Path, Paths
from spmd.compiler.schedule.recompute_cost import LIGHT, weights_of
from spmd.compiler.schedule.reductions import is_reduction
from spmd.compiler.schedule.sliding import is_sliding
from spmd.compiler.schedule.updates import is_update, reads_itself, update_shape, updated
from spmd.dialects.core import is_pure
from spmd.dialects.scatters import SCATTER
from spmd.ir import Block, Op, Value, captured_values

#: Scalar operations that may be done again rather than written to memory and read back.
CHEAP = 6
#: Ops that one unit takes in.
LARGEST = 160
#: Ops whose result is their operand in memory, seen in another shape.
VIEWS = ("stablehlo.reshape", "stablehlo.optimization_barrier")


@dataclass(eq=False, slots=True)
class Unit:
    """Ops that run together: of `outputs` the results are written to memory, those `taken` are computed on the way.

    `shape` and `reduced` are the points that a fused unit goes over and the dimensions that it folds; a unit of one op
    that is not fused (`fused` False) has neither. Bit n of `waiting` is set where the unit of that `number` waits for
    this one, be it by way of others; `readers` wait for it themselves.
    """

    fused: bool
    position: int
    shape: tuple[int, ...] = ()
    reduced: tuple[int, ...] = ()
    outputs: list[Op] = field(default_factory=list)
    taken: dict[Op, None] = field(default_factory=dict)
    readers: set[Unit] = field(default_factory=set)
    number: int = 0
    waiting: int = 0
    #: Its loop nests, once they are made (spmd.compiler.schedule.units).
    nests: list[Nest] | None = None

    @property
    def ops(self) -> list[Op]:
        return [*self.taken, *self.outputs]

    @property
    def is_reduction(self) -> bool:
        return self.fused and is_reduction(self.outputs[0])

    @property
    def is_update(self) -> bool:
        return self.fused and is_update(self.outputs[0])

    @property
    def is_view(self) -> bool:
        """Whether the results are the operands in memory, seen in another shape."""
        return not self.fused and self.outputs[0].name in VIEWS

    @property
    def is_open(self) -> bool:
        """Whether others may be computed at the unit's points, too."""
        return self.fused and not self.is_update and not is_in_parts(self.outputs[0])

    def __lt__(self, other: Unit) -> bool:
        return self.position < other.position


def fuse(block: Block, outside: Iterable[Value]) -> list[Unit]:
    """The units of `block` in an order in which they may run; `outside` are values that are needed after it."""
    return _Fusion(block, set(outside)).run()


class _Fusion:
    def __init__(self, block: Block, outside: set[Value]) -> None:
        self.ops = block.ops[:-1]
        self.outside = outside
        self.units: list[Unit] = []
        #: Who reads a value, and along which paths; units that are not fused read from memory, along none.
        self.uses: dict[Value, dict[Unit, set[Path]]] = {}
        self._paths = Paths(self.ops)
        self._last_effect: Unit | None = None
        self._weights: dict[Op, int] = {}
        #: The units that a unit waits for.
        self._read_from: dict[Unit, list[Unit]] = {}

    def run(self) -> list[Unit]:
        fusible = {op for op in self.ops if is_fusible(op)}
        self._weights = weights_of(self.ops, fusible.__contains__)
        for position in range(len(self.ops) - 1, -1, -1):
            op = self.ops[position]
            if constant_array(op) is not None and is_plain(op.result.type):
                continue  # read where it is used
            if op in fusible:
                self._place(op, position)
            else:
                self._alone(op, position)
        return in_order(self.units)

    # --- units of one op ---

    def _alone(self, op: Op, position: int) -> None:
        unit = Unit(False, position, outputs=[op])
        self._add(unit, op)
        for value in (*op.operands, *(captured_values(op) if op.regions else ())):
            self.uses.setdefault(value, {}).setdefault(unit, set())
        if not is_pure(op):
            if self._last_effect is not None:
                self._wait(self._last_effect, unit)
            self._last_effect = unit

    def _add(self, unit: Unit, op: Op) -> None:
        unit.number = len(self.units)
        self.units.append(unit)
        self._link(unit, op)

    def _link(self, unit: Unit, op: Op) -> None:
        """Whoever reads a result of `op` waits for `unit`."""
        for result in op.results:
            for reader in self.uses.get(result, {}):
                if reader is not unit:
                    self._wait(reader, unit)

    def _wait(self, reader: Unit, unit: Unit) -> None:
        """Has `reader` wait for `unit`, as all do that wait for `reader`."""
        if reader in unit.readers:
            return
        unit.readers.add(reader)
        self._read_from.setdefault(reader, []).append(unit)
        waiting = reader.waiting | 1 << reader.number
        behind = [unit]
        while behind:
            before = behind.pop()
            if waiting & ~before.waiting:
                before.waiting |= waiting
                behind += self._read_from.get(before, ())

    # --- fused units ---

    def _place(self, op: Op, position: int) -> None:
        uses: dict[Unit, set[Path]] = {}
        for result in op.results:
            for unit, paths in self.uses.get(result, {}).items():
                uses.setdefault(unit, set()).update(paths)
        kept = any(result in self.outside for result in op.results) or any(
            not u.fused or MEMORY in paths for u, paths in uses.items()
        )
        if not uses and not kept:
            return  # nobody wants it
        if not kept and not is_reduction(op) and not is_update(op) and self._may_repeat(op, uses):
            for unit, paths in uses.items():
                unit.taken[op] = None
                self._read_operands(op, unit, paths)
            return
        if op.name in VIEWS:
            self._alone(op, position)
            return
        apart = is_update(op) or is_in_parts(op)
        joined = None if apart else self._joinable(op, uses) or self._sibling(op, uses)
        if joined is None:
            shape, reduced = iteration_shape(op)
            joined = Unit(True, position, shape, reduced, [op])
            self._add(joined, op)
        else:
            joined.outputs.append(op)
            self._link(joined, op)
        self._read_operands(op, joined, {POINT})

    def _may_repeat(self, op: Op, uses: dict[Unit, set[Path]]) -> bool:
        """Whether computing `op` wherever it is read costs no more than writing and reading it."""
        times = sum(len(paths) for paths in uses.values())
        cost = 0 if self._paths.is_chosen(op, chain.from_iterable(uses.values())) else cost_of(op)
        if cost and any(len(unit.taken) >= LARGEST for unit in uses):
            return False
        if times == 1:
            return cost <= CHEAP or not self._paths.repeat(chain.from_iterable(uses.values()))
        if cost * (times - 1) > CHEAP or (times > 8 and cost):
            return False
        return not cost or self._weights[op] * (times - 1) <= LIGHT

    def _joinable(self, op: Op, uses: dict[Unit, set[Path]]) -> Unit | None:
        """A unit that reads `op` at its own points, and can write it on the way."""
        if is_reduction(op):
            return None
        shape, _ = iteration_shape(op)
        for unit in sorted((unit for unit in uses if unit.fused), key=lambda unit: unit.position):
            if unit.shape != shape or not unit.is_open or uses[unit] != {POINT} or len(unit.taken) >= LARGEST:
                continue
            if not any(self._reaches(other, unit) for other in uses if other is not unit):
                return unit
        return None

    def _sibling(self, op: Op, uses: dict[Unit, set[Path]]) -> Unit | None:
        """A unit over the same points that reads what `op` reads, and neither waits for the other."""
        shape, reduced = iteration_shape(op)
        if not shape:
            return None
        candidates: dict[Unit, None] = {}
        for operand in op.operands:
            for unit, paths in self.uses.get(operand, {}).items():
                if not unit.is_open or unit in uses:
                    continue
                if POINT in paths and unit.shape == shape and unit.reduced == reduced:
                    candidates[unit] = None
        for unit in candidates:
            if unit.is_reduction != is_reduction(op) or len(unit.taken) >= LARGEST or len(unit.outputs) >= 8:
                continue
            if not any(self._reaches(reader, unit) for reader in uses):
                return unit
        return None

    def _reaches(self, start: Unit, goal: Unit) -> bool:
        """Whether `goal` waits for `start`."""
        return start is goal or bool(start.waiting >> goal.number & 1)

    def _read_operands(self, op: Op, unit: Unit, paths: set[Path]) -> None:
        if is_update(op):
            self._read_update(op, unit)
            return
        if is_matrix_vector(op):
            matrix = matrix_number(op)
            for path in paths:
                self._reach(op.operands[matrix], unit, path)
                self._reach(op.operands[1 - matrix], unit, self._paths.through(op, path, unit.shape, unit.reduced))
            return
        if is_movement(op):
            for path in paths:
                for operand, onward in self._paths.beyond(op, path, unit.shape, unit.reduced):
                    self._reach(operand, unit, onward)
            return
        count = len(op.operands) // 2
        if is_sliding(op):
            paths = {self._paths.through(op, path, unit.shape, unit.reduced) for path in paths}
        for place, operand in enumerate(op.operands):
            for path in (ONCE,) if op.regions and place >= count else paths:
                self._reach(operand, unit, path)
        self._read_captured(op, unit)

    def _read_update(self, op: Op, unit: Unit) -> None:
        """What is written is read where it is written; what is written into is memory."""
        count = updated(op)
        apart = _is_small(op) and reads_itself(op, self._weights.__contains__, LARGEST)
        for place, operand in enumerate(op.operands):
            if place < count or (apart and operand.tensor.rank):
                path = MEMORY
            elif op.name == SCATTER:
                path = POINT if place > count else self._paths.through(op, POINT, unit.shape, unit.reduced)
            else:
                path = POINT if place == count else ONCE
            self._reach(operand, unit, path)
        self._read_captured(op, unit)

    def _read_captured(self, op: Op, unit: Unit) -> None:
        for value in captured_values(op) if op.regions else ():
            self._reach(value, unit, ONCE)

    def _reach(self, value: Value, unit: Unit, path: Path) -> None:
        self.uses.setdefault(value, {}).setdefault(unit, set()).add(path)


def _is_small(op: Op) -> bool:
    """Whether an update writes so little that it is better made apart than what it is written into is copied."""
    return 2 * prod(update_shape(op)) <= prod(op.operands[0].tensor.static_shape)


def in_order(units: list[Unit]) -> list[Unit]:
    """Units in an order in which each stands behind those that it waits for, else as the program has them."""
    waiting: dict[Unit, int] = dict.fromkeys(units, 0)
    for unit in units:
        for reader in unit.readers:
            waiting[reader] += 1
    ready = [unit for unit, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered: list[Unit] = []
    while ready:
        unit = heapq.heappop(ready)
        ordered.append(unit)
        for reader in unit.readers:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    assert len(ordered) == len(units), "units wait for each other"
    return ordered
