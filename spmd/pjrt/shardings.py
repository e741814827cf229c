"""Shardings as frontends read them: OpSharding of XLA, whose devices are places in the device assignment.

Source: openxla/xla, xla_data.proto, OpSharding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from partitioner.sharding import ShardedType, Sharding
from spmd.pjrt.errors import unimplemented
from spmd.pjrt.protobuf import number_field, numbers_field
from spmd.types import TensorType

_REPLICATED, _OTHER = 0, 3


def op_shardings(layouts: Sequence[ShardedType] | None, count: int, what: str) -> list[bytes]:
    """Return OpSharding of `count` arguments or results; PjrtError for what no frontend can lay out so."""
    if layouts is None:
        return [number_field(1, _REPLICATED)] * count
    return [_op_sharding(layout, f"{what} {index}") for index, layout in enumerate(layouts)]


def _op_sharding(layout: ShardedType, what: str) -> bytes:
    sharding = layout.sharding
    if sharding is None or not isinstance(layout.type, TensorType):
        return number_field(1, _REPLICATED)
    if sharding.partial:
        raise unimplemented(f"{what} is a partial sum: {layout}")
    for dimension, size in enumerate(layout.type.static_shape):
        if sharding.is_padded(dimension, size):
            raise unimplemented(f"{what} is cut into blocks of different sizes along dimension {dimension}: {layout}")
    if sharding.is_replicated:
        return number_field(1, _REPLICATED)
    return _tiled(sharding)


def _tiled(sharding: Sharding) -> bytes:
    counts = [sharding.count(dimension) for dimension in range(sharding.rank)]
    blocks = [sharding.mesh.block_index(axes) for axes in sharding.dimensions]
    order = np.lexsort((np.arange(sharding.mesh.size), *reversed(blocks)))
    copies = sharding.mesh.size // prod(counts)
    tiles = [*counts, copies] if copies > 1 else counts
    message = number_field(1, _OTHER) + numbers_field(3, tiles) + numbers_field(4, order.tolist())
    return message + (number_field(6, 1) if copies > 1 else b"")
