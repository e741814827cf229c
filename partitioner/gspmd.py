"""Parses GSPMD's sharding strings, of `mhlo.sharding` attributes and of custom calls.

Both versions: iota tiles `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`, transposed ones `<=[2,4]T(1,0)`, explicit
device lists, `{replicated}`, `{maximal device=0}`, `{manual}`, `{unknown}`, `last_tile_dims={replicated, manual}`,
tuples, and suffixes (metadata, shard_as, shard_like). Source: XLA's HloSharding text form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

import numpy as np

from partitioner.mesh import MOST_DEVICES, Axes, Grid, MeshError


@dataclass(frozen=True)
class TileSharding:
    """A parsed sharding. `kind`: tiled, replicated, maximal, manual or unknown.

    If tiled, `tiles` holds the number of blocks of each dimension, then the size of each of `subgroups` (replicated,
    manual). `steps` holds (size, step) of each factor of the device array, in row-major order of the tiles, if device
    ids are sums of steps; otherwise `devices` holds the ids.
    """

    kind: str
    tiles: tuple[int, ...] = ()
    subgroups: tuple[str, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
    devices: tuple[int, ...] = ()
    device: int = 0
    is_open: bool = False

    @property
    def rank(self) -> int:
        """The rank of the tensors that it applies to."""
        return len(self.tiles) - len(self.subgroups)

    @cached_property
    def _parts(self) -> tuple[Grid, list[list[int]]]:
        split = None if self.devices else _split_tiles(self.tiles, self.steps)
        if split is None:
            axes = tuple((f"axis_{index}", size) for index, size in enumerate(self.tiles))
            return Grid(axes, self.devices or _listed(self.steps)), [[index] for index in range(len(self.tiles))]
        flat = [part for parts in split for part in parts]
        order = sorted(range(len(flat)), key=lambda index: -flat[index][1])
        place = {index: at for at, index in enumerate(order)}
        axes = tuple((f"axis_{at}", flat[index][0]) for at, index in enumerate(order))
        numbers = iter(range(len(flat)))
        return Grid(axes), [[place[next(numbers)] for _ in parts] for parts in split]

    def grid(self) -> Grid:
        """Return the mesh of this sharding: the factors of its tiles as named axes, in device order."""
        return self._parts[0]

    def tile_parts(self) -> list[list[int]]:
        """Return, for each tile dimension, the indices of its axes in `grid`, major first."""
        return self._parts[1]


def _split_tiles(tiles: tuple[int, ...], steps: tuple[tuple[int, int], ...]) -> list[list[tuple[int, int]]] | None:
    """Return the (size, step) factors of each tile dimension; None if a tile boundary does not divide a factor."""
    left = [entry for entry in reversed(steps) if entry[0] > 1]  # the major factor last
    pieces_of_tiles: list[list[tuple[int, int]]] = []
    for tile in tiles:
        parts: list[tuple[int, int]] = []
        while tile > 1:
            size, step = left.pop()
            common = gcd(size, tile)
            if common == 1 or (common < size and common < tile):
                return None
            parts.append((common, step * (size // common)))
            tile //= common
            if common < size:
                left.append((size // common, step))
        pieces_of_tiles.append(parts)
    return pieces_of_tiles


def _listed(steps: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Return the device ids given by `steps`, in row-major order."""
    ids = np.zeros(1, np.int64)
    for size, step in steps:
        ids = (ids[:, None] + np.arange(size) * step).ravel()
    return tuple(ids.tolist())


def _steps(devices: tuple[int, ...]) -> tuple[tuple[int, int], ...] | None:
    """Return the shortest list of (size, step) that gives the device ids; None if there is none."""
    sizes_and_steps: list[tuple[int, int]] = []
    span, count = 1, len(devices)
    if devices[:1] != (0,):
        return None
    while span < count:
        step = devices[span]
        size = 2
        while (size + 1) * span <= count and devices[size * span] == size * step:
            size += 1
        while count % (size * span):
            size -= 1
        if size < 2:
            return None
        sizes_and_steps.append((size, step))
        span *= size
    steps = tuple(reversed(sizes_and_steps))
    return steps if _listed(steps) == devices else None


_NUMBERS = r"\[([\d,\s]*)\]"
_MOST_DIGITS = 18
_TILED = re.compile(rf"devices={_NUMBERS}(?:<={_NUMBERS}(?:T\(([\d,\s]*)\))?|([\d,\s]+))")


def parse_sharding(text: str) -> tuple[TileSharding, ...]:
    """Return the shardings of a string: one, or those of a tuple. Raises MeshError if it cannot be parsed.

    An empty string, the serialized OpSharding of older exporters, is replicated.
    """
    body = text.strip() or "{replicated}"
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
        match = re.search(r"device=(\d{1,18})\b", body)
        return TileSharding("maximal", device=int(match.group(1)) if match else 0)
    match = _TILED.search(body)
    if match is None:
        raise MeshError(f"not a sharding: {whole!r}")
    tiles = _integers(match.group(1), whole)
    if any(tile < 1 for tile in tiles):
        raise MeshError(f"tile sizes must be at least 1: {whole!r}")
    subgroups = _subgroups(body)
    if match.group(4) is not None:
        devices = _integers(match.group(4), whole)
        _check_count(prod(tiles), len(devices), whole)
        if sorted(devices) != list(range(len(devices))):
            raise MeshError(f"devices must be a permutation of 0 to {len(devices) - 1}: {whole!r}")
        steps = _steps(devices)
        if steps is None:
            return TileSharding("tiled", tiles, subgroups, devices=devices, is_open=is_open)
        return TileSharding("tiled", tiles, subgroups, steps, is_open=is_open)
    sizes = _integers(match.group(2), whole)
    order = _integers(match.group(3), whole) if match.group(3) is not None else tuple(range(len(sizes)))
    if sorted(order) != list(range(len(sizes))):
        raise MeshError(f"T{order} must be a permutation of {len(sizes)} dimensions: {whole!r}")
    _check_count(prod(tiles), prod(sizes), whole)
    steps = tuple((sizes[axis], prod(sizes[axis + 1 :])) for axis in order)
    return TileSharding("tiled", tiles, subgroups, _merged(steps), is_open=is_open)


def _merged(steps: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return `steps` with adjacent ones merged where they form a single step."""
    merged: list[tuple[int, int]] = []
    for size, step in steps:
        if merged and merged[-1][1] == size * step:
            size *= merged.pop()[0]
        merged.append((size, step))
    return tuple(merged)


def _check_count(tiles: int, devices: int, whole: str) -> None:
    if tiles != devices:
        raise MeshError(f"the number of tiles and of devices must be equal, got {tiles} and {devices}: {whole!r}")
    if devices > MOST_DEVICES:
        raise MeshError(f"there must be at most {MOST_DEVICES:,} devices, got {devices:,}: {whole!r}")


def _subgroups(body: str) -> tuple[str, ...]:
    if "last_tile_dim_replicate" in body:
        return ("replicated",)
    match = re.search(r"last_tile_dims=\{([^}]*)\}", body)
    return tuple(part.strip() for part in match.group(1).split(",")) if match else ()


def _integers(text: str, whole: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if any(len(part) > _MOST_DIGITS for part in parts):
        raise MeshError(f"numbers must have at most {_MOST_DIGITS} digits: {whole!r}")
    return tuple(map(int, parts))


def merged_grid(shardings: list[TileSharding], devices: int) -> list[Grid]:
    """Return the meshes of the tiled ones among `shardings`; one axis of `devices` if there are none."""
    grids = list(dict.fromkeys(s.grid() for s in shardings if s.kind == "tiled"))
    return grids or [Grid((("devices", devices),))]


def tile_axes(sharding: TileSharding, axes: list[Axes]) -> tuple[tuple[Axes, ...], frozenset[int]]:
    """Return the sub-axes of each dimension and the manual sub-axes, given the sub-axes of each axis of its `grid`."""
    tiles = [tuple(sub_axis for part in parts for sub_axis in axes[part]) for parts in sharding.tile_parts()]
    manual: frozenset[int] = frozenset()
    for kind, sub_axes in zip(sharding.subgroups, tiles[sharding.rank :], strict=True):
        if kind == "manual":
            manual |= frozenset(sub_axes)
    return tuple(tiles[: sharding.rank]), manual
