"""The number of blocks of each dimension of a program's arguments, for programs with symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.grid import ProcessGrid
from partitioner.processes import devices_of
from partitioner.reading import ShardingReader
from partitioner.sharding import Sharding
from spmd.ir import Module
from spmd.types import TensorType

#: One number per dimension; empty for values that are no tensors.
BlockCounts = tuple[int, ...]


def annotated_block_counts(module: Module, grid: ProcessGrid, function: str) -> list[BlockCounts]:
    """Return the block counts by the arguments' annotations: 1 without one, which propagation may change."""
    entry = module.function(function)
    reader = ShardingReader(module, entry, devices_of(module, grid))
    cuts = []
    for attributes, type in zip(entry.argument_attributes, entry.type.inputs, strict=True):
        annotation = reader.of_attributes(dict(attributes), [type], entry)[0]
        rank = type.rank if isinstance(type, TensorType) else 0
        cuts.append(block_counts(None if annotation is None else annotation.sharding, rank))
    return cuts


def block_counts(sharding: Sharding | None, rank: int) -> BlockCounts:
    """Return the block counts of a tensor of `rank`, replicated if it has no sharding."""
    return (1,) * rank if sharding is None else tuple(map(sharding.count, range(rank)))


def global_shape(block: Sequence[int], declared: TensorType, cuts: BlockCounts) -> tuple[int, ...]:
    """Return the global shape for the shape of one block; sizes that are not declared are multiples of the block's."""
    sizes = zip(block, declared.shape, cuts, strict=True)
    return tuple(size * cut if known is None else known for size, known, cut in sizes)
