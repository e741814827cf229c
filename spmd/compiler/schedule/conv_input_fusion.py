"""Convolutions whose images are made one at a time, in memory of one image.

What a padded image is made of is read once, and the image is convolved while it lies in the cache; the padded images of
a whole batch take no memory. The unit that would make them is left out of the block, and written within the
convolution's loop over the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from spmd.compiler.schedule.arena import ALIGNMENT
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.rows import in_one_row, row_nest
from spmd.compiler.schedule.sliding import CONVOLUTION, groups_of
from spmd.compiler.schedule.target import Target
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Op, Value

#: Rows of a product that are too few: others are taken, of the batch, if that has more.
FEW_ROWS = 6
#: Bytes of all images, from which on it is worth it, and how many a thread then has at least.
_LEAST, _TURNS = 1 << 18, 4


@dataclass(frozen=True)
class Images:
    """How the images of a convolution are made: by one turn of the outermost loop of `nest` each, of `nbytes`."""

    unit: Unit
    nest: Nest
    value: Value
    nbytes: int


def fused_images(units: Sequence[Unit], results: Iterable[Value], target: Target) -> dict[Op, Images]:
    """By convolution, the images that a unit of `units` makes for it alone."""
    kept = set(results)
    images_of: dict[Op, Images] = {}
    for unit in units:
        op = unit.outputs[0]
        if unit.fused or not _is_by_image(op, target.threads) or not target.supports(op):
            continue
        image, *others = op.operands
        maker = next((each for each in units if image in each.outputs[0].results), None)
        images = None if maker is None else _images(maker, unit)
        if images is not None and image not in kept and image not in others:
            images_of[op] = images
    return images_of


def _is_by_image(op: Op, threads: int) -> bool:
    """Whether `op` is a convolution of images that lie one after another, enough of them for all threads."""
    if op.name != CONVOLUTION or groups_of(op) != 1 or op["dimension_numbers"].input_batch_dimension != 0:
        return False
    tensor = op.operands[0].tensor
    enough = tensor.nbytes >= _LEAST and op.result.tensor.static_shape[-2] >= FEW_ROWS
    return enough and tensor.static_shape[0] >= (2 if threads == 1 else _TURNS * threads)


def _images(maker: Unit, reader: Unit) -> Images | None:
    """The images that `maker` makes for `reader`; None where it makes anything else, or not one by one."""
    if not maker.fused or maker.is_update or maker.readers != {reader} or len(maker.outputs) != 1:
        return None
    (value,) = maker.outputs[0].results
    nests = nests_of(maker)
    nest = row_nest(nests, value.tensor.static_shape[0]) if len(nests) == 1 else None
    if nest is None or len(nest.outer) != 1 or nest.stages[0].reductions:
        return None
    nbytes = prod(value.tensor.static_shape[1:]) * value.tensor.dtype.itemsize
    in_one = collapse(in_one_row(nest, lambda other: other is value))
    return Images(maker, in_one, value, -(-nbytes // ALIGNMENT) * ALIGNMENT)
