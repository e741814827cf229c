"""The partitioner's device mesh: a list of prime sub-axes into which all axes and sub-axes are decomposed.

Every axis of every mesh of a module, every sub-axis in the program, and every tile dimension of a GSPMD sharding is a
sequence of sub-axes of prime size, so that a sharding is an ordered list of them and sub-axes need no special rules.
They are ints: indices into `DeviceMesh.sub_axes`, major to minor. In the partitioner "sub-axis" means one of these.
Source: Shardy's documentation, "Sharding representation" (axes, sub-axes, device
order).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

#: Sub-axes from major to minor.
Axes = tuple[int, ...]


@dataclass(frozen=True)
class SubAxis:
    """A sub-axis of prime `size` of axis `name`; `pre_size` is the size of the more major part of the axis."""

    name: str
    pre_size: int
    size: int
    full_size: int


class MeshError(ValueError):
    """A mesh or sharding cannot be expressed on the module's mesh."""


@dataclass(frozen=True, eq=False)
class DeviceMesh:
    """Sub-axes, and `order`: the device (partition id) at each position of the array they span (None: the position).

    Position p has coordinate `p // stride % size` along a sub-axis, the last sub-axis being minor.
    """

    sub_axes: tuple[SubAxis, ...]
    order: tuple[int, ...] | None = None

    @cached_property
    def size(self) -> int:
        """The number of devices."""
        return prod(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The size of each sub-axis."""
        return tuple(sub_axis.size for sub_axis in self.sub_axes)

    @cached_property
    def devices(self) -> NDArray[np.int64]:
        """The device at each position: int64 of shape (devices,)."""
        return np.arange(self.size) if self.order is None else np.array(self.order, np.int64)

    @cached_property
    def axes(self) -> dict[str, int]:
        """The size of each named axis, major first."""
        return {sub_axis.name: sub_axis.full_size for sub_axis in self.sub_axes}

    def stride(self, axis: int) -> int:
        """Return the distance, in positions, between neighbours along a sub-axis."""
        return prod(self.sizes[axis + 1 :])

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """The coordinate of each device along each sub-axis: an array of shape (devices, sub-axes)."""
        table = np.empty((self.size, len(self.sub_axes)), np.int64)
        positions = np.indices(self.sizes or (1,)).reshape(max(1, len(self.sizes)), -1).T
        table[self.devices] = positions[:, : len(self.sub_axes)]
        return table

    def count(self, axes: Iterable[int]) -> int:
        """Return the number of blocks into which `axes` shard a dimension."""
        return prod(self.sizes[axis] for axis in axes)

    def block_index(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """Return the index of each device's block of a dimension sharded along `axes`: int64 of (devices,)."""
        index = np.zeros(self.size, np.int64)
        for axis in axes:
            index = index * self.sizes[axis] + self.coordinates[:, axis]
        return index

    def groups(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """Return the groups of devices that differ along `axes` only, each in order of block index."""
        rest = [axis for axis in range(len(self.sub_axes)) if axis not in axes]
        order = np.lexsort((self.block_index(axes), self.block_index(rest)))
        return order.reshape(-1, self.count(axes)).astype(np.int64)

    def runs(self, axes: Sequence[int]) -> list[SubAxis]:
        """Return `axes` with adjacent sub-axes of one axis merged, major first."""
        sub_axes: list[SubAxis] = []
        for axis in axes:
            sub_axis = self.sub_axes[axis]
            last = sub_axes[-1] if sub_axes else None
            if last is not None and last.name == sub_axis.name and last.pre_size * last.size == sub_axis.pre_size:
                sub_axes[-1] = replace(last, size=last.size * sub_axis.size)
            else:
                sub_axes.append(sub_axis)
        return sub_axes

    def whole_axes(self, axes: Axes, size: int = 0) -> Axes:
        """Return the longest prefix of `axes` that consists of full axes and shards `size` into equal blocks."""
        reached = 1
        for run in self.runs(axes):
            if run.size != run.full_size or size % (reached * run.size):
                break
            reached *= run.size
        return next(axes[:length] for length in range(len(axes) + 1) if self.count(axes[:length]) == reached)

    def format(self, axes: Sequence[int]) -> str:
        """Return `axes` in Shardy's notation, with adjacent sub-axes of one axis merged."""
        return ", ".join(map(_format_run, self.runs(axes)))

    @property
    def text(self) -> str:
        """`"x"=4, "y"=2`."""
        return ", ".join(f'"{name}"={size}' for name, size in self.axes.items())


def _format_run(run: SubAxis) -> str:
    return f'"{run.name}"' if run.size == run.full_size else f'"{run.name}":({run.pre_size}){run.size}'


def primes(number: int) -> list[int]:
    """Return the prime factors of `number`, in ascending order."""
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1 if divisor * divisor <= number else max(1, number - divisor)
    return factors


@dataclass(frozen=True)
class Grid:
    """A named array of devices: (name, size) of each axis, and `order`, the devices in row-major order of the axes.

    An `order` of None is 0, 1, 2, ...
    """

    axes: tuple[tuple[str, int], ...]
    order: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(size for _, size in self.axes)


#: The largest number of devices that programs are partitioned for.
MOST_DEVICES = 1 << 24


class MeshBuilder:
    """Finds the sub-axes that all grids of a module share, and decomposes each grid's axes into them.

    Grids whose device ids are linear in the coordinates share the device order of the first one; any other grid has the
    same sub-axes with its own order. `mesh` is that of the first grid. Axes of a grid of one device shard nothing,
    whatever the size of the others.
    """

    def __init__(self, grids: Sequence[Grid], cuts: Mapping[Grid, Iterable[tuple[str, int]]] | None = None) -> None:
        """Build the sub-axes of `grids`, at least one; `cuts` holds (axis, pre-size) of sub-axis boundaries by grid."""
        first = max(grids, key=lambda grid: (grid.size > 1, bool(grid.axes)))
        count = first.size
        if count > MOST_DEVICES:
            raise MeshError(f"a mesh must have at most {MOST_DEVICES:,} devices, got {count:,}")
        self._strides: dict[Grid, list[int] | None] = {}
        points = {1, count}
        for grid in dict.fromkeys((first, *grids)):
            if grid.size not in (1, count):
                raise MeshError(f"meshes of one program must have equally many devices, got {count} and {grid.size}")
            self._strides[grid] = strides = _strides(grid)
            places = dict(zip((name for name, _ in grid.axes), strides or _row_major(grid), strict=True))
            sizes = dict(grid.axes)
            for name, size in grid.axes:
                points.update((places[name], places[name] * size))
            points.update(places[name] * (sizes[name] // before) for name, before in (cuts or {}).get(grid, ()))
        sub_axes = self._sub_axes(first, sorted(points, reverse=True))
        self._meshes: dict[tuple[int, ...] | None, DeviceMesh] = {}
        self._own_sub_axes = sub_axes
        self.mesh = self.mesh_of(first)

    def mesh_of(self, grid: Grid) -> DeviceMesh:
        """Return the sub-axes with the device order of `grid`."""
        order = None if self._strides_of(grid) is not None else grid.order
        if order not in self._meshes:
            self._meshes[order] = DeviceMesh(self._own_sub_axes, order)
        return self._meshes[order]

    def _strides_of(self, grid: Grid) -> list[int] | None:
        if grid not in self._strides:
            self._strides[grid] = _strides(grid)
        return self._strides[grid]

    def _sub_axes(self, named: Grid, points: list[int]) -> tuple[SubAxis, ...]:
        sizes: list[int] = []
        for larger, smaller in pairwise(points):
            if larger % smaller:
                raise MeshError(f"axes of strides {larger} and {smaller} have no common sub-axes")
            sizes.extend(primes(larger // smaller))
        strides = [prod(sizes[index + 1 :]) for index in range(len(sizes))]
        starts = self._strides[named] or _row_major(named)
        sub_axes = []
        for size, stride in zip(sizes, strides, strict=True):
            for (name, full), start in zip(named.axes, starts, strict=True):
                if start <= stride < start * full:
                    sub_axes.append(SubAxis(name, start * full // (stride * size), size, full))
                    break
            else:
                sub_axes.append(SubAxis(f"devices_{stride}", 1, size, size))
        return tuple(sub_axes)

    def axes(self, grid: Grid) -> list[Axes]:
        """Return the sub-axes of each axis of `grid`, major first."""
        strides = self._strides_of(grid) or _row_major(grid)
        return [self._span(size, stride) for (_, size), stride in zip(grid.axes, strides, strict=True)]

    def _span(self, size: int, stride: int) -> Axes:
        count, mesh = len(self._own_sub_axes), self.mesh
        axes = tuple(axis for axis in range(count) if stride <= mesh.stride(axis) < stride * size)
        if self.mesh.count(axes) != size:
            raise MeshError(f"an axis of size {size} and stride {stride} is not a sequence of the mesh's sub-axes")
        return axes


def _row_major(grid: Grid) -> list[int]:
    sizes = [size for _, size in grid.axes]
    return [prod(sizes[index + 1 :]) for index in range(len(sizes))]


def _strides(grid: Grid) -> list[int] | None:
    """Return the stride in device ids of each axis if the ids are linear in the coordinates; else None."""
    if grid.order is None or grid.size == 1:
        return _row_major(grid)
    sizes = [size for _, size in grid.axes]
    devices = np.array(grid.order, np.int64).reshape(sizes)
    strides = []
    for axis, size in enumerate(sizes):
        index = [0] * len(sizes)
        index[axis] = min(1, size - 1)
        strides.append(int(devices[tuple(index)] - devices[(0,) * len(sizes)]) if size > 1 else 1)
    linear = sum((np.indices(sizes)[axis] * stride for axis, stride in enumerate(strides)), np.zeros(sizes, np.int64))
    if any(stride <= 0 for stride in strides) or not np.array_equal(linear, devices):
        return None
    return strides
