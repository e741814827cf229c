"""How many blocks each dimension of a program's arguments is cut into, before their sizes are known."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.grid import ProcessGrid
from partitioner.processes import devices_of
from partitioner.reading import ShardingReader
from partitioner.sharding import Sharding
from spmd.ir import Module
from spmd.types import TensorType

#: One number a dimension; none for what is no tensor.
Cuts = tuple[int, ...]


def asked_cuts(module: Module, grid: ProcessGrid, function: str) -> list[Cuts]:
    """What the program itself says of its arguments: 1 where it says nothing, and propagation may say more."""
    entry = module.function(function)
    reader = ShardingReader(module, entry, devices_of(module, grid))
    cuts = []
    for attributes, type in zip(entry.argument_attributes, entry.type.inputs, strict=True):
        annotation = reader.of_attributes(dict(attributes), [type], entry)[0]
        rank = type.rank if isinstance(type, TensorType) else 0
        cuts.append(cuts_of(None if annotation is None else annotation.sharding, rank))
    return cuts


def cuts_of(sharding: Sharding | None, rank: int) -> Cuts:
    """Those of a tensor of `rank`, which is whole where it has no sharding."""
    return (1,) * rank if sharding is None else tuple(map(sharding.count, range(rank)))


def whole_shape(block: Sequence[int], declared: TensorType, cuts: Cuts) -> tuple[int, ...]:
    """Return the shape of a tensor from that of one block: a size that is not declared is a multiple of the block's."""
    sizes = zip(block, declared.shape, cuts, strict=True)
    return tuple(size * cut if known is None else known for size, known, cut in sizes)
