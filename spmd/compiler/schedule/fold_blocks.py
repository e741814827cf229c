"""Blocked reductions: long reductions are summed in blocks, for accuracy and for threads.

Blocks depend on the length of the reduction alone, so that association does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Variable
from spmd.compiler.schedule.lanes import Lanes, lanes_of
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


def shared_blocks(nest: Nest) -> ReductionBlocks | None:
    """Return the blocks of a nest that reduces one long loop at few points; None for any other nest."""
    if nest.outer or len(nest.stages) != 1:
        return None
    (stage,) = nest.stages
    if len(stage.reduced) != 1 or not stage.reductions:
        return None
    blocks = blocks_of(nest, stage, lanes_of(nest, stage))
    return blocks if blocks is not None and blocks.nbytes <= _MOST else None


def blocks_of(nest: Nest, stage: Stage, lanes: Lanes) -> ReductionBlocks | None:
    """Return the blocks of the reductions of `stage`, which reduces one loop; None if it is not blocked."""
    (last,) = stage.reduced
    if not is_long(nest, stage, lanes):
        return None
    levels = block_levels(nest, last, lanes)
    count, rest = divmod(nest.extents[last], levels[-1])
    points = prod(points_of_loop(nest, variable, lanes) for variable in stage.parallel)
    return ReductionBlocks(tuple(levels), count, rest, sum(room_of(stage, lanes)), points)


def is_long(nest: Nest, stage: Stage, lanes: Lanes) -> bool:
    """Return whether the innermost loop of a reduction is long enough to be blocked, and may be reassociated."""
    last = stage.reduced[-1]
    iterations = nest.extents[last] // _step(last, lanes)
    return iterations >= 2 * BLOCK and all(reduction.neutral is not None for reduction in stage.reductions)


def block_levels(nest: Nest, last: Variable, lanes: Lanes) -> list[int]:
    """Return the lengths of blocks, of blocks of blocks, and so on."""
    levels = [BLOCK * _step(last, lanes)]
    while nest.extents[last] >= LEAST_BLOCKS * BLOCK * levels[-1]:
        levels.append(levels[-1] * BLOCK)
    return levels


def points_of_loop(nest: Nest, variable: Variable, lanes: Lanes) -> int:
    """Return how many vectors a parallel loop has."""
    return -(-nest.extents[variable] // lanes.tile_sizes().get(variable, 1))


def room_of(stage: Stage, lanes: Lanes) -> list[int]:
    """Return the bytes of each accumulator on all lanes, in whole cache lines."""
    bits = [first.type.bits * lanes.width for reduction in stage.reductions for first in reduction.initial]
    return [-(-each // 512) * 64 for each in bits]


def _step(last: Variable, lanes: Lanes) -> int:
    return lanes.width if last == lanes.variable else 1
