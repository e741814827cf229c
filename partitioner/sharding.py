"""Shardings of tensors over the mesh, and annotations that constrain them.

A `Sharding` is complete: which sub-axes shard each dimension, and over which the value is a partial sum. An
`Annotation` is a constraint from the program: it may leave dimensions open, have priorities, and forbid axes. Source:
Shardy's documentation, "Sharding representation"; StableHLO does not specify either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from collectives.monoids import LOGICAL_UFUNCS, UFUNCS
from partitioner.mesh import Axes, DeviceMesh
from spmd.analysis.reducers import identity
from spmd.support.arrays import Array, Nested, map_parts
from spmd.support.pictures import picture_of
from spmd.types import ElementType, TensorType, Type

if TYPE_CHECKING:
    from collectives.communicator import Communicator


@dataclass(frozen=True)
class Sharding:
    """The sharding of one tensor: `dimensions[d]` are the sub-axes that shard dimension d, major first.

    A dimension of size n in k blocks has blocks of ceil(n / k); the last may be shorter or empty and are padded. Over
    the sub-axes in `partial` the value is the `reduction` (sum, max, ...) of what the devices hold.
    """

    mesh: DeviceMesh
    dimensions: tuple[Axes, ...]
    partial: Axes = ()
    reduction: str = "stablehlo.add"

    @property
    def rank(self) -> int:
        """The number of dimensions of the tensor."""
        return len(self.dimensions)

    @property
    def used(self) -> frozenset[int]:
        """The sub-axes that shard a dimension or are partial."""
        return frozenset(self.partial).union(*self.dimensions)

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds the complete tensor."""
        return not self.partial and not any(self.dimensions)

    def count(self, dimension: int) -> int:
        """Return the number of blocks of `dimension`."""
        return self.mesh.count(self.dimensions[dimension])

    def local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one block of a tensor of `shape`, including padding."""
        return tuple(-(-size // self.count(index)) for index, size in enumerate(shape))

    def local_type(self, type: TensorType) -> TensorType:
        """Return the type of one block of a tensor of `type`."""
        return type.with_shape(self.local_shape(type.static_shape))

    def is_padded(self, dimension: int, size: int) -> bool:
        """Return whether some device's block of a dimension of `size` has padding."""
        return size % self.count(dimension) != 0

    def index(self, device: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices of a tensor of `shape` that `device` holds, without padding."""
        slices = []
        for dimension, size in enumerate(shape):
            block = -(-size // self.count(dimension))
            start = int(self.mesh.block_index(self.dimensions[dimension])[device]) * block
            slices.append(slice(min(start, size), min(start + block, size)))
        return tuple(slices)

    def with_dimension(self, dimension: int, axes: Axes) -> Sharding:
        """Return the sharding with `dimension` sharded along `axes`."""
        changed = (*self.dimensions[:dimension], axes, *self.dimensions[dimension + 1 :])
        return replace(self, dimensions=changed)

    def without_partial(self) -> Sharding:
        """Return the sharding without partial sums."""
        return replace(self, partial=()) if self.partial else self

    def even(self, shape: Sequence[int]) -> Sharding:
        """Return the sharding with axes dropped until a tensor of `shape` has equal blocks along full axes."""
        pairs = zip(self.dimensions, shape, strict=True)
        return replace(self, dimensions=tuple(self.mesh.whole_axes(axes, size) for axes, size in pairs))

    def __str__(self) -> str:
        dimensions = ", ".join("{" + self.mesh.format(axes) + "}" for axes in self.dimensions)
        partial = f", unreduced={{{self.mesh.format(self.partial)}}}" if self.partial else ""
        return f"[{dimensions}]{partial}"

    def __repr__(self) -> str:
        return f"Sharding({self})"

    def _repr_html_(self) -> str:
        return picture_of(self)


def replicated(mesh: DeviceMesh, rank: int) -> Sharding:
    """Return the replicated sharding."""
    return Sharding(mesh, ((),) * rank)


@dataclass(frozen=True)
class Annotation:
    """The program's constraint on the sharding of one tensor.

    `closed[d]`: dimension d must not be sharded further; `priority[d]`: propagation priority, 0 being first. `fixed`:
    sub-axes that must not shard the tensor (`replicated={...}` in the text). `device`: the only device with the tensor.
    """

    sharding: Sharding
    closed: tuple[bool, ...]
    priority: tuple[int, ...]
    fixed: frozenset[int] = frozenset()
    device: int | None = None


@dataclass(frozen=True)
class ShardedType:
    """The global type of an argument or result of a program, and its sharding over the processes.

    `sharding` is None for a value that is no tensor (a token), which every process holds.
    """

    type: Type
    sharding: Sharding | None

    @property
    def local_type(self) -> Type:
        """The type of a process's block."""
        if self.sharding is None or not isinstance(self.type, TensorType):
            return self.type
        return self.sharding.local_type(self.type)

    def index(self, rank: int) -> tuple[slice, ...]:
        """Return the slices of the global array that process `rank` holds, without padding."""
        assert self.sharding is not None and isinstance(self.type, TensorType)
        return self.sharding.index(rank % self.sharding.mesh.size, self.type.static_shape)

    def _repr_html_(self) -> str:
        return picture_of(self)

    def __str__(self) -> str:
        return f"{self.type} {self.sharding}" if self.sharding is not None else str(self.type)


def shard_array(source: Array | Callable[[tuple[slice, ...]], Array], layout: ShardedType, rank: int) -> Array:
    """Return process `rank`'s block of a global array.

    `source` is the global array, or a callable that returns the block at an index (a tuple of slices, without padding),
    so that no process needs the global array. Incomplete blocks are padded with zeros. Raises ValueError for a wrong
    shape, TypeError for a wrong dtype.
    """
    if layout.sharding is None or not isinstance(layout.type, TensorType):
        return source  # type: ignore[return-value]
    shape, dtype = layout.type.static_shape, layout.type.dtype
    index = layout.index(rank)
    block_shape = tuple(part.stop - part.start for part in index)
    if callable(source):
        block = np.asarray(source(index))
        if block.shape != block_shape:
            text = f"the callback must return a block of shape {block_shape} for index {index}, got {block.shape}"
            raise ValueError(text)
    else:
        whole = np.asarray(source)
        if whole.shape != shape:
            raise ValueError(f"the array must have the shape of {layout.type}, got {whole.shape}")
        block = whole[index]
    if block.dtype != dtype:
        raise TypeError(f"the array must have the dtype of {layout.type}, got {block.dtype}")
    local = layout.sharding.local_shape(shape)
    if block.shape != local:
        block = np.pad(block, [(0, size - block_size) for size, block_size in zip(local, block.shape, strict=True)])
    return _partial_block(block, layout, rank)


def _partial_block(block: Array, layout: ShardedType, rank: int) -> Array:
    """Return a process's term of an unreduced block: the block on the first process of the sum, zeros on the others.

    For a maximum or a minimum, each process holds a copy.
    """
    assert layout.sharding is not None and isinstance(layout.type, TensorType)
    partial, element = layout.sharding.partial, layout.type.element_type
    is_first = not partial or layout.sharding.mesh.block_index(partial)[rank % layout.sharding.mesh.size] == 0
    if is_first or layout.sharding.reduction != "stablehlo.add" or not isinstance(element, ElementType):
        return block
    nothing = identity("add", element)
    if nothing is None:
        raise TypeError(f"an unreduced argument must be of a type with a zero, got {layout.type}")
    return np.full_like(block, nothing)


def join_blocks(blocks: Sequence[Array], layout: ShardedType) -> Array:
    """Return the global array from the blocks of all devices of the mesh, in order of rank, reducing partial values.

    Raises ValueError unless there is one block per device.
    """
    if layout.sharding is None or not isinstance(layout.type, TensorType) or layout.sharding.is_replicated:
        return blocks[0]
    if len(blocks) != layout.sharding.mesh.size:
        raise ValueError(f"there must be a block for each of {layout.sharding.mesh.size} devices, got {len(blocks)}")
    whole = np.empty(layout.type.static_shape, layout.type.dtype)
    mesh = layout.sharding.mesh
    part_of = mesh.block_index(layout.sharding.partial)
    # Only one of several copies is a term.
    copy_of = mesh.block_index([axis for axis in range(len(mesh.sub_axes)) if axis not in layout.sharding.used])
    folds = LOGICAL_UFUNCS if whole.dtype == np.bool_ else UFUNCS
    fold = folds[layout.sharding.reduction.removeprefix("stablehlo.")]
    for rank in np.argsort(part_of, kind="stable").tolist():
        if copy_of[rank]:
            continue
        index = layout.index(rank)
        block = blocks[rank][tuple(slice(0, part.stop - part.start) for part in index)]
        whole[index] = block if part_of[rank] == 0 else fold(whole[index], block)
    return whole


def unshard_array(block: Array, layout: ShardedType, communicator: Communicator) -> Array:
    """Return the global array from this process's block; collective among the partitions of the replica.

    Every process gets the global array.
    """
    if layout.sharding is None or layout.sharding.is_replicated:
        return block
    count = layout.sharding.mesh.size
    first = communicator.world_rank // count * count
    group = communicator.group(range(first, first + count))
    stacked = group.all_gather((1, *block.shape), block.dtype, 0, where="unshard")(np.ascontiguousarray(block)[None])
    return join_blocks(list(stacked), layout)


def shard_stacked(source: Nested | Callable[[tuple[slice, ...]], Array], layout: ShardedType, processes: int) -> Array:
    """Return the blocks of all processes along a leading axis, of size 1 if all hold the same.

    Tuples are not sharded: each element is the same on all processes.
    """
    if isinstance(source, tuple):
        return map_parts(lambda part: part[None], source)  # type: ignore[no-any-return]
    same = layout.sharding is None or layout.sharding.is_replicated or not isinstance(layout.type, TensorType)
    return np.stack([shard_array(source, layout, rank) for rank in range(1 if same else processes)])


def unshard_stacked(blocks: Nested, layout: ShardedType) -> Array:
    """Return the global array from the blocks of all processes, along their leading axis; the first replica's count."""
    if isinstance(blocks, tuple):
        return map_parts(lambda part: part[0, ...], blocks)  # type: ignore[no-any-return]
    if layout.sharding is None or layout.sharding.is_replicated:
        return np.asarray(blocks[0])
    return join_blocks(list(blocks[: layout.sharding.mesh.size]), layout)


def without_padding(blocks: Array, layout: ShardedType) -> Array:
    """Return the blocks of all processes, along their leading axis, with their padding set to zero."""
    if layout.sharding is None or not isinstance(layout.type, TensorType):
        return blocks
    sizes = enumerate(layout.type.static_shape)
    if not any(layout.sharding.is_padded(dimension, size) for dimension, size in sizes):
        return blocks
    kept = np.zeros((max(len(blocks), layout.sharding.mesh.size), *blocks.shape[1:]), blocks.dtype)
    for rank in range(len(kept)):
        inside = tuple(slice(0, part.stop - part.start) for part in layout.index(rank))
        kept[rank][inside] = blocks[rank % len(blocks)][inside]
    return kept
