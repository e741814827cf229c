"""The loop nests of fused units."""

from __future__ import annotations

from math import lcm

from spmd.compiler.schedule.fusibility import is_split_concatenate
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.paths import dilates
from spmd.compiler.schedule.points import concatenate_nests, nest_of
from spmd.compiler.schedule.updates import update_nest
from spmd.compiler.schedule.whole_elements import with_whole_moves


def nests_of(unit: Unit) -> list[Nest]:
    """Return the loop nests of a fused unit in execution order, cached on the unit."""
    if unit.nests is None:
        unit.nests = _build(unit)
    return unit.nests


def _build(unit: Unit) -> list[Nest]:
    inlined = unit.inlined
    first = unit.outputs[0]
    if unit.is_update:
        return [update_nest(first, lambda op: op in inlined)]
    if is_split_concatenate(first):
        return [with_whole_moves(nest) for nest in concatenate_nests(first, lambda op: op in inlined)]
    return [
        with_whole_moves(nest_of(unit.outputs, lambda op: op in inlined, shape, unit.reduced, start))
        for start, shape in _parts(unit)
    ]


def _parts(unit: Unit) -> list[tuple[int, tuple[int, ...]]]:
    """Return the shapes of the nests of `unit`, and the first index of each along the last dimension.

    Where padding lies between elements there are two, so that the loop of the first can be split by residues.
    """
    steps = [] if unit.is_reduction else [op["interior_padding"][-1] + 1 for op in unit.ops if dilates(op)]
    *outer, last = unit.shape or (1,)
    rest = last % lcm(*steps)
    if not rest or rest == last:
        return [(0, unit.shape)]
    return [(0, (*outer, last - rest)), (last - rest, (*outer, rest))]
