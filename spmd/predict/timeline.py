"""The timeline of all processes: when each computes, communicates or waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from collectives.algorithms import wire_bytes
from collectives.grid import Groups
from collectives.network import Network, Traffic
from collectives.operations import CollectivePermute, Operation
from spmd.analysis.collectives import Collective
from spmd.predict.events import PricedEvent
from spmd.predict.machine import Machine
from spmd.support.arrays import Array


class TrafficPrices(Protocol):
    """The cost model of collectives."""

    @property
    def levels(self) -> Sequence[str]:
        """The names of the network's levels."""

    def of(self, operation: Operation, groups: Array) -> Traffic:
        """Return the traffic of `operation` in all groups at once, a row of ranks each."""

    def permutation(self, operation: CollectivePermute, source: Array, target: Array) -> Traffic:
        """Return the traffic of a permutation, with the seconds of each message."""


@dataclass(frozen=True)
class OneMachine:
    """Costs as measured on the machine, or by its link where not measured."""

    machine: Machine

    @property
    def levels(self) -> Sequence[str]:
        return (self.machine.link.name,)

    def of(self, operation: Operation, groups: Array) -> Traffic:
        size = groups.shape[1]
        measured = self.machine.measured(operation, size)
        if measured is None or size == 1:
            return _started(self.machine, self.machine.network.collective(operation, groups), operation, groups)
        return Traffic(np.full(len(groups), measured), np.array([_in_all(operation, groups)]))

    def permutation(self, operation: CollectivePermute, source: Array, target: Array) -> Traffic:
        nbytes = wire_bytes(operation)
        modelled = self.machine.network.exchange(source, target, nbytes)
        measured = self.machine.measured(operation, 2)
        if measured is None:
            return modelled
        return Traffic(np.where(source == target, 0.0, measured), modelled.bytes)


@dataclass(frozen=True)
class OfNetwork:
    """Costs by the levels of a network."""

    machine: Machine
    network: Network

    @property
    def levels(self) -> Sequence[str]:
        return [level.name for level in self.network.levels]

    def of(self, operation: Operation, groups: Array) -> Traffic:
        return _started(self.machine, self.network.collective(operation, groups), operation, groups)

    def permutation(self, operation: CollectivePermute, source: Array, target: Array) -> Traffic:
        return self.network.exchange(source, target, wire_bytes(operation))


def _started(machine: Machine, messages: Traffic, operation: Operation, groups: Array) -> Traffic:
    """Add the start-up overhead, and scale each level's bytes so that they add up to the operation's total."""
    started = machine.overhead["collective"] if groups.shape[1] > 1 else 0.0
    carried = float(messages.bytes.sum())
    share = _in_all(operation, groups) / carried if carried else 0.0
    return Traffic(messages.seconds + started, messages.bytes * share)


def _in_all(operation: Operation, groups: Array) -> float:
    """Return the bytes that the processes of all groups send."""
    return float(len(groups) * operation.total(wire_bytes(operation), groups.shape[1]))


@dataclass(frozen=True, eq=False)
class Moment:
    """An event on all processes: arrays of times by rank.

    `begins` is when all that a process waits for is ready; `after` is the rank that it waited for (often itself).
    """

    event: PricedEvent
    arrives: Array
    begins: Array
    ends: Array
    after: Array | None = None


@dataclass
class Timeline:
    """A step of all processes: seconds by rank, and total bytes over each level.

    `hidden` is communication that overlaps with computation.
    """

    moments: list[Moment]
    computing: Array
    communicating: Array
    hidden: Array
    waiting: Array
    levels: Sequence[str]
    bytes: Array
    seconds: float = field(default=0.0)

    def critical_path(self) -> list[tuple[PricedEvent, float]]:
        """Return the critical path in order: each event with its seconds on it."""
        if not self.moments:
            return []
        rank = int(np.argmax(self.moments[-1].ends))
        path: list[tuple[PricedEvent, float]] = []
        number = len(self.moments) - 1
        begun = {moment.event: index for index, moment in enumerate(self.moments)}
        while number >= 0:
            moment = self.moments[number]
            start = moment.event.finishes
            if start is not None and moment.begins[rank] > moment.arrives[rank]:
                number, rank = self._behind(begun[start], rank, path)
            elif not moment.event.starts:
                path.append((moment.event, float(moment.ends[rank] - moment.begins[rank])))
                rank = rank if moment.after is None else int(moment.after[rank])
            number -= 1
        return path[::-1]

    def _behind(self, number: int, rank: int, path: list[tuple[PricedEvent, float]]) -> tuple[int, int]:
        """Follow asynchronous communication back to where it was started with an idle network."""
        while True:
            moment = self.moments[number]
            path.append((moment.event, float(moment.ends[rank] - moment.begins[rank])))
            rank = rank if moment.after is None else int(moment.after[rank])
            if moment.begins[rank] <= moment.arrives[rank]:
                return number, rank
            # The network was busy with the previous request of this process.
            number = max(index for index in range(number) if self.moments[index].event.starts)


def timeline(events: Sequence[PricedEvent], size: int, prices: TrafficPrices) -> Timeline:
    """Return the timeline of `size` processes that all execute `events`."""
    return _Run(size, prices).run(events)


class _Run:
    def __init__(self, size: int, prices: TrafficPrices) -> None:
        self.size, self.prices = size, prices
        self.now = np.zeros(size)
        self.computing, self.communicating = np.zeros(size), np.zeros(size)
        self.hidden, self.waiting = np.zeros(size), np.zeros(size)
        self.bytes = np.zeros(len(prices.levels))
        #: When the requests of each process are done; they are processed in order.
        self.busy = np.zeros(size)
        self.pending: dict[PricedEvent, tuple[Array, Array]] = {}
        self.moments: list[Moment] = []
        self._seen: dict[tuple[object, ...], list[Array]] = {}

    def run(self, events: Sequence[PricedEvent]) -> Timeline:
        for event in events:
            if event.finishes is not None:
                self._finish(event)
            elif event.collective is None:
                self._compute(event)
            else:
                self._meet(event, event.collective)
        return Timeline(
            self.moments,
            self.computing,
            self.communicating,
            self.hidden,
            self.waiting,
            self.prices.levels,
            self.bytes,
            float(self.now.max()),
        )

    def _compute(self, event: PricedEvent) -> None:
        seconds = event.seconds * event.turns
        arrives = self.now
        self.now = arrives + seconds
        self.computing += seconds
        for message in event.sent:
            self.bytes += event.turns * self.prices.permutation(message, *np.array(message.pairs).T).bytes
        self.moments.append(Moment(event, arrives, arrives, self.now))

    def _meet(self, event: PricedEvent, collective: Collective) -> None:
        """Advance through a collective, which begins when the last process of a group arrives."""
        arrives = self.now.copy()
        ready = np.maximum(arrives, self.busy) if event.starts else arrives
        begins, seconds, after = self._met(collective, ready, event.turns)
        ends = begins + seconds
        if event.starts:
            self.busy = ends
            self.pending[event] = begins, ends
            self.moments.append(Moment(event, arrives, begins, ends, after))
            return
        self.now = ends
        self.communicating += seconds
        self.waiting += begins - arrives
        self.moments.append(Moment(event, arrives, begins, ends, after))

    def _finish(self, event: PricedEvent) -> None:
        """Advance through the end of an asynchronous collective, waiting until it is done."""
        assert event.finishes is not None
        begins, ends = self.pending.pop(event.finishes)
        arrives = self.now
        self.now = np.maximum(arrives, ends)
        spent = ends - begins
        visible = np.minimum(np.maximum(ends - np.maximum(arrives, begins), 0.0), spent)
        self.communicating += visible
        self.hidden += spent - visible
        self.waiting += (self.now - arrives) - visible
        self.moments.append(Moment(event, arrives, self.now, self.now))

    def _met(self, collective: Collective, ready: Array, turns: int) -> tuple[Array, Array, Array]:
        begins, seconds, after = ready.copy(), np.zeros(self.size), np.arange(self.size)
        if collective.groups is None:
            for operation in collective.messages:
                assert isinstance(operation, CollectivePermute)
                self._permute(operation, ready, begins, seconds, after, turns)
            return begins, seconds, after
        for rows in self._rows(collective.groups):
            last = rows[np.arange(len(rows)), np.argmax(ready[rows], axis=1)]
            begins[rows] = ready[last][:, None]
            after[rows] = last[:, None]
            for operation in collective.messages:
                traffic = self.prices.of(operation, rows)
                seconds[rows] += turns * traffic.seconds[:, None]
                self.bytes += turns * traffic.bytes
        return begins, seconds, after

    def _permute(
        self, operation: CollectivePermute, ready: Array, begins: Array, seconds: Array, after: Array, turns: int
    ) -> None:
        if not operation.pairs:
            return
        source, target = np.array(operation.pairs).T
        traffic = self.prices.permutation(operation, source, target)
        self.bytes += turns * traffic.bytes
        for mine, other in ((target, source), (source, target)):
            later = ready[other] > begins[mine]
            after[mine[later]] = other[later]
            begins[mine] = np.maximum(begins[mine], ready[other])
            seconds[mine] = np.maximum(seconds[mine], turns * traffic.seconds)

    def _rows(self, groups: Groups) -> list[Array]:
        """Return the groups as arrays of ranks, one array per group size."""
        key = tuple(groups)
        shared_rows = self._seen.get(key)
        if shared_rows is None:
            by_size: dict[int, list[Sequence[int]]] = {}
            for group in key:
                by_size.setdefault(len(group), []).append(group)
            shared_rows = self._seen[key] = [np.array(rows) for rows in by_size.values()]
        return shared_rows
