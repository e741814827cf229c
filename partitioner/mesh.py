"""The device mesh inside the partitioner: one list of atoms that every named axis and sub-axis is made of.

An atom is an axis of prime size. Every axis of every mesh of a module, every sub-axis, and every tile dimension of a
GSPMD sharding is a run of atoms, so that a sharding is nothing but atoms in order and no sub-axis needs a rule of its
own. Atoms are ints: positions in `DeviceMesh.atoms`, from major to minor. Source: Shardy's documentation, "Sharding
representation" (axes, sub-axes, device order).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

#: Atoms from major to minor.
Axes = tuple[int, ...]


@dataclass(frozen=True)
class Atom:
    """A prime part of axis `name`: the part of `size` that has parts of product `pre_size` on its left."""

    name: str
    pre_size: int
    size: int
    full_size: int


class MeshError(ValueError):
    """A mesh or sharding cannot be put in terms of the module's mesh."""


@dataclass(frozen=True, eq=False)
class DeviceMesh:
    """Atoms, and the device (partition id) at each position of the array that they span.

    Position p has coordinate `p // stride % size` along an atom, the last atom being minor.
    """

    atoms: tuple[Atom, ...]
    device_ids: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of devices."""
        return len(self.device_ids)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(atom.size for atom in self.atoms)

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Coordinate of each device along each atom: an array of shape (devices, atoms)."""
        table = np.empty((self.size, len(self.atoms)), np.int64)
        positions = np.indices(self.sizes or (1,)).reshape(max(1, len(self.sizes)), -1).T
        table[np.array(self.device_ids, np.int64)] = positions[:, : len(self.atoms)]
        return table

    def count(self, axes: Iterable[int]) -> int:
        """How many blocks `axes` cut a dimension into."""
        return prod(self.sizes[axis] for axis in axes)

    def block_index(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """Which block each device holds of a dimension cut along `axes` (major first): int64 of shape (devices,)."""
        index = np.zeros(self.size, np.int64)
        for axis in axes:
            index = index * self.sizes[axis] + self.coordinates[:, axis]
        return index

    def groups(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """The groups of devices that differ along `axes` alone, each in the order of their block index."""
        rest = [axis for axis in range(len(self.atoms)) if axis not in axes]
        order = np.lexsort((self.block_index(axes), self.block_index(rest)))
        return order.reshape(-1, self.count(axes)).astype(np.int64)

    def format(self, axes: Sequence[int]) -> str:
        """`axes` as Shardy writes them: neighbouring parts of one axis joined."""
        parts: list[list[Atom]] = []
        for axis in axes:
            atom = self.atoms[axis]
            last = parts[-1][-1] if parts else None
            if last is not None and last.name == atom.name and last.pre_size * last.size == atom.pre_size:
                parts[-1].append(atom)
            else:
                parts.append([atom])
        return ", ".join(_format_run(run) for run in parts)

    @property
    def text(self) -> str:
        """`"x"=4, "y"=2`."""
        names: dict[str, int] = {atom.name: atom.full_size for atom in self.atoms}
        return ", ".join(f'"{name}"={size}' for name, size in names.items())


def _format_run(run: list[Atom]) -> str:
    first, size = run[0], prod(atom.size for atom in run)
    return f'"{first.name}"' if size == first.full_size else f'"{first.name}":({first.pre_size}){size}'


def primes(number: int) -> list[int]:
    """The prime factors of `number`, small ones first."""
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1 if divisor * divisor <= number else max(1, number - divisor)
    return found


@dataclass(frozen=True)
class Grid:
    """A named array of devices: (name, size) of each axis, and the devices in row-major order of the axes."""

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...]

    @property
    def is_iota(self) -> bool:
        return self.device_ids == tuple(range(len(self.device_ids)))


class MeshBuilder:
    """Finds the atoms that all grids of a module are made of, and each grid's axes in terms of them."""

    def __init__(self, grids: Sequence[Grid], cuts: Iterable[int] = ()) -> None:
        """`grids`: at least one. `cuts`: pre-sizes at which sub-axes of the first grid's axes begin, as strides."""
        first = max(grids, key=lambda grid: (len(grid.axes) > 0, -grids.index(grid)))
        self._base = first if any(_strides(grid) is None for grid in grids) else None
        count = len(first.device_ids)
        points = {1, count, *cuts}
        for grid in grids:
            if len(grid.device_ids) != count:
                raise MeshError(f"meshes of {count} and of {len(grid.device_ids)} devices in one program")
            strides = _strides(grid) if self._base is None else _row_major(grid)
            assert strides is not None
            for (_, size), stride in zip(grid.axes, strides, strict=True):
                points.update((stride, stride * size))
        self.mesh = self._build(first, sorted(points, reverse=True))

    def _build(self, named: Grid, points: list[int]) -> DeviceMesh:
        sizes: list[int] = []
        for larger, smaller in pairwise(points):
            if larger % smaller:
                raise MeshError(f"axes that begin at strides {larger} and {smaller} have no common parts")
            sizes.extend(primes(larger // smaller))
        strides = [prod(sizes[index + 1 :]) for index in range(len(sizes))]
        names = self._names(named, sizes, strides)
        devices = self._base.device_ids if self._base is not None else tuple(range(points[0]))
        return DeviceMesh(names, devices)

    def _names(self, named: Grid, sizes: list[int], strides: list[int]) -> tuple[Atom, ...]:
        starts = _strides(named) if self._base is None else _row_major(named)
        assert starts is not None
        atoms = []
        for size, stride in zip(sizes, strides, strict=True):
            for (name, full), start in zip(named.axes, starts, strict=True):
                if start <= stride < start * full:
                    atoms.append(Atom(name, start * full // (stride * size), size, full))
                    break
            else:
                atoms.append(Atom(f"devices_{stride}", 1, size, size))
        return tuple(atoms)

    def axes(self, grid: Grid) -> list[Axes]:
        """The atoms of each axis of `grid`, major first."""
        if self._base is not None and grid.device_ids != self._base.device_ids:
            raise MeshError("meshes with different orders of devices in one program have no common axes")
        strides = _strides(grid) if self._base is None else _row_major(grid)
        assert strides is not None
        return [self._span(size, stride) for (_, size), stride in zip(grid.axes, strides, strict=True)]

    def _span(self, size: int, stride: int) -> Axes:
        sizes = self.mesh.sizes
        found = []
        for index in range(len(sizes)):
            here = prod(sizes[index + 1 :])
            if stride <= here < stride * size:
                found.append(index)
        if self.mesh.count(found) != size:
            raise MeshError(f"an axis of size {size} at stride {stride} is no run of the mesh's parts")
        return tuple(found)


def _row_major(grid: Grid) -> list[int]:
    sizes = [size for _, size in grid.axes]
    return [prod(sizes[index + 1 :]) for index in range(len(sizes))]


def _strides(grid: Grid) -> list[int] | None:
    """The step in device ids along each axis, when the ids are linear in the coordinates; else None."""
    sizes = [size for _, size in grid.axes]
    devices = np.array(grid.device_ids, np.int64).reshape(sizes)
    strides = []
    for axis, size in enumerate(sizes):
        index = [0] * len(sizes)
        index[axis] = min(1, size - 1)
        strides.append(int(devices[tuple(index)] - devices[(0,) * len(sizes)]) if size > 1 else 1)
    linear = sum((np.indices(sizes)[axis] * stride for axis, stride in enumerate(strides)), np.zeros(sizes, np.int64))
    if any(stride <= 0 for stride in strides) or not np.array_equal(linear, devices):
        return None
    return strides
