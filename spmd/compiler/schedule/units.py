"""The loop nests of fused units."""

from __future__ import annotations

from spmd.compiler.schedule.fusibility import is_in_parts
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.points import nest_of, part_nests
from spmd.compiler.schedule.updates import update_nest
from spmd.compiler.schedule.whole_elements import moved_whole


def nests_of(unit: Unit) -> list[Nest]:
    """The loop nests of a fused unit, in their order, made once."""
    if unit.nests is None:
        unit.nests = _made(unit)
    return unit.nests


def _made(unit: Unit) -> list[Nest]:
    taken = unit.taken
    first = unit.outputs[0]
    if unit.is_update:
        return [update_nest(first, lambda op: op in taken)]
    if is_in_parts(first):
        return [moved_whole(nest) for nest in part_nests(first, lambda op: op in taken)]
    return [moved_whole(nest_of(unit.outputs, lambda op: op in taken, unit.shape, unit.reduced))]
