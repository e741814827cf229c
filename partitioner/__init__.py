"""The partitioner: turns a global program with shardings into the program of one process.

if partitioner.is_sharded(module):
    parts = partitioner.partition(module, grid)
    parts.module, parts.in_shardings, parts.out_shardings
"""

from __future__ import annotations

from partitioner.annotate import with_axis_size, with_shardings
from partitioner.core import Partitioned
from partitioner.launched import starts_processes, with_parts
from partitioner.partition import grid_of_mesh, partition
from partitioner.prices import Prices, using
from partitioner.sharding import (
    ShardedType,
    Sharding,
    join_blocks,
    shard_array,
    shard_stacked,
    unshard_array,
    unshard_stacked,
)
from spmd.analysis.shardings import is_sharded

__all__ = [
    "Partitioned",
    "Prices",
    "ShardedType",
    "Sharding",
    "grid_of_mesh",
    "is_sharded",
    "join_blocks",
    "partition",
    "shard_array",
    "shard_stacked",
    "starts_processes",
    "unshard_array",
    "unshard_stacked",
    "using",
    "with_axis_size",
    "with_parts",
    "with_shardings",
]
