"""How one tensor is laid out over the mesh, and an annotation that constrains it.

`Sharding` is a fact: which sub-axes cut each dimension, and over which the value is a partial sum. `Annotation` is a
constraint read from the program: it may leave dimensions open, carry priorities, and forbid axes. Source: Shardy's
documentation, "Sharding representation"; StableHLO has no text on either.
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
    """The layout of one tensor: `dimensions[d]` are the sub-axes that cut dimension d, major first.

    A dimension of size n cut into k blocks has blocks of ceil(n / k); the last ones may be shorter or empty and are
    padded. `partial`: sub-axes over which the true value is the `reduction` (sum, max, ...) of what each device holds.
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
        """The sub-axes that cut a dimension or are partial."""
        return frozenset(self.partial).union(*self.dimensions)

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds all of the tensor."""
        return not self.partial and not any(self.dimensions)

    def count(self, dimension: int) -> int:
        """Into how many blocks `dimension` is cut."""
        return self.mesh.count(self.dimensions[dimension])

    def local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one block of a tensor of `shape`, padding included."""
        return tuple(-(-size // self.count(index)) for index, size in enumerate(shape))

    def local_type(self, type: TensorType) -> TensorType:
        """Return the type of one block of a tensor of `type`."""
        return type.with_shape(self.local_shape(type.static_shape))

    def is_padded(self, dimension: int, size: int) -> bool:
        """Return whether blocks of a dimension of `size` hold padding on some device."""
        return size % self.count(dimension) != 0

    def index(self, device: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """Which part of a tensor of `shape` is on `device`, padding left out."""
        slices = []
        for dimension, size in enumerate(shape):
            block = -(-size // self.count(dimension))
            start = int(self.mesh.block_index(self.dimensions[dimension])[device]) * block
            slices.append(slice(min(start, size), min(start + block, size)))
        return tuple(slices)

    def with_dimension(self, dimension: int, axes: Axes) -> Sharding:
        """Return the same layout with `dimension` cut along `axes`."""
        changed = (*self.dimensions[:dimension], axes, *self.dimensions[dimension + 1 :])
        return replace(self, dimensions=changed)

    def whole(self) -> Sharding:
        """Return the same without partial sums."""
        return replace(self, partial=()) if self.partial else self

    def even(self, shape: Sequence[int]) -> Sharding:
        """Return the same with the dimensions of a tensor of `shape` cut along as many whole axes as give equal
        blocks."""
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
    """Return every device holds all of it."""
    return Sharding(mesh, ((),) * rank)


@dataclass(frozen=True)
class Annotation:
    """The constraint that a program puts on one tensor.

    `closed[d]`: nothing may be added to dimension d; `priority[d]`: 0 first.

    `fixed`: sub-axes that must not cut the tensor at all (written replicated={...}). `device`: the only one that
    holds the tensor.
    """

    sharding: Sharding
    closed: tuple[bool, ...]
    priority: tuple[int, ...]
    fixed: frozenset[int] = frozenset()
    device: int | None = None


@dataclass(frozen=True)
class ShardedType:
    """How one argument or result of a program lies over the processes: its global type and its sharding.

    `sharding` is None for a value that is no tensor (a token), which every process holds as it is.
    """

    type: Type
    sharding: Sharding | None

    @property
    def local_type(self) -> Type:
        """The type of one process's block."""
        if self.sharding is None or not isinstance(self.type, TensorType):
            return self.type
        return self.sharding.local_type(self.type)

    def index(self, rank: int) -> tuple[slice, ...]:
        """Which part of the global array process `rank` holds, padding left out."""
        assert self.sharding is not None and isinstance(self.type, TensorType)
        return self.sharding.index(rank % self.sharding.mesh.size, self.type.static_shape)

    def _repr_html_(self) -> str:
        return picture_of(self)

    def __str__(self) -> str:
        return f"{self.type} {self.sharding}" if self.sharding is not None else str(self.type)


def shard_array(source: Array | Callable[[tuple[slice, ...]], Array], layout: ShardedType, rank: int) -> Array:
    """Return the block that process `rank` holds of a global array.

    `source` is the whole array, or a callable that is given the index of a block (a tuple of slices without padding)
    and returns it, so that no process need hold the whole. Blocks that the dimension does not fill are padded with
    zeros. ValueError for a wrong shape, TypeError for a wrong dtype.
    """
    if layout.sharding is None or not isinstance(layout.type, TensorType):
        return source  # type: ignore[return-value]
    shape, dtype = layout.type.static_shape, layout.type.dtype
    index = layout.index(rank)
    block_shape = tuple(part.stop - part.start for part in index)
    if callable(source):
        block = np.asarray(source(index))
        if block.shape != block_shape:
            raise ValueError(f"the callback gave a block of shape {block.shape} for index {index}, not {block_shape}")
    else:
        whole = np.asarray(source)
        if whole.shape != shape:
            raise ValueError(f"an array of shape {whole.shape} where the program takes {layout.type}")
        block = whole[index]
    if block.dtype != dtype:
        raise TypeError(f"an array of dtype {block.dtype} where the program takes {layout.type}")
    local = layout.sharding.local_shape(shape)
    if block.shape != local:
        block = np.pad(block, [(0, size - block_size) for size, block_size in zip(local, block.shape, strict=True)])
    return _partial_block(block, layout, rank)


def _partial_block(block: Array, layout: ShardedType, rank: int) -> Array:
    """One process's term of a block that is the sum over several: the block on the first of them, zeros on the others.

    For a maximum or a minimum each process holds a copy.
    """
    assert layout.sharding is not None and isinstance(layout.type, TensorType)
    partial, element = layout.sharding.partial, layout.type.element_type
    is_first = not partial or layout.sharding.mesh.block_index(partial)[rank % layout.sharding.mesh.size] == 0
    if is_first or layout.sharding.reduction != "stablehlo.add" or not isinstance(element, ElementType):
        return block
    nothing = identity("add", element)
    if nothing is None:
        raise TypeError(f"there is no sum of elements of {layout.type}, which the program takes as one")
    return np.full_like(block, nothing)


def join_blocks(blocks: Sequence[Array], layout: ShardedType) -> Array:
    """Return the global array from the blocks of all devices of the mesh, in order of rank; partial results are put
    together.

    ValueError unless there is a block for each of them.
    """
    if layout.sharding is None or not isinstance(layout.type, TensorType) or layout.sharding.is_replicated:
        return blocks[0]
    if len(blocks) != layout.sharding.mesh.size:
        raise ValueError(f"a block of each of {layout.sharding.mesh.size} devices is needed, got {len(blocks)}")
    whole = np.empty(layout.type.static_shape, layout.type.dtype)
    mesh = layout.sharding.mesh
    part_of = mesh.block_index(layout.sharding.partial)
    # Of copies one alone is a term of the whole.
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
    """Return the global array from this process's block: every process calls it, every process gets the whole.

    Blocks travel between the partitions of one replica only.
    """
    if layout.sharding is None or layout.sharding.is_replicated:
        return block
    count = layout.sharding.mesh.size
    first = communicator.world_rank // count * count
    group = communicator.group(range(first, first + count))
    stacked = group.all_gather((1, *block.shape), block.dtype, 0, where="unshard")(np.ascontiguousarray(block)[None])
    return join_blocks(list(stacked), layout)


def shard_stacked(source: Nested | Callable[[tuple[slice, ...]], Array], layout: ShardedType, processes: int) -> Array:
    """Return the blocks of all processes of a grid along a leading axis; of one where all hold the same.

    Nothing cuts a tuple: each part of it is the same on all.
    """
    if isinstance(source, tuple):
        return map_parts(lambda part: part[None], source)  # type: ignore[no-any-return]
    same = layout.sharding is None or layout.sharding.is_replicated or not isinstance(layout.type, TensorType)
    return np.stack([shard_array(source, layout, rank) for rank in range(1 if same else processes)])


def unshard_stacked(blocks: Nested, layout: ShardedType) -> Array:
    """Return the global array from the blocks of all processes, along their leading axis: those of the first
    replica."""
    if isinstance(blocks, tuple):
        return map_parts(lambda part: part[0, ...], blocks)  # type: ignore[no-any-return]
    if layout.sharding is None or layout.sharding.is_replicated:
        return np.asarray(blocks[0])
    return join_blocks(list(blocks[: layout.sharding.mesh.size]), layout)


def without_padding(blocks: Array, layout: ShardedType) -> Array:
    """Return the blocks of all processes, along their leading axis, with zeros where no element of the whole array
    lies."""
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
