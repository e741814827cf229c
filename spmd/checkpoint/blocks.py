"""The block of each array that a process holds, and the assignment of blocks to writers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from partitioner import ShardedType
from spmd.checkpoint import tree as trees
from spmd.errors import CheckpointError
from spmd.support.arrays import Array
from spmd.types import TensorType

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ArrayBlock:
    """The block of a global array of `shape` that this process holds: `index` has one slice of step 1 per dimension."""

    shape: tuple[int, ...]
    index: tuple[slice, ...]


#: An entry of `shardings`; None is the whole array, equal on every process.
Placement = ShardedType | ArrayBlock | None


@dataclass(frozen=True)
class Box:
    """A block of a global array: its start and its shape."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        sides = zip(self.start, self.shape, strict=True)
        return "[" + ", ".join(f"{begin}:{begin + size}" for begin, size in sides) + "]"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def common(self, other: Box) -> Box:
        """Return the intersection; a side of it has size 0 if it is empty."""
        sides = list(zip(self.start, self.shape, other.start, other.shape, strict=True))
        start = tuple(max(a, b) for a, _, b, _ in sides)
        stops = (min(a + m, b + n) for a, m, b, n in sides)
        return Box(start, tuple(max(stop - begin, 0) for begin, stop in zip(start, stops, strict=True)))

    def within(self, other: Box) -> tuple[slice, ...]:
        """Return the slices that this block has within an array of the block `other`, which contains it."""
        places = zip(self.start, self.shape, other.start, strict=True)
        return tuple(slice(begin - first, begin - first + size) for begin, size, first in places)

    def meets(self, other: Box) -> bool:
        """Return whether the two blocks intersect."""
        sides = zip(self.start, self.shape, other.start, other.shape, strict=True)
        return all(max(a, b) < min(a + m, b + n) for a, m, b, n in sides)


@dataclass(frozen=True)
class Place:
    """Placement of a leaf on a process: the global shape, the block, and the shape of the local array.

    The local array may be larger than the block: the last blocks of an unevenly divided dimension are padded.
    """

    shape: tuple[int, ...]
    box: Box
    local: tuple[int, ...]


def placements(structure: object, shardings: object) -> list[Placement]:
    """Return the entry of `shardings`, a tree like that of `structure` or a prefix of it, for each array."""
    return list(
        trees.match(structure, shardings, lambda part: part is None or isinstance(part, ShardedType | ArrayBlock))
    )


def places(
    structure: object, shardings: object, names: Sequence[str], shapes: Sequence[Shape], rank: int
) -> list[Place]:
    """Return the placement of each array on process `rank`; `shapes` apply to arrays without an entry."""
    found = placements(structure, shardings)
    return [place_of(*entry, rank) for entry in zip(names, found, shapes, strict=True)]


def own_place(shape: Shape, rank: int, size: int) -> Place:
    """Return the placement of an array of `shape` per process: row `rank` of an array of all `size` processes."""
    box = Box((rank, *[0] * len(shape)), (1, *shape))
    return Place((size, *shape), box, box.shape)


def place_of(name: str, placement: Placement, shape: Shape, rank: int) -> Place:
    """Return the placement of an array on process `rank`; `shape` applies if there is no entry.

    Raises CheckpointError for partial sums and for entries that are no sharding.
    """
    if isinstance(placement, ShardedType) and placement.sharding is not None and isinstance(placement.type, TensorType):
        whole = placement.type.static_shape
        if placement.sharding.partial:
            raise CheckpointError(f"{name} ({placement}) is a partial sum: no process holds the array")
        return Place(whole, _box(name, whole, placement.index(rank)), placement.sharding.local_shape(whole))
    if isinstance(placement, ArrayBlock):
        box = _box(name, placement.shape, placement.index)
        return Place(placement.shape, box, box.shape)
    if placement is not None and not isinstance(placement, ShardedType):
        raise CheckpointError(
            f"{name}: a sharding must be a ShardedType, an ArrayBlock or None, got a {type(placement).__name__}"
        )
    return Place(shape, Box((0,) * len(shape), shape), shape)


def _box(name: str, shape: tuple[int, ...], index: tuple[slice, ...]) -> Box:
    if len(index) != len(shape) or any(part.step not in (None, 1) for part in index):
        raise CheckpointError(f"{name}: a block of an array of shape {shape} must have {len(shape)} slices of step 1")
    limits = [part.indices(size) for part, size in zip(index, shape, strict=True)]
    return Box(tuple(start for start, _, _ in limits), tuple(max(stop - start, 0) for start, stop, _ in limits))


def check_local(name: str, array: Array, place: Place) -> None:
    """Raise CheckpointError unless `array` has the local shape of `place`."""
    if array.shape != place.local:
        raise CheckpointError(f"{name} must have the shape {place.local} of its sharding's blocks, got {array.shape}")


def writers(held: Sequence[Sequence[Box]], itemsizes: Sequence[int]) -> list[dict[int, Box]]:
    """Return the blocks that each process writes, by leaf: each block once, the bytes balanced.

    `held` has the blocks of each process by leaf.
    """
    holders: dict[tuple[int, Box], list[int]] = {}
    for rank, boxes in enumerate(held):
        for leaf, box in enumerate(boxes):
            if box.size:
                holders.setdefault((leaf, box), []).append(rank)
    load = [0] * len(held)
    parts: list[dict[int, Box]] = [{} for _ in held]
    largest_first = sorted(holders, key=lambda held: (-held[1].size * itemsizes[held[0]], held[0], held[1].start))
    for leaf, box in largest_first:
        writer = min(holders[leaf, box], key=lambda rank: (load[rank], rank))
        load[writer] += box.size * itemsizes[leaf]
        parts[writer][leaf] = box
    return parts


def check_cover(names: Sequence[str], shapes: Sequence[tuple[int, ...]], held: Sequence[Sequence[Box]]) -> None:
    """Raise CheckpointError unless the blocks of all processes cover each array, and are pairwise equal or disjoint."""
    faults: dict[tuple[Shape, frozenset[Box]], str | None] = {}
    for leaf, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        boxes = frozenset(held_by_one[leaf] for held_by_one in held)
        key = shape, boxes
        if key not in faults:
            faults[key] = cover_fault(shape, boxes)
        if fault := faults[key]:
            raise CheckpointError(f"{name}: {fault}")


def cover_fault(shape: Shape, boxes: Iterable[Box]) -> str | None:
    """Return why `boxes` do not cover an array of `shape` exactly once; None if they do.

    Disjoint boxes whose sizes add up to the array's cover it.
    """
    filled = [box for box in boxes if box.size]
    # Sorted along the dimension with most cuts, a box intersects only those that begin before its end there.
    most_cut = max(range(len(shape)), key=lambda d: len({box.start[d] for box in filled}), default=None)
    if most_cut is not None:
        filled.sort(key=lambda box: (box.start[most_cut], box.start, box.shape))
    starts = [0 if most_cut is None else box.start[most_cut] for box in filled]
    for place, box in enumerate(filled):
        end = len(filled) if most_cut is None else bisect_left(starts, box.start[most_cut] + box.shape[most_cut])
        if met := next((other for other in filled[place + 1 : end] if box.meets(other)), None):
            return f"the blocks {box} and {met} overlap, and are not the same block"
    count, whole = sum(box.size for box in filled), math.prod(shape)
    if count != whole:
        return f"the blocks of all processes have {count} elements, its shape {shape} has {whole}"
    return None
