"""Splits a loop nest into interior and boundary; one branch per vector selects the version.

Both versions compute equal results; in the interior version bounds checks are folded away.
"""

from __future__ import annotations

from collections.abc import Callable

from spmd.backends.llvm.loops.element_emitter import ElementEmitter
from spmd.compiler.schedule.interior import Interior
from spmd.compiler.schedule.nest import Stage


def write_split(point: ElementEmitter, interior: Interior, write: Callable[[Stage], None]) -> None:
    """Emit the interior and the boundary version of the points of the lane loop by `write`, and the branch between
    them.
    """
    lane, stage = point.lane, point.stage
    assert lane is not None
    name, depth = point.variables[lane]

    def branch(chosen: Stage) -> None:
        point.stage, point.variables[lane] = chosen, (name, point.text.depth)
        write(chosen)

    def within() -> None:
        point.guarded, point.guard = interior.unguarded, point.text.depth
        branch(interior.stage)
        point.guarded = ()

    point.text.either(_in_interior(point, interior), within, lambda: branch(stage))
    point.stage, point.variables[lane] = stage, (name, depth)


def _in_interior(point: ElementEmitter, interior: Interior) -> str:
    """Return the SSA name of the i1 that all lanes are in the interior; the terms are hoisted as far as possible."""
    spans = sorted(interior.spans.items(), key=lambda span: point.variables[span[0]][1])
    condition = ""
    for variable, (first, stop) in spans:
        name, depth = point.variables[variable]
        iterations = stop - first - (point.lanes.tile_sizes().get(variable, 1) - 1)
        offset = point.text.value(f"sub i64 {name}, {first}", depth)
        holds = point.text.value(f"icmp ult i64 {offset}, {iterations}", depth)
        condition = point.text.value(f"and i1 {condition}, {holds}", depth) if condition else holds
    return condition
