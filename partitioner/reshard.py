"""Resharding: from one sharding to another by the cheapest sequence of moves, in bytes sent per process.

Moves: slice (free), all_to_all, collective_permute, reduce_scatter, all_reduce, all_gather. The search is Dijkstra's
over shardings; results are cached. Moves on a padded dimension are possible if blocks nest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from math import prod

import numpy as np

from partitioner.emit import Emitter
from partitioner.mesh import Axes, DeviceMesh, SubAxis
from partitioner.prices import Prices, prices
from partitioner.sharding import Sharding
from spmd.ir import Value
from spmd.types import TensorType

_LOCAL = 1


@dataclass(frozen=True)
class Move:
    """`kind` is slice, gather, all_to_all, permute, reduce_scatter or all_reduce."""

    kind: str
    axes: Axes = ()
    source: int = -1
    target: int = -1
    result: Sharding | None = None


def cost(type: TensorType, source: Sharding, target: Sharding) -> float:
    """Return the bytes that a process sends to reshard from `source` to `target`, plus the latency of each message."""
    return _plan(source.mesh, type.static_shape, type.dtype.itemsize, source, target, prices())[0]


def reshard(emitter: Emitter, value: Value, type: TensorType, source: Sharding, target: Sharding) -> Value:
    """Return the block of sharding `target` for `value`, the block of sharding `source` of a tensor of `type`."""
    state = source
    for move in _plan(source.mesh, type.static_shape, type.dtype.itemsize, source, target, prices())[1]:
        value = _emit(emitter, value, type.static_shape, state, move)
        assert move.result is not None
        state = move.result
    return value


@lru_cache(maxsize=1 << 16)
def _plan(
    mesh: DeviceMesh, shape: tuple[int, ...], itemsize: int, source: Sharding, target: Sharding, by: Prices
) -> tuple[float, tuple[Move, ...]]:
    """Return the cost and the moves; `by`, the prices in force, is part of the cache key."""
    if source.dimensions == target.dimensions and source.partial == target.partial:
        return 0.0, ()
    if len(source.used | target.used) <= _MOST_SUB_AXES:
        return _search(shape, itemsize, source, target)
    spans = _spans(source, target)
    coarse = DeviceMesh(tuple(SubAxis("", 1, mesh.count(span), mesh.count(span)) for span in spans))
    spent, moves = _search(shape, itemsize, _in_spans(source, coarse, spans), _in_spans(target, coarse, spans))
    return spent, tuple(
        replace(move, axes=_in_sub_axes(move.axes, spans), result=_refined(move.result, mesh, spans)) for move in moves
    )


#: Above this number of sub-axes, the search is over runs of sub-axes, since states grow with their orders.
_MOST_SUB_AXES = 8


def _spans(source: Sharding, target: Sharding) -> list[Axes]:
    """Return the sub-axes in use, merged into spans that occur in all lists as a unit."""
    lists = [*source.dimensions, source.partial, *target.dimensions, target.partial]
    follower: dict[int, set[int | None]] = {}
    leader: dict[int, set[int | None]] = {}
    for axes in lists:
        for before, after in zip((None, *axes), (*axes, None), strict=True):
            if before is not None:
                follower.setdefault(before, set()).add(after)
            if after is not None:
                leader.setdefault(after, set()).add(before)
    spans: list[Axes] = []
    joined: set[int] = set()
    for first in sorted(follower):
        if first in joined:
            continue
        (before, *others) = leader[first]
        if not others and before is not None and follower[before] == {first}:
            continue  # inside a span
        span = [first]
        while len(follower[span[-1]]) == 1 and (after := next(iter(follower[span[-1]]))) is not None:
            if leader[after] != {span[-1]} or after in span:
                break
            span.append(after)
        joined.update(span)
        spans.append(tuple(span))
    return spans


def _in_spans(layout: Sharding, mesh: DeviceMesh, spans: list[Axes]) -> Sharding:
    """Return `layout` in terms of spans, each a sub-axis of `mesh`."""
    place = {span[0]: index for index, span in enumerate(spans)}

    def named(axes: Axes) -> Axes:
        return tuple(place[axis] for axis in axes if axis in place)

    partial = tuple(sorted(named(layout.partial)))
    return Sharding(mesh, tuple(map(named, layout.dimensions)), partial, layout.reduction)


def _in_sub_axes(axes: Axes, spans: list[Axes]) -> Axes:
    return tuple(sub_axis for axis in axes for sub_axis in spans[axis])


def _refined(layout: Sharding | None, mesh: DeviceMesh, spans: list[Axes]) -> Sharding | None:
    if layout is None:
        return None
    partial = tuple(sorted(_in_sub_axes(layout.partial, spans)))
    return Sharding(mesh, tuple(_in_sub_axes(axes, spans) for axes in layout.dimensions), partial, layout.reduction)


def _search(
    shape: tuple[int, ...], itemsize: int, source: Sharding, target: Sharding
) -> tuple[float, tuple[Move, ...]]:
    """Dijkstra's search from `source` to `target`."""
    goal = (target.dimensions, target.partial)
    best: dict[object, float] = {(source.dimensions, source.partial): 0.0}
    heap: list[tuple[float, int, Sharding, tuple[Move, ...]]] = [(0.0, 0, source, ())]
    count = 0
    while heap:
        spent, _, state, path = heappop(heap)
        key = (state.dimensions, state.partial)
        if key == goal:
            return spent, path
        if spent > best[key]:
            continue
        for price, move in _moves(shape, itemsize, state, target):
            reached_layout = move.result
            assert reached_layout is not None
            total = spent + price
            reached = (reached_layout.dimensions, reached_layout.partial)
            if total < best.get(reached, float("inf")):
                best[reached] = total
                count += 1
                heappush(heap, (total, count, reached_layout, (*path, move)))
    raise ValueError(f"no way from {source} to {target}")


def nests(size: int, outer: int, inner: int) -> bool:
    """Return whether blocks of a dimension of `size` split into `outer` consist of whole blocks of it in `inner`."""
    return outer == 1 or -(-size // outer) == (inner // outer) * -(-size // inner)


def _moves(shape: tuple[int, ...], itemsize: int, state: Sharding, target: Sharding) -> Iterator[tuple[float, Move]]:
    mesh = state.mesh
    block = itemsize * prod(state.local_shape(shape))
    yield from _slices(shape, state, target)
    yield from _reductions(shape, block, state, target)
    for dimension, axes in enumerate(state.dimensions):
        for length in range(1, len(axes) + 1):
            kept, moved = axes[:-length], axes[-length:]
            count = mesh.count(moved)
            if not nests(shape[dimension], mesh.count(kept), mesh.count(axes)):
                continue
            gathered = state.with_dimension(dimension, kept)
            yield block * (count - 1) + prices().latency, Move("gather", moved, dimension, result=gathered)
            for other, current in enumerate(state.dimensions):
                if other == dimension or not nests(shape[other], mesh.count(current), mesh.count(current + moved)):
                    continue
                target_axes = target.dimensions[other]
                if target_axes[: len(current) + length] == current + moved or mesh.count(target_axes) == mesh.count(
                    current + moved
                ):
                    # Blocks that need padding are sent padded.
                    grown = -(-shape[other] // mesh.count(current + moved)) * mesh.count(current + moved)
                    sent = block * grown / max(1, shape[other] if not current else grown)
                    price = sent * (count - 1) / count + prices().latency
                    other_layout = gathered.with_dimension(other, current + moved)
                    yield price, Move("all_to_all", moved, dimension, other, other_layout)
    for other_layout in _rearranged(state, target):
        yield block + prices().latency, Move("permute", result=other_layout)


def _slices(shape: tuple[int, ...], state: Sharding, target: Sharding) -> Iterator[tuple[float, Move]]:
    used = state.used
    for dimension, axes in enumerate(state.dimensions):
        target_axes = target.dimensions[dimension]
        if target_axes[: len(axes)] != axes:
            # As many blocks as in the target, along other axes, so that less data is permuted.
            for axis in target_axes:
                finer = (*axes, axis)
                count = state.mesh.count(finer)
                fits = axis not in used and state.mesh.count(target_axes) % count == 0
                if fits and nests(shape[dimension], state.mesh.count(axes), count):
                    yield _LOCAL, Move("slice", (axis,), dimension, result=state.with_dimension(dimension, finer))
            continue
        for length in range(len(axes) + 1, len(target_axes) + 1):
            new = target_axes[len(axes) : length]
            if used.isdisjoint(new) and nests(
                shape[dimension], state.mesh.count(axes), state.mesh.count(target_axes[:length])
            ):
                yield (
                    _LOCAL,
                    Move("slice", new, dimension, result=state.with_dimension(dimension, target_axes[:length])),
                )


def _reductions(shape: tuple[int, ...], block: int, state: Sharding, target: Sharding) -> Iterator[tuple[float, Move]]:
    mesh = state.mesh
    pending = tuple(axis for axis in state.partial if axis not in target.partial)
    if not pending:
        return
    count = mesh.count(pending)
    rest = tuple(axis for axis in state.partial if axis in target.partial)
    reduced = Move("all_reduce", pending, result=replace(state, partial=rest))
    yield 2 * block * (count - 1) / count + prices().latency, reduced
    for dimension, axes in enumerate(state.dimensions):
        target_axes = target.dimensions[dimension]
        if target_axes[: len(axes)] != axes:
            continue
        for length in range(len(axes) + 1, len(target_axes) + 1):
            new = target_axes[len(axes) : length]
            if set(new) <= set(pending) and nests(shape[dimension], mesh.count(axes), mesh.count(target_axes[:length])):
                left = tuple(axis for axis in state.partial if axis not in new)
                scattered = replace(state.with_dimension(dimension, target_axes[:length]), partial=left)
                size = mesh.count(new)
                yield (
                    block * (size - 1) / size + prices().latency,
                    Move("reduce_scatter", new, dimension, result=scattered),
                )


def _rearranged(state: Sharding, target: Sharding) -> Iterator[Sharding]:
    """Yield shardings with the block counts of `state` that are closer to `target`."""
    mesh = state.mesh
    seen = {state.dimensions}
    counts = [mesh.count(axes) for axes in state.dimensions]
    goal = list(target.dimensions)
    options: list[list[Axes]] = []
    for current, want, count in zip(state.dimensions, goal, counts, strict=True):
        ways = [current]
        ways += _of_count(mesh, want, current, count)
        first = tuple(axis for axis in want if axis in current)
        ordered = first + tuple(axis for axis in current if axis not in first)
        if ordered != current:
            ways.append(ordered)
        options.append(ways)
    for picked in _products(options):
        flat = [*state.partial, *(axis for axes in picked for axis in axes)]
        rearranged = tuple(picked)
        if rearranged not in seen and len(set(flat)) == len(flat):
            seen.add(rearranged)
            yield replace(state, dimensions=rearranged)


def _of_count(mesh: DeviceMesh, want: Axes, current: Axes, count: int) -> list[Axes]:
    """Return axes that shard a dimension into `count` blocks: a prefix of `want`, or it and part of `current`."""
    prefixes = [want[:length] for length in range(1, len(want) + 1) if mesh.count(want[:length]) == count]
    for start in range(1, len(current)):
        longer = want + current[start:]
        if want and mesh.count(longer) == count:
            prefixes.append(longer)
    return [axes for axes in prefixes if axes != current]


def _products(options: list[list[Axes]]) -> Iterator[list[Axes]]:
    if not options:
        yield []
        return
    for rest in _products(options[1:]):
        for first in options[0]:
            yield [first, *rest]


def _emit(emitter: Emitter, value: Value, shape: tuple[int, ...], state: Sharding, move: Move) -> Value:
    after = move.result
    assert after is not None
    if move.kind == "slice":
        return cut(emitter, value, shape, state, after, move.source)
    if move.kind == "gather":
        gathered = emitter.all_gather(value, move.source, move.axes)
        return _trim(emitter, gathered, move.source, after.local_shape(shape))
    if move.kind == "all_to_all":
        grown = after.local_shape(shape)[move.target] * state.mesh.count(move.axes)
        value = emitter.pad(value, move.target, 0, grown - value.tensor.static_shape[move.target])
        swapped = emitter.all_to_all(value, move.target, move.source, move.axes)
        return _trim(emitter, swapped, move.source, after.local_shape(shape))
    if move.kind == "permute":
        return emitter.permute(value, permutation(state, after))
    if move.kind == "all_reduce":
        return emitter.all_reduce(value, move.axes, state.reduction)
    grown = after.local_shape(shape)[move.source] * state.mesh.count(move.axes)
    value = emitter.pad(value, move.source, 0, grown - value.tensor.static_shape[move.source])
    return emitter.reduce_scatter(value, move.source, move.axes, state.reduction)


def _trim(emitter: Emitter, value: Value, dimension: int, local: tuple[int, ...]) -> Value:
    return emitter.slice(value, dimension, 0, local[dimension])


def cut(
    emitter: Emitter, value: Value, shape: tuple[int, ...], state: Sharding, after: Sharding, dimension: int
) -> Value:
    """Return this process's slice of a block, for the sharding `after` that extends `state` along `dimension`."""
    new = after.dimensions[dimension][len(state.dimensions[dimension]) :]
    block = after.local_shape(shape)[dimension]
    count = state.mesh.count(new)
    value = emitter.pad(value, dimension, 0, block * count - value.tensor.static_shape[dimension])
    starts = state.mesh.block_index(new) * block
    return emitter.dynamic_slice(value, dimension, emitter.per_device_constant(starts), block)


def permutation(state: Sharding, after: Sharding) -> list[tuple[int, int]]:
    """Return (source, target) pairs that turn blocks of `state` into blocks of `after`; blocks in place stay.

    Nothing is sent along sub-axes that neither uses, along which values in manual code may differ.
    """
    mesh = state.mesh
    used = state.used | after.used
    others = tuple(axis for axis in range(len(mesh.sub_axes)) if axis not in used)
    current = _block_numbers(state, others)
    want = _block_numbers(after, others)
    pairs = [(device, device) for device in range(mesh.size) if current[device] == want[device]]
    kept = {device for device, _ in pairs}
    senders: dict[int, list[int]] = {}
    for device in range(mesh.size):
        if device not in kept:
            senders.setdefault(int(current[device]), []).append(device)
    receivers = [device for device in range(mesh.size) if device not in kept]
    return pairs + [(senders[int(want[device])].pop(0), device) for device in receivers]


def _block_numbers(sharding: Sharding, others: Axes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number per device that identifies its block.

    Devices with different partial sums, or that differ along `others`, get different numbers.
    """
    number = np.zeros(sharding.mesh.size, np.int64)
    for axes in (others, *sharding.dimensions, sharding.partial):
        number = number * sharding.mesh.count(axes) + sharding.mesh.block_index(axes)
    return number
