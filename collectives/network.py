"""A hierarchical network, and the time of collectives on it.

A level connects units of the level below: hardware threads within a core, cores within a node, nodes within a rack.
Ranks fill units in order. A message's level is the lowest whose unit contains both ends; it pays that level's latency,
and transfers at that level's bandwidth, or at its share of an uplink that several messages leave the unit by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np

from collectives.algorithms import HALVING, RING, TREE, Round, rounds
from collectives.arrays import Array
from collectives.operations import (
    AllGather,
    AllReduce,
    Barrier,
    CollectiveBroadcast,
    CollectiveReduce,
    Operation,
    ReduceScatter,
    ReducingOperation,
)

HIERARCHICAL = "hierarchical"


@dataclass(frozen=True)
class Level:
    """One level of a network.

    `processes` is the number in one unit (None: all), `latency` is in seconds per message, `bandwidth` in bytes per
    second between two processes, `uplink` in bytes per second shared by all processes of a unit of the level below that
    send out of it (None: unlimited). `algorithm` runs collectives whose highest level this is: one of ALGORITHMS, or
    "hierarchical": within the units below by their levels' algorithms, and between them by the fastest of all.
    """

    name: str
    processes: int | None
    latency: float
    bandwidth: float
    algorithm: str = RING
    uplink: float | None = None


@dataclass(frozen=True)
class Traffic:
    """The cost of a collective: seconds per group, and total bytes that cross each level."""

    seconds: Array
    bytes: Array

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.seconds + other.seconds, self.bytes + other.bytes)


@dataclass(frozen=True)
class Network:
    """Levels, innermost first. `folding` is the bytes per second that a process reduces."""

    levels: tuple[Level, ...]
    folding: float = inf

    def slower(self, times: float) -> Network:
        """Return the network with bandwidths and uplinks divided, and latencies multiplied, by `times`."""
        return replace(
            self,
            levels=tuple(
                replace(
                    level,
                    latency=level.latency * times,
                    bandwidth=level.bandwidth / times,
                    uplink=None if level.uplink is None else level.uplink / times,
                )
                for level in self.levels
            ),
        )

    # --- levels of messages ---

    def unit(self, ranks: Array, level: int) -> Array:
        """Return the units of `level` that contain `ranks`; for level -1 the ranks."""
        size = 1 if level < 0 else self.levels[level].processes
        return np.zeros_like(ranks) if size is None else ranks // size

    def level_of(self, source: Array, target: Array) -> Array:
        """Return the level of the messages from `source` to `target`, elementwise; -1 from a process to itself."""
        array = np.full(np.broadcast(source, target).shape, len(self.levels) - 1)
        for level in range(len(self.levels) - 2, -2, -1):
            array = np.where(self.unit(source, level) == self.unit(target, level), level, array)
        return array

    def exchange(self, source: Array, target: Array, nbytes: float) -> Traffic:
        """Return the cost of simultaneous messages: seconds in their shape, and bytes per level."""
        level = self.level_of(source, target)
        rate = np.array([each.bandwidth for each in self.levels])[level]
        for number, each in enumerate(self.levels):
            if each.uplink is None or not number:
                continue
            crossing = level >= number
            units = self.unit(source, number - 1)
            leaving = np.bincount(units[crossing], minlength=int(units.max(initial=0)) + 1)
            rate = np.where(crossing, np.minimum(rate, each.uplink / np.maximum(leaving[units], 1)), rate)
        latency = np.array([each.latency for each in self.levels])[level]
        seconds = np.where(level >= 0, latency + nbytes / rate, 0.0)
        counts = np.bincount(level[level >= 0].ravel(), minlength=len(self.levels))
        return Traffic(seconds, counts * float(nbytes))

    # --- collectives ---

    def collective(self, operation: Operation, groups: Array) -> Traffic:
        """Return the cost of `operation` in all of `groups` (one row of ranks each) at once."""
        if groups.shape[1] < 2:
            return self._nothing(len(groups))
        top = int(self.level_of(groups[:, :1], groups).max())
        algorithm = self.levels[top].algorithm
        if algorithm != HIERARCHICAL:
            return self.flat(operation, groups, algorithm)
        return self._by_levels(operation, groups, top)

    def flat(self, operation: Operation, groups: Array, algorithm: str) -> Traffic:
        """Return the cost of `operation` by one algorithm over whole groups."""
        total = self._nothing(len(groups))
        for each in rounds(operation, groups.shape[1], algorithm):
            total += self._everyone(groups, each) if not each.distance else self._round(groups, each)
        return total

    def _nothing(self, count: int) -> Traffic:
        return Traffic(np.zeros(count), np.zeros(len(self.levels)))

    def _round(self, groups: Array, each: Round) -> Traffic:
        senders, receivers = each.pairs(groups.shape[1])
        one = self.exchange(groups[:, senders], groups[:, receivers], each.nbytes)
        seconds = one.seconds.max(axis=1) + each.folded / self.folding
        return Traffic(each.times * seconds, each.times * one.bytes)

    def _everyone(self, groups: Array, each: Round) -> Traffic:
        """Return the cost of sending to every other process of the group, limited by links and uplinks."""
        count, size = groups.shape
        seconds = np.zeros(groups.shape)
        crossed = np.zeros(len(self.levels))
        inside_before = np.ones(groups.shape)
        for number, level in enumerate(self.levels):
            inside = _companions(self.unit(groups, number))
            partners = inside - inside_before
            seconds += partners * (level.latency + each.nbytes / level.bandwidth)
            crossed[number] = partners.sum() * each.nbytes
            if number and level.uplink is not None:
                units = self.unit(groups, number - 1)
                leaving = np.bincount(units.ravel(), weights=((size - inside_before) * each.nbytes).ravel())
                seconds = np.maximum(seconds, leaving[units] / level.uplink)
            inside_before = inside
        return Traffic(seconds.max(axis=1, initial=0.0).reshape(count), crossed)

    # --- hierarchical ---

    def _quickest(self, operation: Operation, groups: Array) -> Traffic:
        """Return the cost of `operation` over whole groups by the fastest algorithm."""
        tried = [self.flat(operation, groups, algorithm) for algorithm in (RING, HALVING, TREE)]
        return min(tried, key=lambda traffic: float(traffic.seconds.max()))

    def _by_levels(self, operation: Operation, groups: Array, top: int) -> Traffic:
        """Return the cost within units of the level below `top`, then between them, then within again, as needed."""
        inner = _rows_of_units(groups, self.unit(groups, top - 1)) if top else None
        if inner is None or inner.shape[1] in (1, groups.shape[1]):
            return self._quickest(operation, groups)
        count, size = len(groups), inner.shape[1]
        units = groups.shape[1] // size
        outer = inner.reshape(count, units, size).transpose(0, 2, 1).reshape(-1, units)

        def within(part: Operation) -> Traffic:
            spent = self.collective(part, inner)
            return Traffic(spent.seconds.reshape(count, -1).max(axis=1), spent.bytes)

        def across(part: Operation, rows: Array = outer) -> Traffic:
            spent = self._quickest(part, rows)
            return Traffic(spent.seconds.reshape(count, -1).max(axis=1), spent.bytes)

        elements, dtype = prod(operation.shape), operation.dtype
        part = -(-elements // size)
        match operation:
            case AllReduce(reduction=add):
                reduced = across(AllReduce((part,), dtype, add))
                return within(_scatter(part, size, operation)) + reduced + within(AllGather((part,), dtype, 0))
            case CollectiveReduce(reduction=add):
                reduced = across(CollectiveReduce((part,), dtype, add))
                return within(_scatter(part, size, operation)) + reduced + within(AllGather((part,), dtype, 0))
            case ReduceScatter():
                return within(_scatter(part, size, operation)) + across(_scatter(-(-part // units), units, operation))
            case AllGather():
                return across(operation) + within(AllGather((elements * units,), dtype, 0))
            case CollectiveBroadcast() | Barrier():  # one process per unit suffices
                return across(operation, outer[::size]) + within(operation)
        return self.flat(operation, groups, RING)  # an all_to_all does not profit from a hierarchy


def _scatter(part: int, size: int, operation: ReducingOperation) -> ReduceScatter:
    """Return the reduce_scatter of `size` parts of `part` elements by the reduction of `operation`."""
    return ReduceScatter((part * size,), operation.dtype, operation.reduction, 0)


def _companions(units: Array) -> Array:
    """Return the number of members of the same row in each member's unit, itself included."""
    rows = np.arange(len(units))[:, None] * (int(units.max(initial=0)) + 1)
    _, inverse, counts = np.unique(units + rows, return_inverse=True, return_counts=True)
    return counts[inverse].reshape(units.shape)


def _rows_of_units(groups: Array, units: Array) -> Array | None:
    """Return the members of each group by unit, one row each; None if the units have different numbers of members."""
    order = np.argsort(units, axis=1, kind="stable")
    members, homes = np.take_along_axis(groups, order, 1), np.take_along_axis(units, order, 1)
    counts = _companions(units)
    size = int(counts.flat[0])
    if (counts != size).any():
        return None
    assert (homes.reshape(-1, size) == homes.reshape(-1, size)[:, :1]).all()
    return members.reshape(-1, size)
