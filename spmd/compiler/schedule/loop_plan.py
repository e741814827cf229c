"""How the loops of a nest run: vectors, unrolling, blocks and tiles of reductions, transposed loads, the interior.

Decided once, when a nest is final. Back ends, the text of the schedule and the split into tasks read the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Variable
from spmd.analysis.scalar.expression import walk
from spmd.compiler.schedule.fold_blocks import block_levels
from spmd.compiler.schedule.interior import Interior, interior_of
from spmd.compiler.schedule.lanes import (
    Lanes,
    contiguous_loop,
    has_large_stride,
    has_small_axis,
    is_unrolled,
    lanes_of,
    points_of,
    transposed_loop,
)
from spmd.compiler.schedule.nest import Load, Nest, Stage

#: Least points of a stage that is split into interior and boundary.
_LEAST_INSIDE = 1 << 10
#: Least points of a column reduction that exceeds the cache, and least rows for which the stride of a column matters.
_LARGE, _FEWEST_ROWS = 1 << 18, 8
#: Most columns of a tile, and bytes of its accumulators.
_COLUMNS, _BYTES = 1024, 1 << 14
#: Bits of independent accumulators that hide the latency of a reduction, the most blocks reduced in parallel for that,
#: and the most operations per iteration: with more, latency is hidden anyway.
_CHAINS, _MOST_INTERLEAVED, _LIGHT = 2048, 4, 8


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """How the loops of a stage run.

    lanes       the points of a vector
    unrolled    all loops are fully unrolled
    transposed  the loop along which `strided` loads are contiguous: square blocks of them are transposed in registers
    small_axis  a small contiguous axis is reduced, with rows as lanes: `strided` loads are transposed; if there are
                none, rows are computed as vectors, and transposed afterwards
    strided     the loads that are transposed
    levels      lengths of the blocks of the innermost reduced loop, of blocks of blocks, and so on
    interleaved blocks that are reduced at the same time, to hide latency
    columns     columns of a tile; 0 if the reduction is not tiled by columns
    interior    the points without bounds checks, emitted as a second version
    """

    lanes: Lanes
    unrolled: bool = False
    transposed: Variable | None = None
    small_axis: bool = False
    strided: tuple[Load, ...] = ()
    levels: tuple[int, ...] = ()
    interleaved: int = 1
    columns: int = 0
    interior: Interior | None = None


@dataclass(frozen=True, slots=True)
class PlannedNest(Nest):
    """A nest with the plan of each stage."""

    plans: tuple[LoopPlan, ...] = ()


def planned(nest: Nest) -> PlannedNest:
    """Return `nest`, which is final, with the plans of its stages."""
    return PlannedNest(nest.extents, nest.stages, nest.outer, tuple(_plan(nest, stage) for stage in nest.stages))


def _plan(nest: Nest, stage: Stage) -> LoopPlan:
    lanes = lanes_of(nest, stage)
    small_axis = has_small_axis(nest, stage, lanes.variable)
    transposed = transposed_loop(nest, stage, lanes)
    levels = block_levels(nest, stage, lanes)
    interior = _interior(nest, stage, lanes) if transposed is None and not stage.updates else None
    return LoopPlan(
        lanes,
        is_unrolled(nest, stage),
        transposed,
        small_axis,
        _strided(nest, stage, lanes, transposed, small_axis=small_axis),
        levels,
        _interleaved(stage if interior is None else interior.stage, lanes) if levels else 1,
        _columns(stage, lanes, len(levels) + 1) if _is_column_tiled(nest, stage, lanes) else 0,
        interior,
    )


def _strided(
    nest: Nest, stage: Stage, lanes: Lanes, transposed: Variable | None, *, small_axis: bool
) -> tuple[Load, ...]:
    """Return the loads whose blocks are transposed."""
    lane = lanes.variable
    if lane is None or not (small_axis or transposed is not None):
        return ()
    if not small_axis:
        return tuple(load for load in stage.loads() if contiguous_loop(nest, load, lane) == transposed)
    strided = tuple(load for load in stage.loads() if has_large_stride(load, lane))
    known = all(load.mask is None and not load.address.dynamic for load in strided)
    inputs = sum(len(reduction.inputs) for reduction in stage.reductions)
    return () if stage.stores or not known or len(strided) > inputs else strided


def _interior(nest: Nest, stage: Stage, lanes: Lanes) -> Interior | None:
    """Return the interior of `stage` if it has enough points, and iterations for `lanes`; else None."""
    if lanes.variable not in stage.parallel or points_of(nest, stage) < _LEAST_INSIDE:
        return None
    interior = interior_of(nest, stage)
    if interior is None or lanes.inner in interior.spans:
        return None
    for variable, iterations in lanes.tile_sizes().items():
        first, stop = interior.spans.get(variable, (0, 2 * iterations))
        if stop - first < 2 * iterations:
            return None
    return interior


def _interleaved(stage: Stage, lanes: Lanes) -> int:
    """Return how many blocks are interleaved: several if they have few lanes and cheap iterations."""
    bits = sum(first.type.bits * lanes.width for reduction in stage.reductions for first in reduction.initial)
    codes = [code for reduction in stage.reductions for code in (*reduction.inputs, *reduction.combine)]
    is_light = len(walk(codes)) <= _LIGHT and not stage.stores
    is_across = stage.reduced[-1] == lanes.variable
    return max(1, min(_MOST_INTERLEAVED, _CHAINS // bits)) if is_light and not is_across else 1


def _is_column_tiled(nest: Nest, stage: Stage, lanes: Lanes) -> bool:
    """Return whether `stage` reduces a large array over the loop around its columns, which are the lane loop."""
    lane = lanes.variable
    if lane is None or not stage.reductions or len(stage.reduced) != 1 or (lane,) != stage.parallel[-1:]:
        return False
    if lane != max(stage.loops) or lane in nest.outer or any(r.neutral is None for r in stage.reductions):
        return False
    size = prod(nest.extents[variable] for variable in stage.loops)
    long_enough = nest.extents[lane] >= 2 * lanes.width and nest.extents[stage.reduced[0]] >= _FEWEST_ROWS
    return size >= _LARGE and long_enough


def _columns(stage: Stage, lanes: Lanes, arrays: int) -> int:
    """Return the columns of a tile, such that `arrays` accumulators of each fit the L1 cache."""
    bits = sum(max(8, first.type.bits) for reduction in stage.reductions for first in reduction.initial)
    most = min(_COLUMNS, 8 * _BYTES // (arrays * bits))
    return max(lanes.width, most - most % lanes.width)
