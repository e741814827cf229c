"""GSPMD's sharding strings: `mhlo.sharding` attributes and the custom calls that carry them.

Both editions: iota tiles `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`, transposed ones `<=[2,4]T(1,0)`, explicit
device lists, `{replicated}`, `{maximal device=0}`, `{manual}`, `{unknown}`, `last_tile_dims={replicated, manual}`,
tuples, and what may follow (metadata, shard_as, shard_like). Source: XLA's HloSharding text form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

import numpy as np

from partitioner.mesh import Axes, Grid, MeshError


@dataclass(frozen=True)
class TileSharding:
    """One string, read. `kind`: tiled, replicated, maximal, manual or unknown.

    Tiled: `tiles` counts the blocks of each dimension, then one entry for each of `subgroups` (replicated, manual);
    `devices` in row-major order of the tiles. `axes` is the factored form of an iota: its sizes and their order.
    """

    kind: str
    tiles: tuple[int, ...] = ()
    subgroups: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    iota: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    device: int = 0
    is_open: bool = False

    @property
    def rank(self) -> int:
        return len(self.tiles) - len(self.subgroups)

    def grid(self) -> Grid:
        """The named array of devices this sharding speaks of: the factors of its iota, else its own tiles."""
        if self.iota is not None:
            sizes, _ = self.iota
            return Grid(tuple((f"axis_{i}", size) for i, size in enumerate(sizes)), tuple(range(prod(sizes))))
        return Grid(tuple((f"axis_{i}", size) for i, size in enumerate(self.tiles)), self.devices)

    def tile_grid(self) -> Grid:
        return Grid(tuple((f"tile_{i}", size) for i, size in enumerate(self.tiles)), self.devices)


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
    iota = None
    if found.group(4) is not None:
        devices = _integers(found.group(4))
    else:
        sizes = _integers(found.group(2))
        order = _integers(found.group(3)) if found.group(3) is not None else tuple(range(len(sizes)))
        if sorted(order) != list(range(len(sizes))):
            raise MeshError(f"T{order} does not order {len(sizes)} dimensions: {whole!r}")
        iota = (sizes, order)
        devices = tuple(np.arange(prod(sizes)).reshape(sizes).transpose(order).ravel().tolist())
    if len(devices) != prod(tiles):
        raise MeshError(f"{prod(tiles)} tiles for {len(devices)} devices: {whole!r}")
    return TileSharding("tiled", tiles, _subgroups(body), devices, iota, is_open=is_open)


def _subgroups(body: str) -> tuple[str, ...]:
    if "last_tile_dim_replicate" in body:
        return ("replicated",)
    found = re.search(r"last_tile_dims=\{([^}]*)\}", body)
    return tuple(part.strip() for part in found.group(1).split(",")) if found else ()


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def merged_grid(shardings: list[TileSharding], devices: int) -> list[Grid]:
    """The grids that all tiled `shardings` speak of; a line of `devices` when there is none."""
    grids = list(dict.fromkeys(grid for s in shardings if s.kind == "tiled" for grid in (s.grid(), s.tile_grid())))
    return grids or [Grid((("devices", devices),), tuple(range(devices)))]


def tile_axes(sharding: TileSharding, axes: list[Axes]) -> tuple[tuple[Axes, ...], frozenset[int]]:
    """The atoms of each dimension, and the manual ones, given the atoms of each axis of its `tile_grid`."""
    manual: frozenset[int] = frozenset()
    for kind, atoms in zip(sharding.subgroups, axes[sharding.rank :], strict=True):
        if kind == "manual":
            manual |= frozenset(atoms)
    return tuple(axes[: sharding.rank]), manual
