"""Halo exchange: windows on a sharded dimension, whose elements are fetched from other processes.

What a slice, pad, reverse, concatenation, convolution or reduce_window needs of a sharded dimension is, per block, a
list of runs of elements at given offsets. They are fetched in rounds of collective_permute, in each of which a block
sends and receives at most once, or by an all_gather of the dimension if that is cheaper.
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

#: (offset in the window, index in the global dimension, length)
Run = tuple[int, int, int]


@dataclass(frozen=True)
class HaloWindow:
    """What each block needs of a dimension of `size` in `blocks`: block i gets `runs[i]` in a window of `width`."""

    size: int
    blocks: int
    width: int
    runs: tuple[tuple[Run, ...], ...]

    @property
    def block(self) -> int:
        """The size of a block."""
        return -(-self.size // self.blocks)

    @property
    def is_contiguous(self) -> bool:
        """Whether every block has at most one run, so that window offset and global index differ by a constant."""
        return all(len(runs) <= 1 for runs in self.runs)

    @property
    def is_full(self) -> bool:
        """Whether the runs cover every window."""
        return all(sum(length for _, _, length in runs) == self.width for runs in self.runs)


def contiguous_window(
    size: int, blocks: int, starts: Sequence[int], width: int, low: int = 0, high: int | None = None
) -> HaloWindow:
    """Return the window in which block i gets elements [starts[i], starts[i] + width) clipped to [low, high)."""
    last = size if high is None else min(size, high)
    runs = []
    for start in starts:
        first, end = max(start, low, 0), min(start + width, last)
        runs.append(((first - start, first, end - first),) if end > first else ())
    return HaloWindow(size, blocks, width, tuple(runs))


@dataclass(frozen=True, slots=True)
class HaloTransfer:
    """Elements [start, start + length) of block `sender`, for offset `offset` of block `receiver`'s window."""

    sender: int
    receiver: int
    start: int
    length: int
    offset: int


#: Transfers of one permute: a block sends at most one of them, and receives at most one.
Round = tuple[HaloTransfer, ...]


@lru_cache(maxsize=1 << 6)
def rounds(window: HaloWindow) -> tuple[tuple[Round, ...], tuple[Round, ...]]:
    """Return the transfers of a window in rounds: those within blocks, and those between blocks."""
    local: list[HaloTransfer] = []
    moving: list[HaloTransfer] = []
    block = window.block
    for receiver, runs in enumerate(window.runs):
        for offset, source, length in runs:
            while length > 0:
                sender = source // block
                part = min(length, (sender + 1) * block - source)
                halo = HaloTransfer(sender, receiver, source - sender * block, part, offset)
                (local if sender == receiver else moving).append(halo)
                source, offset, length = source + part, offset + part, length - part
    return _scheduled(local, window.blocks), _scheduled(moving, window.blocks)


def _scheduled(transfers: list[HaloTransfer], blocks: int) -> tuple[Round, ...]:
    """Return rounds in which a block sends and receives at most one transfer each, the longest transfers first."""
    dealt: list[list[HaloTransfer]] = []
    # Bit sets of the rounds in which a block sends and receives.
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
    """Return the bytes that a process sends, plus latency; `row_bytes` is the size of one element of the dimension."""
    apart, gathered = _by_rounds(window), _by_gather(window)
    if gathered < apart:
        return float(gathered * row_bytes + prices().latency)
    return float(apart * row_bytes + prices().latency * len(rounds(window)[1]))


def halo_exchange(
    emitter: Emitter, local: Value, dimension: int, axes: Axes, window: HaloWindow, fill: Value | None = None
) -> Value:
    """Return the window of this process's block. Elements outside every run are `fill` (undefined if None)."""
    if _by_gather(window) < _by_rounds(window):
        whole = emitter.slice(emitter.all_gather(local, dimension, axes), dimension, 0, window.size)
        return own(emitter, whole, dimension, axes, window, fill)
    exchanged = _exchanged(emitter, local, dimension, axes, window)
    return _filled(emitter, exchanged, dimension, axes, window, fill)


def own(
    emitter: Emitter, whole: Value, dimension: int, axes: Axes, window: HaloWindow, fill: Value | None = None
) -> Value:
    """Return this process's window of a dimension that is replicated."""
    margin = window.width
    padded = emitter.pad(whole, dimension, margin, margin)
    value: Value | None = None
    for index in range(max(1, max(len(runs) for runs in window.runs))):
        runs = [runs[index] if index < len(runs) else (0, 0, 0) for runs in window.runs]
        starts = [source - offset + margin for offset, source, _ in runs]
        start = emitter.per_device_constant(by_device(emitter.mesh, axes, starts))
        part = emitter.dynamic_slice(padded, dimension, start, window.width)
        value = part if value is None else _laid_over(emitter, value, part, dimension, axes, runs)
    assert value is not None
    return _filled(emitter, value, dimension, axes, window, fill)


def _laid_over(emitter: Emitter, under: Value, over: Value, dimension: int, axes: Axes, runs: Sequence[Run]) -> Value:
    """Return `over` inside each block's run, else `under`."""
    inside = _covered(emitter, under, dimension, axes, [(offset, offset + length) for offset, _, length in runs])
    return emitter.select(inside, over, under)


def _covered(emitter: Emitter, like: Value, dimension: int, axes: Axes, spans: Sequence[tuple[int, int]]) -> Value:
    """Return whether each element is in its block's span."""
    shape = like.tensor.static_shape
    offset = emitter.iota(shape, dimension)
    low = emitter.per_device_constant(by_device(emitter.mesh, axes, [span[0] for span in spans]))
    high = emitter.per_device_constant(by_device(emitter.mesh, axes, [span[1] for span in spans]))
    above = emitter.compare(offset, emitter.broadcast(low, shape), "GE")
    below = emitter.compare(offset, emitter.broadcast(high, shape), "LT")
    return emitter.binary("and", above, below)


def covered(emitter: Emitter, like: Value, dimension: int, axes: Axes, window: HaloWindow) -> Value:
    """Return whether each element of a window is in a run: an i1 tensor of the window's shape."""
    value: Value | None = None
    for index in range(max(1, max(len(runs) for runs in window.runs))):
        runs = [runs[index] if index < len(runs) else (0, 0, 0) for runs in window.runs]
        part = _covered(emitter, like, dimension, axes, [(offset, offset + length) for offset, _, length in runs])
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
    """Return entries by device, given entries by block."""
    return [entries[block] for block in mesh.block_index(axes)]


@dataclass(frozen=True)
class _Slab:
    """A value on every process, whose element 0 is at window offset `offsets[block]`; only `spans` of it are used."""

    value: Value
    offsets: tuple[int, ...]
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
    offsets: list[int] = [nowhere] * window.blocks
    spans = [(0, 0)] * window.blocks
    for transfer in group:
        start = min(transfer.start, block - width)
        starts[transfer.sender] = start
        offsets[transfer.receiver] = transfer.offset - (transfer.start - start)
        spans[transfer.receiver] = (transfer.offset, transfer.offset + transfer.length)
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
    return _Slab(value, tuple(offsets), tuple(spans))


def _joined(emitter: Emitter, dimension: int, window: HaloWindow, slabs: list[_Slab]) -> Value | None:
    """Return slabs concatenated if each has the same offset on all processes that use it; else None."""
    if not window.is_contiguous:
        return None
    positioned: list[tuple[int, Value]] = []
    for slab in slabs:
        known = {offset for offset in slab.offsets if offset != window.width}
        if len(known) != 1:
            return None
        positioned.append((known.pop(), slab.value))
    parts: list[Value] = []
    at = 0
    for offset, value in sorted(positioned, key=lambda entry: entry[0]):
        first, last = max(0, -offset), min(value.tensor.static_shape[dimension], window.width - offset)
        if last <= first:
            continue
        if offset + first < at:
            return None
        if offset + first > at:
            parts.append(_zeros(emitter, value, dimension, offset + first - at))
        parts.append(emitter.slice(value, dimension, first, last))
        at = offset + last
    if at < window.width:
        parts.append(_zeros(emitter, positioned[0][1], dimension, window.width - at))
    return emitter.concatenate(parts, dimension)


def _zeros(emitter: Emitter, like: Value, dimension: int, extent: int) -> Value:
    shape = list(like.tensor.static_shape)
    shape[dimension] = extent
    return emitter.splat(0, like.tensor.with_shape(tuple(shape)))


def _overlaid(
    emitter: Emitter, dimension: int, axes: Axes, window: HaloWindow, slabs: list[_Slab], shape: tuple[int, ...]
) -> Value:
    """Return slabs written over each other at their offsets; unused ones are written into the margins."""
    margin = max(slab.value.tensor.static_shape[dimension] for slab in slabs)
    wide = list(shape)
    wide[dimension] += 2 * margin
    overlaid = emitter.splat(0, slabs[0].value.tensor.with_shape(tuple(wide)))
    for slab in slabs:
        width = slab.value.tensor.static_shape[dimension]
        offsets = [min(max(offset + margin, 0), window.width + 2 * margin - width) for offset in slab.offsets]
        under = overlaid
        overlaid = emitter.dynamic_update(
            under, slab.value, dimension, emitter.per_device_constant(by_device(emitter.mesh, axes, offsets))
        )
        if not window.is_contiguous:
            # Elements outside the run belong to another run and must not be overwritten.
            spans = [(low + margin, high + margin) for low, high in slab.spans]
            overlaid = emitter.select(_covered(emitter, overlaid, dimension, axes, spans), overlaid, under)
    return emitter.slice(overlaid, dimension, margin, margin + window.width)


# --- positions -------------------------------------------------------------------------------------------------------


def positions(emitter: Emitter, like: Value, dimension: int, start: Value) -> Value:
    """Return the global index along a dimension of each element of a block, in the block's shape."""
    shape = like.tensor.static_shape
    iota = emitter.iota(shape, dimension)
    return emitter.binary("add", iota, emitter.broadcast(start, shape))


def within(emitter: Emitter, position: Value, low: int, high: int) -> Value:
    """Return whether each position is in [low, high)."""
    shape = position.tensor.shape
    above = emitter.compare(position, emitter.broadcast(emitter.index(low), shape), "GE")
    below = emitter.compare(position, emitter.broadcast(emitter.index(high), shape), "LT")
    return emitter.binary("and", above, below)


def mask_padding(emitter: Emitter, local: Value, dimension: int, axes: Axes, size: int, fill: Value) -> Value:
    """Return `local` with the padding of a dimension of `size` set to `fill`; unchanged if it has no padding."""
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
    """Return the bytes of one element along `dimension` of a block of `value`."""
    shape = layout.local_shape(value.tensor.static_shape)
    return value.tensor.dtype.itemsize * prod(size for index, size in enumerate(shape) if index != dimension)
