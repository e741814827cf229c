"""Long folds in blocks, each folded by itself: sums keep their digits, and threads can share a fold.

The blocks follow from the length of a fold alone, so that its association does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Variable
from spmd.compiler.schedule.lanes import Lanes, lanes_of
from spmd.compiler.schedule.nest import Nest, Stage

#: Iterations of a loop that are folded by themselves, and the least number of the largest blocks.
BLOCK, LEAST_BLOCKS = 64, 8
#: Bytes that blocks of folds may give.
_MOST = 1 << 20


@dataclass(frozen=True)
class Blocks:
    """A long fold's blocks: sizes of them at each level, the number of the largest ones, and what is left over.

    `stride` is the bytes that hold what one block gives at one of the `points` that are folded side by side, each of
    them as many elements as there are lanes.
    """

    levels: tuple[int, ...]
    count: int
    rest: int
    stride: int
    points: int

    @property
    def total(self) -> int:
        """Blocks, that of what is left over among them."""
        return self.count + bool(self.rest)

    @property
    def nbytes(self) -> int:
        """What all blocks give at all points."""
        return self.stride * self.total * self.points


def shared_blocks(nest: Nest) -> Blocks | None:
    """The blocks of a nest that folds one loop, which is cut in blocks, at few points; None of any other nest."""
    if nest.outer or len(nest.stages) != 1:
        return None
    (stage,) = nest.stages
    if len(stage.reduced) != 1 or not stage.reductions:
        return None
    blocks = blocks_of(nest, stage, lanes_of(nest, stage))
    return blocks if blocks is not None and blocks.nbytes <= _MOST else None


def blocks_of(nest: Nest, stage: Stage, lanes: Lanes) -> Blocks | None:
    """The blocks of the folds of `stage`, which folds one loop; None where that is not cut in blocks."""
    (last,) = stage.reduced
    if not is_long(nest, stage, lanes):
        return None
    levels = block_levels(nest, last, lanes)
    count, rest = divmod(nest.extents[last], levels[-1])
    points = prod(points_of_loop(nest, variable, lanes) for variable in stage.kept)
    return Blocks(tuple(levels), count, rest, sum(room_of(stage, lanes)), points)


def is_long(nest: Nest, stage: Stage, lanes: Lanes) -> bool:
    """Whether the last loop of a fold is cut in blocks, each folded by itself, so that sums keep their digits."""
    last = stage.reduced[-1]
    iterations = nest.extents[last] // _step(last, lanes)
    return iterations >= 2 * BLOCK and all(reduction.neutral is not None for reduction in stage.reductions)


def block_levels(nest: Nest, last: Variable, lanes: Lanes) -> list[int]:
    """The lengths of blocks, of blocks of blocks, and so on."""
    levels = [BLOCK * _step(last, lanes)]
    while nest.extents[last] >= LEAST_BLOCKS * BLOCK * levels[-1]:
        levels.append(levels[-1] * BLOCK)
    return levels


def points_of_loop(nest: Nest, variable: Variable, lanes: Lanes) -> int:
    """How often what is in a loop that is not folded is done."""
    return -(-nest.extents[variable] // lanes.taken().get(variable, 1))


def room_of(stage: Stage, lanes: Lanes) -> list[int]:
    """Bytes of each value that is folded, on all lanes, each on cache lines of its own."""
    bits = [first.type.bits * lanes.width for reduction in stage.reductions for first in reduction.initial]
    return [-(-each // 512) * 64 for each in bits]


def _step(last: Variable, lanes: Lanes) -> int:
    return lanes.width if last == lanes.variable else 1
