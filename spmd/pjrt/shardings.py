"""Shardings as frontends read them: OpSharding of XLA, whose devices are places in the device assignment.

Source: openxla/xla, xla_data.proto, OpSharding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from spmd.support.protobuf import number_field, numbers_field

if TYPE_CHECKING:
    from partitioner.sharding import ShardedType, Sharding

_REPLICATED, _OTHER, _UNREDUCED = 0, 3, 6


def op_shardings(layouts: Sequence[ShardedType] | None, count: int) -> list[bytes]:
    """Return OpSharding of `count` arguments or results, all of whose blocks are equal."""
    if layouts is None:
        return [number_field(1, _REPLICATED)] * count
    return [_op_sharding(layout.sharding) for layout in layouts]


def _op_sharding(sharding: Sharding | None) -> bytes:
    if sharding is None or sharding.is_replicated:
        return number_field(1, _REPLICATED)
    return _tiled(sharding)


def _tiled(sharding: Sharding) -> bytes:
    """The tiles of each dimension, then the devices that hold partial sums of one tile, then those with the same."""
    counts = [sharding.count(dimension) for dimension in range(sharding.rank)]
    blocks = [sharding.mesh.block_index(axes) for axes in (*sharding.dimensions, sharding.partial)]
    order = np.lexsort((np.arange(sharding.mesh.size), *reversed(blocks)))
    parts = sharding.mesh.count(sharding.partial)
    copies = sharding.mesh.size // (prod(counts) * parts)
    groups = [(_UNREDUCED, parts), (_REPLICATED, copies)]
    kinds, sizes = zip(*[group for group in groups if group[1] > 1], strict=True) if parts * copies > 1 else ((), ())
    message = number_field(1, _OTHER) + numbers_field(3, [*counts, *sizes]) + numbers_field(4, order.tolist())
    if kinds == (_REPLICATED,):
        return message + number_field(6, 1)
    return message + numbers_field(8, kinds)
