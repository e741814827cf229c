"""Fusion of a convolution with the producer of its input, image by image.

The input of one image, for example padded, is computed and convolved while it is in cache; the whole batch takes no
memory. The producer is removed from the block and emitted within the convolution's batch loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from spmd.compiler.schedule.arena import ALIGNMENT
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.loop_plan import PlannedNest, planned
from spmd.compiler.schedule.rows import in_one_row, row_nest
from spmd.compiler.schedule.sliding import CONVOLUTION, groups_of
from spmd.compiler.schedule.target import Target
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Op, Value

#: Fewest rows of an image's product; with fewer the whole batch is better.
FEW_ROWS = 6
#: Least bytes of the whole input, and least images per thread.
_LEAST, _TURNS = 1 << 18, 4


@dataclass(frozen=True)
class Images:
    """The producer of a convolution's input: one iteration of the outermost loop of `nest` per image, of `nbytes`."""

    unit: Unit
    nest: PlannedNest
    value: Value
    nbytes: int


def fused_images(units: Sequence[Unit], results: Iterable[Value], target: Target) -> dict[Op, Images]:
    """Return the fused input of each convolution whose input has no other user."""
    live_out = set(results)
    images_of: dict[Op, Images] = {}
    for unit in units:
        op = unit.outputs[0]
        if unit.fused or not _is_by_image(op, target.threads) or not target.supports(op):
            continue
        image, *others = op.operands
        maker = next((each for each in units if image in each.outputs[0].results), None)
        images = None if maker is None else _images(maker, unit)
        if images is not None and image not in live_out and image not in others:
            images_of[op] = images
    return images_of


def _is_by_image(op: Op, threads: int) -> bool:
    """Return whether `op` is an ungrouped convolution whose batch is outermost and large enough for all threads."""
    if op.name != CONVOLUTION or groups_of(op) != 1 or op["dimension_numbers"].input_batch_dimension != 0:
        return False
    tensor = op.operands[0].tensor
    enough = tensor.nbytes >= _LEAST and op.result.tensor.static_shape[-2] >= FEW_ROWS
    return enough and tensor.static_shape[0] >= (2 if threads == 1 else _TURNS * threads)


def _images(maker: Unit, reader: Unit) -> Images | None:
    """Return the unit `maker` as images for `reader`; None if it has other results or users, or images are not
    independent.
    """
    if not maker.fused or maker.is_update or maker.users != {reader} or len(maker.outputs) != 1:
        return None
    (value,) = maker.outputs[0].results
    nests = nests_of(maker)
    nest = row_nest(nests, value.tensor.static_shape[0]) if len(nests) == 1 else None
    if nest is None or len(nest.outer) != 1 or nest.stages[0].reductions:
        return None
    nbytes = prod(value.tensor.static_shape[1:]) * value.tensor.dtype.itemsize
    in_one = planned(collapse(in_one_row(nest, lambda other: other is value)))
    return Images(maker, in_one, value, -(-nbytes // ALIGNMENT) * ALIGNMENT)
