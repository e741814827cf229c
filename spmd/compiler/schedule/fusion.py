"""Fusion: groups the ops of a block into units.

Ops are visited in reverse, so users are assigned before producers. An op with one user is computed inside it if that is
no more work; a cheap op is recomputed by each user; any other is stored to memory, by a unit of its own or by one over
the same iteration space. Dependences between units stay acyclic.
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
    is_movement,
    is_plain,
    is_split_concatenate,
    iteration_shape,
)
from spmd.compiler.schedule.gemv import is_matrix_vector, matrix_number
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.paths import MEMORY, ONCE, POINT, Path, Paths
from spmd.compiler.schedule.recompute_cost import LIGHT, recompute_costs
from spmd.compiler.schedule.reductions import is_reduction
from spmd.compiler.schedule.sliding import is_sliding
from spmd.compiler.schedule.updates import is_update, reads_itself, update_shape, updated
from spmd.dialects.core import Trait, has_trait, is_pure
from spmd.dialects.scatters import SCATTER
from spmd.ir import Block, Op, Value, captured_values

#: Most scalar operations that are recomputed rather than stored and loaded again.
CHEAP = 6
#: Most ops fused into one unit.
LARGEST = 160


@dataclass(eq=False, slots=True)
class Unit:
    """Ops executed together: results of `outputs` are stored to memory, `inlined` ops are computed on the way.

    `shape` and `reduced` are the iteration space of a fused unit and its reduced dimensions. If not `fused`, the unit
    is a single op. `users` depend on it directly; bit n of `transitive_users` is set if unit number n depends on it.
    """

    fused: bool
    position: int
    shape: tuple[int, ...] = ()
    reduced: tuple[int, ...] = ()
    outputs: list[Op] = field(default_factory=list)
    inlined: dict[Op, None] = field(default_factory=dict)
    users: set[Unit] = field(default_factory=set)
    number: int = 0
    transitive_users: int = 0
    #: Its loop nests, cached by spmd.compiler.schedule.units.
    nests: list[Nest] | None = None

    @property
    def ops(self) -> list[Op]:
        return [*self.inlined, *self.outputs]

    @property
    def is_reduction(self) -> bool:
        return self.fused and is_reduction(self.outputs[0])

    @property
    def is_update(self) -> bool:
        return self.fused and is_update(self.outputs[0])

    @property
    def is_view(self) -> bool:
        """Whether the results alias the operands."""
        return not self.fused and has_trait(self.outputs[0], Trait.VIEW)

    @property
    def is_open(self) -> bool:
        """Whether other ops over the same iteration space may be fused into it."""
        return self.fused and not self.is_update and not is_split_concatenate(self.outputs[0])

    def __lt__(self, other: Unit) -> bool:
        return self.position < other.position


def fuse(block: Block, outside: Iterable[Value]) -> list[Unit]:
    """Return the units of `block` in a valid execution order; `outside` are values that are live-out."""
    return _Fusion(block, set(outside)).run()


class _Fusion:
    def __init__(self, block: Block, outside: set[Value]) -> None:
        self.ops = block.ops[:-1]
        self.outside = outside
        self.units: list[Unit] = []
        #: Users of each value and the paths by which they read it; none for units that are not fused, which read
        #: memory.
        self.uses: dict[Value, dict[Unit, set[Path]]] = {}
        self._paths = Paths(self.ops)
        self._last_effect: Unit | None = None
        self._recompute_costs: dict[Op, int] = {}
        #: The units that each unit depends on.
        self._read_from: dict[Unit, list[Unit]] = {}

    def run(self) -> list[Unit]:
        fusible = {op for op in self.ops if is_fusible(op)}
        self._recompute_costs = recompute_costs(self.ops, fusible.__contains__)
        for position in range(len(self.ops) - 1, -1, -1):
            op = self.ops[position]
            if constant_array(op) is not None and is_plain(op.result.type):
                continue  # folded into its users
            if op in fusible:
                self._fuse(op, position)
            else:
                self._add_single_op(op, position)
        return in_order(self.units)

    # --- single-op units ---

    def _add_single_op(self, op: Op, position: int) -> None:
        unit = Unit(False, position, outputs=[op])
        self._add(unit, op)
        for value in (*op.operands, *(captured_values(op) if op.regions else ())):
            self.uses.setdefault(value, {}).setdefault(unit, set())
        if not is_pure(op):
            if self._last_effect is not None:
                self._add_dependence(self._last_effect, unit)
            self._last_effect = unit

    def _add(self, unit: Unit, op: Op) -> None:
        unit.number = len(self.units)
        self.units.append(unit)
        self._add_users(unit, op)

    def _add_users(self, unit: Unit, op: Op) -> None:
        """Add a dependence on `unit` to every unit that uses a result of `op`."""
        for result in op.results:
            for user in self.uses.get(result, {}):
                if user is not unit:
                    self._add_dependence(user, unit)

    def _add_dependence(self, user: Unit, unit: Unit) -> None:
        """Make `user`, and transitively its users, depend on `unit`."""
        if user in unit.users:
            return
        unit.users.add(user)
        self._read_from.setdefault(user, []).append(unit)
        transitive_users = user.transitive_users | 1 << user.number
        behind = [unit]
        while behind:
            before = behind.pop()
            if transitive_users & ~before.transitive_users:
                before.transitive_users |= transitive_users
                behind += self._read_from.get(before, ())

    # --- fused units ---

    def _fuse(self, op: Op, position: int) -> None:
        uses: dict[Unit, set[Path]] = {}
        for result in op.results:
            for unit, paths in self.uses.get(result, {}).items():
                uses.setdefault(unit, set()).update(paths)
        is_stored = any(result in self.outside for result in op.results) or any(
            not u.fused or MEMORY in paths for u, paths in uses.items()
        )
        if not uses and not is_stored:
            return  # dead
        if not is_stored and not is_reduction(op) and not is_update(op) and self._may_repeat(op, uses):
            for unit, paths in uses.items():
                unit.inlined[op] = None
                self._read_operands(op, unit, paths)
            return
        if has_trait(op, Trait.VIEW):
            self._add_single_op(op, position)
            return
        separate = is_update(op) or is_split_concatenate(op)
        unit_joined = None if separate else self._user_to_join(op, uses) or self._sibling(op, uses)
        if unit_joined is None:
            shape, reduced = iteration_shape(op)
            unit_joined = Unit(True, position, shape, reduced, [op])
            self._add(unit_joined, op)
        else:
            unit_joined.outputs.append(op)
            self._add_users(unit_joined, op)
        self._read_operands(op, unit_joined, {POINT})

    def _may_repeat(self, op: Op, uses: dict[Unit, set[Path]]) -> bool:
        """Return whether recomputing `op` in every user costs no more than storing and loading it."""
        if self._paths.nests_dilations(op, chain.from_iterable(uses.values())):
            return False
        times = sum(len(paths) for paths in uses.values())
        cost = 0 if self._paths.is_chosen(op, chain.from_iterable(uses.values())) else cost_of(op)
        if cost and any(len(unit.inlined) >= LARGEST for unit in uses):
            return False
        if times == 1:
            return cost <= CHEAP or not self._paths.repeat(chain.from_iterable(uses.values()))
        if cost * (times - 1) > CHEAP or (times > 8 and cost):
            return False
        return not cost or self._recompute_costs[op] * (times - 1) <= LIGHT

    def _user_to_join(self, op: Op, uses: dict[Unit, set[Path]]) -> Unit | None:
        """Return a user of `op` over the same iteration space, which can also store its result."""
        if is_reduction(op):
            return None
        shape, _ = iteration_shape(op)
        for unit in sorted((unit for unit in uses if unit.fused), key=lambda unit: unit.position):
            if unit.shape != shape or not unit.is_open or uses[unit] != {POINT} or len(unit.inlined) >= LARGEST:
                continue
            if not any(self._depends(other, unit) for other in uses if other is not unit):
                return unit
        return None

    def _sibling(self, op: Op, uses: dict[Unit, set[Path]]) -> Unit | None:
        """Return a unit over the same iteration space that shares an operand with `op` and is independent of
        its users.
        """
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
            if unit.is_reduction != is_reduction(op) or len(unit.inlined) >= LARGEST or len(unit.outputs) >= 8:
                continue
            if not any(self._depends(user, unit) for user in uses):
                return unit
        return None

    def _depends(self, start: Unit, goal: Unit) -> bool:
        """Return whether `goal` depends on `start`, transitively."""
        return start is goal or bool(start.transitive_users >> goal.number & 1)

    def _read_operands(self, op: Op, unit: Unit, paths: set[Path]) -> None:
        if is_update(op):
            self._read_update(op, unit)
            return
        if is_matrix_vector(op):
            matrix = matrix_number(op)
            for path in paths:
                self._add_use(op.operands[matrix], unit, path)
                self._add_use(op.operands[1 - matrix], unit, self._paths.through(op, path, unit.shape, unit.reduced))
            return
        if is_movement(op):
            for path in paths:
                for operand, onward in self._paths.beyond(op, path, unit.shape, unit.reduced):
                    self._add_use(operand, unit, onward)
            return
        count = len(op.operands) // 2
        if is_sliding(op):
            paths = {self._paths.through(op, path, unit.shape, unit.reduced) for path in paths}
        for position, operand in enumerate(op.operands):
            for path in (ONCE,) if op.regions and position >= count else paths:
                self._add_use(operand, unit, path)
        self._read_captured(op, unit)

    def _read_update(self, op: Op, unit: Unit) -> None:
        """Record the uses of an update: its updates are read at their points, the updated operands as memory."""
        count = updated(op)
        separate = _is_small(op) and reads_itself(op, self._recompute_costs.__contains__, LARGEST)
        for position, operand in enumerate(op.operands):
            if position < count or (separate and operand.tensor.rank):
                path = MEMORY
            elif op.name == SCATTER:
                path = POINT if position > count else self._paths.through(op, POINT, unit.shape, unit.reduced)
            else:
                path = POINT if position == count else ONCE
            self._add_use(operand, unit, path)
        self._read_captured(op, unit)

    def _read_captured(self, op: Op, unit: Unit) -> None:
        for value in captured_values(op) if op.regions else ():
            self._add_use(value, unit, ONCE)

    def _add_use(self, value: Value, unit: Unit, path: Path) -> None:
        self.uses.setdefault(value, {}).setdefault(unit, set()).add(path)


def _is_small(op: Op) -> bool:
    """Return whether an update writes so little that computing it separately is cheaper than copying its operand."""
    return 2 * prod(update_shape(op)) <= prod(op.operands[0].tensor.static_shape)


def in_order(units: list[Unit]) -> list[Unit]:
    """Return the units in topological order, ties in program order."""
    transitive_users: dict[Unit, int] = dict.fromkeys(units, 0)
    for unit in units:
        for user in unit.users:
            transitive_users[user] += 1
    ready = [unit for unit, count in transitive_users.items() if not count]
    heapq.heapify(ready)
    ordered: list[Unit] = []
    while ready:
        unit = heapq.heappop(ready)
        ordered.append(unit)
        for user in unit.users:
            transitive_users[user] -= 1
            if not transitive_users[user]:
                heapq.heappush(ready, user)
    assert len(ordered) == len(units), "units wait for each other"
    return ordered
