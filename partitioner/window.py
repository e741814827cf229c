"""Windows on a cut dimension: each process gets the elements it needs that lie on its neighbours.

What a slice, a pad, a reverse, a concatenation, a convolution or a reduce_window needs of a cut dimension is, for block
i, the elements [start(i), start(i) + width). They come from the blocks that hold them by one collective_permute for
each distance between blocks, each as wide as needed, or, when that is less, by gathering the dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from partitioner.emit import Emitter
from partitioner.mesh import Axes, DeviceMesh
from partitioner.reshard import LATENCY
from spmd.ir import Value


@dataclass(frozen=True)
class Piece:
    """Elements [start, stop) of the block `distance` blocks on, for `receivers`; `places`: where they begin, by block."""

    distance: int
    start: int
    stop: int
    receivers: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """What block i of a dimension gets: `width` elements from `starts[i]` on, of those in [low, high)."""

    size: int
    blocks: int
    starts: tuple[int, ...]
    width: int
    low: int
    high: int

    @property
    def block(self) -> int:
        return -(-self.size // self.blocks)


@lru_cache(maxsize=1 << 14)
def pieces(window: Window) -> tuple[Piece, ...]:
    """The pieces that a window is made of."""
    block, found = window.block, []
    by_distance: dict[int, list[tuple[int, int, int]]] = {}
    for index, start in enumerate(window.starts):
        low, high = max(start, window.low, 0), min(start + window.width, window.high, window.size)
        for owner in range(low // block, -(-high // block) if high > low else low // block):
            first, last = max(low, owner * block), min(high, (owner + 1) * block)
            if last > first:
                by_distance.setdefault(owner - index, []).append((index, first - owner * block, last - owner * block))
    for distance, parts in sorted(by_distance.items()):
        first, last = min(part[1] for part in parts), max(part[2] for part in parts)
        places = tuple(
            (index + distance) * block + first - start for index, start in enumerate(window.starts)
        )
        found.append(Piece(distance, first, last, tuple(part[0] for part in parts), places))
    return tuple(found)


def sent(window: Window) -> int:
    """Elements along the dimension that a process sends at most, by the cheaper way."""
    return min(_by_pieces(window), _by_gather(window))


def messages(window: Window) -> int:
    """How many collectives it takes."""
    if _by_gather(window) < _by_pieces(window):
        return 1
    return sum(piece.distance != 0 for piece in pieces(window))


def price(window: Window, row_bytes: int) -> float:
    """Bytes sent and a little for each message; `row_bytes` is one element along the dimension."""
    return float(sent(window) * row_bytes + messages(window) * LATENCY)


def _by_pieces(window: Window) -> int:
    return sum(piece.stop - piece.start for piece in pieces(window) if piece.distance)


def _by_gather(window: Window) -> int:
    return window.block * (window.blocks - 1)


def row_bytes(local: Value, dimension: int) -> int:
    shape = local.tensor.static_shape
    return local.tensor.dtype.itemsize * prod(size for index, size in enumerate(shape) if index != dimension)


def take(
    emitter: Emitter, local: Value, dimension: int, axes: Axes, window: Window, fill: Value | None = None
) -> Value:
    """The window of this process's block. Elements outside of [low, high) are `fill`, a scalar; anything if None."""
    if _by_gather(window) < _by_pieces(window):
        made = _gathered(emitter, local, dimension, axes, window)
    else:
        made = _exchanged(emitter, local, dimension, axes, window)
    return made if fill is None else _filled(emitter, made, dimension, axes, window, fill)


def own(emitter: Emitter, whole: Value, dimension: int, axes: Axes, window: Window, fill: Value | None) -> Value:
    """The window of a dimension that every process holds whole."""
    made = _cut(emitter, whole, dimension, axes, window)
    return made if fill is None else _filled(emitter, made, dimension, axes, window, fill)


def _gathered(emitter: Emitter, local: Value, dimension: int, axes: Axes, window: Window) -> Value:
    whole = emitter.slice(emitter.all_gather(local, dimension, axes), dimension, 0, window.size)
    return _cut(emitter, whole, dimension, axes, window)


def _cut(emitter: Emitter, whole: Value, dimension: int, axes: Axes, window: Window) -> Value:
    before = max(0, -min(window.starts))
    after = max(0, max(window.starts) + window.width - window.size)
    padded = emitter.pad(whole, dimension, before, after)
    start = emitter.table(np.array(by_device(emitter.mesh, axes, window.starts)) + before)
    return emitter.dynamic_slice(padded, dimension, start, window.width)


def by_device(mesh: DeviceMesh, axes: Axes, entries: Sequence[int]) -> list[int]:
    """Entries by block as entries by device."""
    return [entries[block] for block in mesh.block_index(axes)]


def shifted(emitter: Emitter, local: Value, axes: Axes, receivers: Sequence[int], distance: int) -> Value:
    """What the block `distance` blocks on holds, at `receivers`; zeros elsewhere."""
    pairs = [
        (int(group[block + distance]), int(group[block])) for group in emitter.mesh.groups(axes) for block in receivers
    ]
    return emitter.permute(local, pairs)


def _exchanged(emitter: Emitter, local: Value, dimension: int, axes: Axes, window: Window) -> Value:
    parts = []
    for piece in pieces(window):
        slab = emitter.slice(local, dimension, piece.start, piece.stop)
        if piece.distance:
            slab = shifted(emitter, slab, axes, piece.receivers, piece.distance)
        parts.append((piece, slab))
    shape = list(local.tensor.static_shape)
    shape[dimension] = window.width
    whole = local.tensor.with_shape(tuple(shape))
    if not parts:
        return emitter.splat(0, whole)
    if all(len(set(piece.places)) == 1 for piece, _ in parts):
        return _joined(emitter, dimension, window, [(piece.places[0], slab) for piece, slab in parts])
    margin = max(slab.tensor.static_shape[dimension] for _, slab in parts)
    shape[dimension] += 2 * margin
    made = emitter.splat(0, whole.with_shape(tuple(shape)))
    for piece, slab in parts:
        # A slab that this process has no use for lands where nothing of use is: in the margins, or out of range.
        places = np.array(by_device(emitter.mesh, axes, piece.places)) + margin
        places = np.clip(places, 0, window.width + 2 * margin - (piece.stop - piece.start))
        made = emitter.dynamic_update(made, slab, dimension, emitter.table(places))
    return emitter.slice(made, dimension, margin, margin + window.width)


def _joined(emitter: Emitter, dimension: int, window: Window, parts: list[tuple[int, Value]]) -> Value:
    """Slabs that lie in the same places on every process, with zeros in the gaps."""
    pieces_in_order: list[Value] = []
    at = 0
    for place, slab in sorted(parts, key=lambda part: part[0]):
        extent = slab.tensor.static_shape[dimension]
        first, last = max(0, -place), min(extent, window.width - place)
        if last <= first:
            continue
        if place + first > at:
            pieces_in_order.append(_zeros(emitter, slab, dimension, place + first - at))
        pieces_in_order.append(emitter.slice(slab, dimension, first, last))
        at = place + last
    if at < window.width:
        pieces_in_order.append(_zeros(emitter, parts[0][1], dimension, window.width - at))
    return emitter.concatenate(pieces_in_order, dimension)


def _zeros(emitter: Emitter, like: Value, dimension: int, extent: int) -> Value:
    shape = list(like.tensor.static_shape)
    shape[dimension] = extent
    return emitter.splat(0, like.tensor.with_shape(tuple(shape)))


def _filled(emitter: Emitter, made: Value, dimension: int, axes: Axes, window: Window, fill: Value) -> Value:
    starts = np.array(window.starts)
    low, high = max(0, window.low), min(window.size, window.high)
    if starts.min() >= low and starts.max() + window.width <= high:
        return made
    position = positions(emitter, made, dimension, emitter.table(by_device(emitter.mesh, axes, window.starts)))
    inside = within(emitter, position, low, high)
    return emitter.select(inside, made, emitter.broadcast(fill, made.tensor.shape))


def positions(emitter: Emitter, like: Value, dimension: int, start: Value) -> Value:
    """The global place of each element of a block along one dimension: i32, of the block's shape."""
    shape = like.tensor.static_shape
    iota = emitter.iota(shape, dimension)
    return emitter.binary("add", iota, emitter.broadcast(start, shape))


def within(emitter: Emitter, position: Value, low: int, high: int) -> Value:
    """Whether each place is in [low, high)."""
    shape = position.tensor.shape
    above = emitter.compare(position, emitter.broadcast(emitter.index(low), shape), "GE")
    below = emitter.compare(position, emitter.broadcast(emitter.index(high), shape), "LT")
    return emitter.binary("and", above, below)


def mask_padding(emitter: Emitter, local: Value, dimension: int, axes: Axes, size: int, fill: Value) -> Value:
    """`local` with the padding of a dimension of `size` set to `fill`; as it is where there is none."""
    blocks = emitter.mesh.count(axes)
    block = local.tensor.static_shape[dimension]
    if block * blocks == size:
        return local
    starts = emitter.mesh.block_index(axes) * block
    position = positions(emitter, local, dimension, emitter.table(starts))
    limit = emitter.broadcast(emitter.index(size), position.tensor.shape)
    inside = emitter.compare(position, limit, "LT")
    return emitter.select(inside, local, emitter.broadcast(fill, local.tensor.shape))
