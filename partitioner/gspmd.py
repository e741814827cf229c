"""GSPMD's sharding strings: `mhlo.sharding` attributes and the custom calls that carry them.

Both editions: iota tiles `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`, transposed ones `<=[2,4]T(1,0)`, explicit
device lists, `{replicated}`, `{maximal device=0}`, `{manual}`, `{unknown}`, `last_tile_dims={replicated, manual}`,
tuples, and what may follow (metadata, shard_as, shard_like). Source: XLA's HloSharding text form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from math import prod

import numpy as np

from partitioner.mesh import Axes, Grid, MeshError, primes


@dataclass(frozen=True)
class TileSharding:
    """One string, read. `kind`: tiled, replicated, maximal, manual or unknown.

    Tiled: `tiles` counts the blocks of each dimension, then one entry for each of `subgroups` (replicated, manual);
    `devices` in row-major order of the tiles.
    """

    kind: str
    tiles: tuple[int, ...] = ()
    subgroups: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    device: int = 0
    is_open: bool = False

    @property
    def rank(self) -> int:
        return len(self.tiles) - len(self.subgroups)

    def grid(self) -> Grid:
        """The named array of devices that this sharding speaks of: its tiles in prime parts, put in device order."""
        return self._parts()[0]

    def tile_parts(self) -> list[list[int]]:
        """Which axes of `grid` make up each tile dimension, major first."""
        return self._parts()[1]

    def _parts(self) -> tuple[Grid, list[list[int]]]:
        for sizes in _splits(self.tiles):
            flat = [size for parts in sizes for size in parts]
            steps = _steps(np.array(self.devices).reshape(flat))
            if steps is None:
                continue
            order = sorted(range(len(flat)), key=lambda index: -steps[index])
            if [steps[index] for index in order] != [
                prod(flat[i] for i in order[at + 1 :]) for at in range(len(order))
            ]:
                continue
            axes = tuple((f"axis_{at}", flat[index]) for at, index in enumerate(order))
            place = {index: at for at, index in enumerate(order)}
            numbers = iter(range(len(flat)))
            return Grid(axes, tuple(range(prod(flat)))), [[place[next(numbers)] for _ in parts] for parts in sizes]
        axes = tuple((f"axis_{index}", size) for index, size in enumerate(self.tiles))
        return Grid(axes, self.devices), [[index] for index in range(len(self.tiles))]


def _splits(tiles: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Every way to write the tile counts as products of primes, the order of the primes counting."""
    if not tiles:
        yield []
        return
    for rest in _splits(tiles[1:]):
        for first in sorted(set(permutations(primes(tiles[0])))):
            yield [first, *rest]


def _steps(devices: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[int] | None:
    """The step in device ids along each dimension; None when the ids are not linear in the coordinates."""
    steps = []
    for axis in range(devices.ndim):
        index = [0] * devices.ndim
        index[axis] = 1
        steps.append(int(devices[tuple(index)] - devices.flat[0]))
    indices = np.indices(devices.shape)
    linear = sum((indices[axis] * step for axis, step in enumerate(steps)), np.zeros(devices.shape, np.int64))
    return steps if np.array_equal(linear, devices) else None


_NUMBERS = r"\[([\d,\s]*)\]"
_TILED = re.compile(rf"devices={_NUMBERS}(?:<={_NUMBERS}(?:T\(([\d,\s]*)\))?|([\d,\s]+))")


def parse_sharding(text: str) -> tuple[TileSharding, ...]:
    """The shardings of a string: one, or those of a tuple. MeshError for text that is none."""
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise MeshError(f"not a sharding: {text!r}")
    body = body[1:-1].strip()
    if body.startswith("{"):
        return tuple(_parse_one(part, text) for part in _split(body))
    return (_parse_one("{" + body + "}", text),)


def _split(body: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, character in enumerate(body):
        if character == "{":
            if depth == 0:
                start = index
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                parts.append(body[start : index + 1])
    return parts


def _parse_one(text: str, whole: str) -> TileSharding:
    body = re.sub(r"metadata=\{.*\}", "", text.strip()[1:-1]).strip()
    is_open = "shard_as" in body or "shard_like" in body
    for kind in ("replicated", "manual", "unknown"):
        if body == kind or body.startswith(kind + " ") or body.startswith(kind + ","):
            return TileSharding(kind, is_open=is_open or kind == "unknown")
    if body.startswith("maximal"):
        found = re.search(r"device=(\d+)", body)
        return TileSharding("maximal", device=int(found.group(1)) if found else 0)
    found = _TILED.search(body)
    if found is None:
        raise MeshError(f"not a sharding: {whole!r}")
    tiles = _integers(found.group(1))
    if found.group(4) is not None:
        devices = _integers(found.group(4))
    else:
        sizes = _integers(found.group(2))
        order = _integers(found.group(3)) if found.group(3) is not None else tuple(range(len(sizes)))
        if sorted(order) != list(range(len(sizes))):
            raise MeshError(f"T{order} does not order {len(sizes)} dimensions: {whole!r}")
        devices = tuple(np.arange(prod(sizes)).reshape(sizes).transpose(order).ravel().tolist())
    if len(devices) != prod(tiles):
        raise MeshError(f"{prod(tiles)} tiles for {len(devices)} devices: {whole!r}")
    return TileSharding("tiled", tiles, _subgroups(body), devices, is_open=is_open)


def _subgroups(body: str) -> tuple[str, ...]:
    if "last_tile_dim_replicate" in body:
        return ("replicated",)
    found = re.search(r"last_tile_dims=\{([^}]*)\}", body)
    return tuple(part.strip() for part in found.group(1).split(",")) if found else ()


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def merged_grid(shardings: list[TileSharding], devices: int) -> list[Grid]:
    """The grids that all tiled `shardings` speak of; a line of `devices` when there is none."""
    grids = list(dict.fromkeys(s.grid() for s in shardings if s.kind == "tiled"))
    return grids or [Grid((("devices", devices),), tuple(range(devices)))]


def tile_axes(sharding: TileSharding, axes: list[Axes]) -> tuple[tuple[Axes, ...], frozenset[int]]:
    """The atoms of each dimension, and the manual ones, given the atoms of each axis of its `grid`."""
    tiles = [tuple(atom for part in parts for atom in axes[part]) for parts in sharding.tile_parts()]
    manual: frozenset[int] = frozenset()
    for kind, atoms in zip(sharding.subgroups, tiles[sharding.rank :], strict=True):
        if kind == "manual":
            manual |= frozenset(atoms)
    return tuple(tiles[: sharding.rank]), manual
