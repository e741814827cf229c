"""Global arrays of which each process holds a block, as arguments of functions of the global view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from spmd.errors import UsageError
from spmd.jax.tracebacks import api_boundary
from spmd.runtime import world
from spmd.support.arrays import Array, Tree


@dataclass(frozen=True, eq=False)
class ProcessLocalArray:
    """A global array of `shape`, of which this process has `block`; see `make_array_from_process_local_data`."""

    sharding: NamedSharding
    shape: tuple[int, ...]
    block: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.block.dtype

    def __repr__(self) -> str:
        return f"ProcessLocalArray({self.dtype}{list(self.shape)}, {self.sharding.spec}, block {self.block.shape})"


@api_boundary
def make_array_from_process_local_data(
    sharding: NamedSharding, local_data: Tree, global_shape: Sequence[int] | None = None
) -> Tree:
    """Return global arrays of this process's blocks, like `jax.make_array_from_process_local_data`.

    The results are arguments of functions of `spmd.jax.jit`: no process needs the whole arrays. A function without
    shardings takes theirs.

    :param sharding: the layout over the ranks; its mesh must have as many devices as there are ranks, and may be
        abstract.
    :param local_data: this process's blocks: an array, or a tree of arrays with the same layout.
    :param global_shape: the shape of the whole. By default each dimension is that of the block times the number of
        parts that the sharding divides it into. In a dimension of the whole's size the block holds everything, and this
        process's part is taken.
    :returns: one ProcessLocalArray for each array of `local_data`.
    :raises UsageError: for an invalid sharding, a mesh of another size, and blocks that do not fit.
    """
    if not isinstance(sharding, NamedSharding):
        raise UsageError(f"make_array_from_process_local_data takes a NamedSharding, got {sharding!r}")
    return jax.tree.map(lambda block: _of_block(sharding, block, global_shape), local_data)


def _of_block(sharding: NamedSharding, data: Tree, global_shape: Sequence[int] | None) -> ProcessLocalArray:
    block = np.asarray(data)
    process, count = (world.ranks().rank, world.ranks().size) if world.under_mpi() else (0, 1)
    if sharding.mesh.size != count:
        raise UsageError(f"the mesh of {_text(sharding)} has {sharding.mesh.size} devices, and there are {count} ranks")
    cuts = _cuts(sharding, block.ndim)
    counts = [prod(sharding.mesh.shape[name] for name in names) for names in cuts]
    scaled = tuple(size * parts for size, parts in zip(block.shape, counts, strict=True))
    shape = scaled if global_shape is None else tuple(global_shape)
    if len(shape) != block.ndim or any(size % parts for size, parts in zip(shape, counts, strict=True)):
        raise UsageError(f"a global array of shape {shape} is not cut as {sharding.spec} of {_text(sharding)}")
    own: list[slice] = []
    for given, size, part in zip(block.shape, shape, part_of(sharding, shape, process), strict=True):
        if given not in (size, part.stop - part.start):
            expected = tuple(size // parts for size, parts in zip(shape, counts, strict=True))
            raise UsageError(
                f"a block of shape {block.shape} of a global array of shape {shape}: as {sharding.spec} of "
                f"{_text(sharding)} it is of shape {expected}"
            )
        own.append(part if given == size else slice(None))
    return ProcessLocalArray(sharding, shape, block[tuple(own)])


def part_of(sharding: NamedSharding, shape: Sequence[int], process: int) -> tuple[slice, ...]:
    """Return the part of a global array of `shape` that a process holds; device ids of a mesh are ranks."""
    mesh = sharding.mesh
    is_abstract = not isinstance(mesh, jax.sharding.Mesh)
    place = process if is_abstract else [device.id for device in mesh.devices.flat].index(process)
    coordinates = dict(zip(mesh.axis_names, map(int, np.unravel_index(place, mesh.axis_sizes)), strict=True))
    part: list[slice] = []
    for size, names in zip(shape, _cuts(sharding, len(shape)), strict=True):
        number = 0
        for name in names:
            number = number * mesh.shape[name] + coordinates[name]
        width = size // prod(mesh.shape[name] for name in names)
        part.append(slice(width * number, width * (number + 1)))
    return tuple(part)


def _cuts(sharding: NamedSharding, rank: int) -> list[tuple[str, ...]]:
    """Return the axes that divide each dimension of an array of `rank` dimensions, major first."""
    spec = sharding.spec
    if len(spec) > rank:
        raise UsageError(f"{spec} cuts {len(spec)} dimensions, and a block has {rank}")
    entries = (*spec, *(None,) * (rank - len(spec)))
    return [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in entries]


def _text(sharding: NamedSharding) -> str:
    return ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
