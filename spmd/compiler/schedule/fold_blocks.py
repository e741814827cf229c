"""Blocked reductions: long reductions are summed in blocks, for accuracy and for threads.

Blocks depend on the length of the reduction alone, so that association does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Variable
from spmd.compiler.schedule.lanes import Lanes
from spmd.compiler.schedule.nest import Nest, Stage

#: Iterations per block, and least number of blocks of the largest level.
BLOCK, LEAST_BLOCKS = 64, 8
#: Most bytes of partial results.
_MOST = 1 << 20


@dataclass(frozen=True)
class ReductionBlocks:
    """The blocks of a long reduction: sizes by level, the number of the largest, and the remainder.

    `stride` is the bytes of one partial result, for all lanes; `points` the number of reductions.
    """

    levels: tuple[int, ...]
    count: int
    rest: int
    stride: int
    points: int

    @property
    def total(self) -> int:
        """Blocks, including the remainder."""
        return self.count + bool(self.rest)

    @property
    def nbytes(self) -> int:
        """Bytes of the partial results of all blocks at all points."""
        return self.stride * self.total * self.points


def shared_blocks(nest: Nest, stage: Stage, lanes: Lanes, levels: tuple[int, ...]) -> ReductionBlocks | None:
    """Return the blocks of `levels` of a stage that reduces one loop at few points; None for any other."""
    if not levels or len(stage.reduced) != 1:
        return None
    count, rest = divmod(nest.extents[stage.reduced[0]], levels[-1])
    points = prod(points_of_loop(nest, variable, lanes) for variable in stage.parallel)
    blocks = ReductionBlocks(levels, count, rest, sum(room_of(stage, lanes)), points)
    return blocks if blocks.nbytes <= _MOST else None


def block_levels(nest: Nest, stage: Stage, lanes: Lanes) -> tuple[int, ...]:
    """Return the lengths of the blocks of the innermost reduced loop, of blocks of blocks, and so on.

    None if it is too short, or the elements must be combined in order.
    """
    if not stage.reduced or any(reduction.neutral is None for reduction in stage.reductions):
        return ()
    last = stage.reduced[-1]
    step = lanes.width if last == lanes.variable else 1
    if nest.extents[last] // step < 2 * BLOCK:
        return ()
    levels = [BLOCK * step]
    while nest.extents[last] >= LEAST_BLOCKS * BLOCK * levels[-1]:
        levels.append(levels[-1] * BLOCK)
    return tuple(levels)


def points_of_loop(nest: Nest, variable: Variable, lanes: Lanes) -> int:
    """Return how many vectors a parallel loop has."""
    return -(-nest.extents[variable] // lanes.tile_sizes().get(variable, 1))


def room_of(stage: Stage, lanes: Lanes) -> list[int]:
    """Return the bytes of each accumulator on all lanes, in whole cache lines."""
    bits = [first.type.bits * lanes.width for reduction in stage.reductions for first in reduction.initial]
    return [-(-each // 512) * 64 for each in bits]
