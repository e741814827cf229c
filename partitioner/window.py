"""Windows on a sharded dimension: each process fetches the elements that it needs from other processes.

What a slice, a pad, a reverse, a concatenation, a convolution or a reduce_window needs of a cut dimension is, for each
block, runs of elements that land at given places. They come from the blocks that hold them in rounds of
collective_permute, in each of which a block sends to at most one and receives from at most one, or, when that is
less, by gathering the dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from partitioner.emit import Emitter
from partitioner.mesh import Axes, DeviceMesh
from partitioner.prices import prices
from partitioner.sharding import Sharding
from spmd.ir import Value

#: (place in the window, place in the whole dimension, length)
Run = tuple[int, int, int]


@dataclass(frozen=True)
class HaloWindow:
    """What block i gets of a dimension of `size` cut in `blocks`: `runs[i]`, in a window of `width` elements."""

    size: int
    blocks: int
    width: int
    runs: tuple[tuple[Run, ...], ...]

    @property
    def block(self) -> int:
        return -(-self.size // self.blocks)

    @property
    def is_straight(self) -> bool:
        """Whether every block has one run at most: then places in the window and in the whole differ by a constant."""
        return all(len(runs) <= 1 for runs in self.runs)

    @property
    def is_full(self) -> bool:
        """Whether the runs fill every window."""
        return all(sum(length for _, _, length in runs) == self.width for runs in self.runs)


def straight(
    size: int, blocks: int, starts: Sequence[int], width: int, low: int = 0, high: int | None = None
) -> HaloWindow:
    """Block i gets elements [starts[i], starts[i] + width), those of them that lie in [low, high)."""
    last = size if high is None else min(size, high)
    runs = []
    for start in starts:
        first, end = max(start, low, 0), min(start + width, last)
        runs.append(((first - start, first, end - first),) if end > first else ())
    return HaloWindow(size, blocks, width, tuple(runs))


@dataclass(frozen=True, slots=True)
class HaloTransfer:
    """Elements [start, start + length) of block `sender` land at `place` of block `receiver`'s window."""

    sender: int
    receiver: int
    start: int
    length: int
    place: int


#: Transfers that are carried out together: a block sends at most one of them, and receives at most one.
Round = tuple[HaloTransfer, ...]


@lru_cache(maxsize=1 << 6)
def rounds(window: HaloWindow) -> tuple[tuple[Round, ...], tuple[Round, ...]]:
    """Return the transfers of a window in rounds: those within a block, and those between blocks."""
    local: list[HaloTransfer] = []
    moving: list[HaloTransfer] = []
    block = window.block
    for receiver, runs in enumerate(window.runs):
        for place, source, length in runs:
            while length > 0:
                sender = source // block
                part = min(length, (sender + 1) * block - source)
                halo = HaloTransfer(sender, receiver, source - sender * block, part, place)
                (local if sender == receiver else moving).append(halo)
                source, place, length = source + part, place + part, length - part
    return _dealt(local, window.blocks), _dealt(moving, window.blocks)


def _dealt(transfers: list[HaloTransfer], blocks: int) -> tuple[Round, ...]:
    """Return rounds in which a block sends at most one transfer and receives at most one, the longest first."""
    dealt: list[list[HaloTransfer]] = []
    # The rounds in which a block sends, and those in which it receives, as bits.
    sends, receives = [0] * blocks, [0] * blocks
    for transfer in sorted(transfers, key=lambda t: (-t.length, t.receiver - t.sender)):
        busy = sends[transfer.sender] | receives[transfer.receiver]
        first = ~busy & (busy + 1)
        sends[transfer.sender] |= first
        receives[transfer.receiver] |= first
        number = first.bit_length() - 1
        if number == len(dealt):
            dealt.append([])
        dealt[number].append(transfer)
    return tuple(map(tuple, dealt))


def _by_rounds(window: HaloWindow) -> int:
    return sum(max(transfer.length for transfer in round) for round in rounds(window)[1])


def _by_gather(window: HaloWindow) -> int:
    return window.block * (window.blocks - 1)


def price(window: HaloWindow, row_bytes: int) -> float:
    """Bytes that a process sends, and a little for each message; `row_bytes` is one element along the dimension."""
    apart, gathered = _by_rounds(window), _by_gather(window)
    if gathered < apart:
        return float(gathered * row_bytes + prices().latency)
    return float(apart * row_bytes + prices().latency * len(rounds(window)[1]))


def halo_exchange(
    emitter: Emitter, local: Value, dimension: int, axes: Axes, window: HaloWindow, fill: Value | None = None
) -> Value:
    """Return the window of this process's block. What no run fills is `fill`, a scalar; anything if None."""
    if _by_gather(window) < _by_rounds(window):
        whole = emitter.slice(emitter.all_gather(local, dimension, axes), dimension, 0, window.size)
        return own(emitter, whole, dimension, axes, window, fill)
    exchanged = _exchanged(emitter, local, dimension, axes, window)
    return _filled(emitter, exchanged, dimension, axes, window, fill)


def own(
    emitter: Emitter, whole: Value, dimension: int, axes: Axes, window: HaloWindow, fill: Value | None = None
) -> Value:
    """Return the window of a dimension that every process holds whole."""
    margin = window.width
    padded = emitter.pad(whole, dimension, margin, margin)
    value: Value | None = None
    for index in range(max(1, max(len(runs) for runs in window.runs))):
        runs = [runs[index] if index < len(runs) else (0, 0, 0) for runs in window.runs]
        starts = [source - place + margin for place, source, _ in runs]
        start = emitter.per_device_constant(by_device(emitter.mesh, axes, starts))
        part = emitter.dynamic_slice(padded, dimension, start, window.width)
        value = part if value is None else _laid_over(emitter, value, part, dimension, axes, runs)
    assert value is not None
    return _filled(emitter, value, dimension, axes, window, fill)


def _laid_over(emitter: Emitter, under: Value, over: Value, dimension: int, axes: Axes, runs: Sequence[Run]) -> Value:
    """`over` where each block's run lies, `under` elsewhere."""
    inside = _covered(emitter, under, dimension, axes, [(place, place + length) for place, _, length in runs])
    return emitter.select(inside, over, under)


def _covered(emitter: Emitter, like: Value, dimension: int, axes: Axes, spans: Sequence[tuple[int, int]]) -> Value:
    """Return whether each element lies in its block's span."""
    shape = like.tensor.static_shape
    place = emitter.iota(shape, dimension)
    low = emitter.per_device_constant(by_device(emitter.mesh, axes, [span[0] for span in spans]))
    high = emitter.per_device_constant(by_device(emitter.mesh, axes, [span[1] for span in spans]))
    above = emitter.compare(place, emitter.broadcast(low, shape), "GE")
    below = emitter.compare(place, emitter.broadcast(high, shape), "LT")
    return emitter.binary("and", above, below)


def covered(emitter: Emitter, like: Value, dimension: int, axes: Axes, window: HaloWindow) -> Value:
    """Return whether each element of a window is filled by a run: an i1 tensor of the window's shape."""
    value: Value | None = None
    for index in range(max(1, max(len(runs) for runs in window.runs))):
        runs = [runs[index] if index < len(runs) else (0, 0, 0) for runs in window.runs]
        part = _covered(emitter, like, dimension, axes, [(place, place + length) for place, _, length in runs])
        value = part if value is None else emitter.binary("or", value, part)
    assert value is not None
    return value


def _filled(
    emitter: Emitter, exchanged: Value, dimension: int, axes: Axes, window: HaloWindow, fill: Value | None
) -> Value:
    if fill is None or window.is_full:
        return exchanged
    inside = covered(emitter, exchanged, dimension, axes, window)
    return emitter.select(inside, exchanged, emitter.broadcast(fill, exchanged.tensor.shape))


def by_device(mesh: DeviceMesh, axes: Axes, entries: Sequence[int]) -> list[int]:
    """Entries by block as entries by device."""
    return [entries[block] for block in mesh.block_index(axes)]


@dataclass(frozen=True)
class _Slab:
    """A piece that every process has, at its own place: `places` by block; only `spans` of it is of use."""

    value: Value
    places: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


def _exchanged(emitter: Emitter, local: Value, dimension: int, axes: Axes, window: HaloWindow) -> Value:
    stays, moves = rounds(window)
    slabs = []
    for group, travels in [*((group, False) for group in stays), *((group, True) for group in moves)]:
        slabs.append(_slab(emitter, local, dimension, axes, window, group, travels))
    shape = list(local.tensor.static_shape)
    shape[dimension] = window.width
    whole = local.tensor.with_shape(tuple(shape))
    if not slabs:
        return emitter.splat(0, whole)
    joined = _joined(emitter, dimension, window, slabs)
    return joined if joined is not None else _overlaid(emitter, dimension, axes, window, slabs, whole.shape)  # type: ignore[arg-type]


def _slab(
    emitter: Emitter,
    local: Value,
    dimension: int,
    axes: Axes,
    window: HaloWindow,
    group: Sequence[HaloTransfer],
    travels: bool,
) -> _Slab:
    width = max(transfer.length for transfer in group)
    block = local.tensor.static_shape[dimension]
    starts, nowhere = [-1] * window.blocks, window.width
    places: list[int] = [nowhere] * window.blocks
    spans = [(0, 0)] * window.blocks
    for transfer in group:
        start = min(transfer.start, block - width)
        starts[transfer.sender] = start
        places[transfer.receiver] = transfer.place - (transfer.start - start)
        spans[transfer.receiver] = (transfer.place, transfer.place + transfer.length)
    known = {start for start in starts if start >= 0}
    if len(known) == 1:
        (start,) = known
        value = emitter.slice(local, dimension, start, start + width)
    else:
        table = by_device(emitter.mesh, axes, [max(start, 0) for start in starts])
        value = emitter.dynamic_slice(local, dimension, emitter.per_device_constant(table), width)
    if travels:
        pairs = [
            (int(devices[transfer.sender]), int(devices[transfer.receiver]))
            for devices in emitter.mesh.groups(axes)
            for transfer in group
        ]
        value = emitter.permute(value, pairs)
    return _Slab(value, tuple(places), tuple(spans))


def _joined(emitter: Emitter, dimension: int, window: HaloWindow, slabs: list[_Slab]) -> Value | None:
    """Slabs at the same offsets on every process that needs them; None if the offsets differ."""
    if not window.is_straight:
        return None
    placed: list[tuple[int, Value]] = []
    for slab in slabs:
        known = {place for place in slab.places if place != window.width}
        if len(known) != 1:
            return None
        placed.append((known.pop(), slab.value))
    parts: list[Value] = []
    at = 0
    for place, value in sorted(placed, key=lambda entry: entry[0]):
        first, last = max(0, -place), min(value.tensor.static_shape[dimension], window.width - place)
        if last <= first:
            continue
        if place + first < at:
            return None
        if place + first > at:
            parts.append(_zeros(emitter, value, dimension, place + first - at))
        parts.append(emitter.slice(value, dimension, first, last))
        at = place + last
    if at < window.width:
        parts.append(_zeros(emitter, placed[0][1], dimension, window.width - at))
    return emitter.concatenate(parts, dimension)


def _zeros(emitter: Emitter, like: Value, dimension: int, extent: int) -> Value:
    shape = list(like.tensor.static_shape)
    shape[dimension] = extent
    return emitter.splat(0, like.tensor.with_shape(tuple(shape)))


def _overlaid(
    emitter: Emitter, dimension: int, axes: Axes, window: HaloWindow, slabs: list[_Slab], shape: tuple[int, ...]
) -> Value:
    """Slabs written one over the other, each where its process has it; where it has none, into the margins."""
    margin = max(slab.value.tensor.static_shape[dimension] for slab in slabs)
    wide = list(shape)
    wide[dimension] += 2 * margin
    overlaid = emitter.splat(0, slabs[0].value.tensor.with_shape(tuple(wide)))
    for slab in slabs:
        width = slab.value.tensor.static_shape[dimension]
        places = [min(max(place + margin, 0), window.width + 2 * margin - width) for place in slab.places]
        under = overlaid
        overlaid = emitter.dynamic_update(
            under, slab.value, dimension, emitter.per_device_constant(by_device(emitter.mesh, axes, places))
        )
        if not window.is_straight:
            # Elements outside the run belong to another run and must not be overwritten.
            spans = [(low + margin, high + margin) for low, high in slab.spans]
            overlaid = emitter.select(_covered(emitter, overlaid, dimension, axes, spans), overlaid, under)
    return emitter.slice(overlaid, dimension, margin, margin + window.width)


# --- places ----------------------------------------------------------------------------------------------------------


def positions(emitter: Emitter, like: Value, dimension: int, start: Value) -> Value:
    """Return the global position of each element of a block along one dimension, of the block's shape."""
    shape = like.tensor.static_shape
    iota = emitter.iota(shape, dimension)
    return emitter.binary("add", iota, emitter.broadcast(start, shape))


def within(emitter: Emitter, position: Value, low: int, high: int) -> Value:
    """Return whether each place is in [low, high)."""
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
    position = positions(emitter, local, dimension, emitter.per_device_constant(starts))
    limit = emitter.broadcast(emitter.index(size), position.tensor.shape)
    inside = emitter.compare(position, limit, "LT")
    return emitter.select(inside, local, emitter.broadcast(fill, local.tensor.shape))


def row_bytes(value: Value, layout: Sharding, dimension: int) -> int:
    """Bytes of one element along `dimension` of a block of `value`."""
    shape = layout.local_shape(value.tensor.static_shape)
    return value.tensor.dtype.itemsize * prod(size for index, size in enumerate(shape) if index != dimension)
