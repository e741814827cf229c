"""The inside of a loop nest beside its ends, as LLVM's text: who comes to a point is told where it lies by one branch.

The same point is computed alike on both sides; inside, what is asked of indices has been answered.
"""

from __future__ import annotations

from collections.abc import Callable

from spmd.backends.llvm.loops.element_emitter import PointWriter
from spmd.compiler.schedule.interior import Interior, interior_of
from spmd.compiler.schedule.lanes import Lanes
from spmd.compiler.schedule.nest import Nest, Stage


def inside_of(nest: Nest, stage: Stage, lanes: Lanes) -> Interior | None:
    """Return the inside of `stage` for `lanes`; None where there is none."""
    lane = lanes.variable
    if lane is None or lane not in stage.parallel:
        return None
    inside = interior_of(nest, stage)
    if inside is None or lanes.inner in inside.spans:
        return None
    for variable, turns in lanes.tile_sizes().items():
        first, stop = inside.spans.get(variable, (0, 2 * turns))
        if stop - first < 2 * turns:
            return None
    return inside


def write_either(point: PointWriter, inside: Interior, write: Callable[[Stage], None]) -> None:
    """Have `write` write what is computed inside, and what is computed at the ends, of the points of the lane loop."""
    lane, stage = point.lane, point.stage
    assert lane is not None
    name, depth = point.variables[lane]

    def branch(chosen: Stage) -> None:
        point.stage, point.variables[lane] = chosen, (name, point.text.depth)
        write(chosen)

    def within() -> None:
        point.guarded, point.guard = inside.unguarded, point.text.depth
        branch(inside.stage)
        point.guarded = ()

    point.text.either(_is_inside(point, inside), within, lambda: branch(stage))
    point.stage, point.variables[lane] = stage, (name, depth)


def _is_inside(point: PointWriter, inside: Interior) -> str:
    """Return the name of the i1 that tells whether all lanes lie inside; what is known outside of a loop is computed
    there.
    """
    spans = sorted(inside.spans.items(), key=lambda span: point.variables[span[0]][1])
    condition = ""
    for variable, (first, stop) in spans:
        name, depth = point.variables[variable]
        turns = stop - first - (point.lanes.tile_sizes().get(variable, 1) - 1)
        place = point.text.value(f"sub i64 {name}, {first}", depth)
        holds = point.text.value(f"icmp ult i64 {place}, {turns}", depth)
        condition = point.text.value(f"and i1 {condition}, {holds}", depth) if condition else holds
    return condition
