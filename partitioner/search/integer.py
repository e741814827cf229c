"""The integer program: one choice per class of groups, and the resharding costs between them.

As in Alpa (arXiv 2201.12023, section 4.2), with layouts of a tensor instead of pairs of strategies: a tensor that
several groups need in one layout is resharded once, as in the partitioner. Solved by HiGHS (scipy.optimize.milp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from partitioner.search.model import PARTIAL, Model, Places, Projection, project
from partitioner.search.ties import Flow, Ties
from spmd.support.arrays import Array

#: Relative optimality gap, and limit of nodes: no time limit, so that all ranks find the same solution.
_GAP, _NODES = 5e-3, 200
#: Resharding costs below this fraction of all computing are ignored.
_NEGLIGIBLE = 3e-5


class ReshardingPrices(Protocol):
    """The cost model of resharding."""

    def moving(self, kind: str, axis: int, nbytes: float) -> float:
        """Return the seconds of "all_reduce", "reduce_scatter", "all_gather" or "all_to_all" along an axis.

        `nbytes` is the size of a process's input; for an all_gather, of its output.
        """


@dataclass(frozen=True)
class Limit:
    """The bytes per process that arguments and values may take together; None for no limit."""

    bytes: float | None = None
    #: Seconds per byte of peak memory, to prefer solutions that need less.
    price: float = 0.0


@dataclass
class Solution:
    """The choice of each class, the modelled seconds, and the peak bytes per process."""

    choices: list[Places]
    seconds: float
    bytes: float = 0.0


@dataclass(frozen=True)
class Wanted:
    """A use of a flow: the layouts that its group may need, and the seconds from each source layout to each of them."""

    group: int
    projection: Projection
    layouts: list[Places]
    seconds: Array


def moving_seconds(shape: Sequence[int], itemsize: int, source: Places, target: Places, sizes: Sequence[int],
                   prices: ReshardingPrices) -> float:  # fmt: skip
    """Return the seconds of resharding: moves that shrink the tensor first, moves that enlarge it last."""
    if source == target:
        return 0.0
    nbytes = float(itemsize)
    for dimension, size in enumerate(shape):
        blocks = 1
        for place, count in zip(source, sizes, strict=True):
            blocks *= count if place == dimension else 1
        nbytes *= -(-size // blocks)
    spent = 0.0
    moves = [(axis, place, target[axis]) for axis, place in enumerate(source) if place != target[axis]]
    for axis, place, goal in moves:
        if place == PARTIAL and goal >= 0:
            spent += prices.moving("reduce_scatter", axis, nbytes)
            nbytes /= sizes[axis]
        elif place == -1 and goal >= 0:
            nbytes /= sizes[axis]
    for axis, place, goal in moves:
        if place == PARTIAL and goal < 0:
            spent += prices.moving("all_reduce", axis, nbytes)
        elif place >= 0 and goal >= 0:
            spent += prices.moving("all_to_all", axis, nbytes)
    for axis, place, goal in moves:
        if place >= 0 and goal < 0:
            nbytes *= sizes[axis]
            spent += prices.moving("all_gather", axis, nbytes)
    return spent


@dataclass
class _Rows:
    """A sparse matrix of constraints under construction."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    entries: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, entries: Mapping[int, float], low: float, high: float) -> None:
        """Append the constraint low <= sum(entries) <= high."""
        self.rows += [len(self.low)] * len(entries)
        self.columns += entries.keys()
        self.entries += entries.values()
        self.low.append(low)
        self.high.append(high)


class Problem:
    """The integer program of a model, built once and solved under several limits."""

    def __init__(self, model: Model, ties: Ties, prices: ReshardingPrices) -> None:
        self.model, self.ties, self.prices = model, ties, prices
        self.costs: list[float] = []
        self.rows = _Rows()
        self.arguments: list[int] = []  # indices of the costs of resharding arguments
        self.starts: list[int] = []
        sizes = model.sizes
        self.choices = [model.groups[first].choices for first in ties.first]
        self.unary = [
            np.array([count * model.groups[first].seconds(choice, sizes) for choice in choices])
            for first, count, choices in zip(ties.first, ties.counts, self.choices, strict=True)
        ]
        self.negligible = _NEGLIGIBLE * sum(float(costs.min()) for costs in self.unary)
        linked = list(filter(None, (self._flow(flow, times) for flow, times in ties.flows.items())))
        for costs in self.unary:
            self.starts.append(len(self.costs))
            self.costs += costs.tolist()
        self.count = len(self.costs)
        for start, choices in zip(self.starts, self.choices, strict=True):
            self.rows.add(dict.fromkeys(range(start, start + len(choices)), 1.0), 1, 1)
        for flow, sources, uses in linked:
            self._link(flow, sources, uses)
        #: Classes connected by costs; for others, every choice is independent.
        self.linked = {flow.source for flow, _, _ in linked} | {use.group for _, _, uses in linked for use in uses}
        self.peaks = self._peaks()

    def layouts(self, group: int, projection: tuple[int, ...]) -> list[Places]:
        """Return the layout of a tensor for each choice of a class."""
        return [project(projection, choice) for choice in self.choices[group]]

    # --- resharding costs ---

    def _flow(self, flow: Flow, times: float) -> tuple[Flow, list[Places], list[Wanted]] | None:
        """Return the costs of a flow by layout; costs within one class are added to the class's own."""
        sources = self.layouts(flow.source, flow.projection)
        distinct = list(dict.fromkeys(sources))
        uses = []
        for group, projection in flow.uses:
            wanted = self.layouts(group, projection)
            if group == flow.source:
                pairs = zip(sources, wanted, strict=True)
                self.unary[group] += times * np.array([self._seconds(flow, *pair) for pair in pairs])
                continue
            goals = list(dict.fromkeys(wanted))
            table = np.array([[times * self._seconds(flow, layout, goal) for goal in goals] for layout in distinct])
            if table.max(initial=0.0) > self.negligible:
                uses.append(Wanted(group, projection, goals, table))
        return (flow, distinct, uses) if uses else None

    def _seconds(self, flow: Flow, source: Places, target: Places) -> float:
        return moving_seconds(flow.shape, flow.itemsize, source, target, self.model.sizes, self.prices)

    def _link(self, flow: Flow, sources: list[Places], uses: list[Wanted]) -> None:
        shared: dict[tuple[int, Places], int] = {}
        for use in uses:
            table = use.seconds
            start = len(self.costs)
            if flow.is_argument:
                self.arguments += (start + np.flatnonzero(table > 0.0)).tolist()
            self.costs += [0.0] * table.size if len(uses) > 1 else table.ravel().tolist()
            numbers = np.arange(start, start + table.size).reshape(table.shape)
            self._sum(flow.source, flow.projection, sources, numbers)
            self._sum(use.group, use.projection, use.layouts, numbers.T)
            if len(uses) == 1:
                continue
            for row, column in np.argwhere(table > 0.0).tolist():
                key = row, use.layouts[column]
                if key not in shared:
                    shared[key] = len(self.costs)
                    self.costs.append(float(table[row, column]))
                self.rows.add({shared[key]: 1.0, int(numbers[row, column]): -1.0}, 0.0, np.inf)

    def _sum(self, group: int, projection: tuple[int, ...], layouts: list[Places], numbers: Array) -> None:
        """Require that the pairs with a layout are as many as the choices with it."""
        by_layout: dict[Places, list[int]] = {}
        for index, layout in enumerate(self.layouts(group, projection)):
            by_layout.setdefault(layout, []).append(self.starts[group] + index)
        for layout, row in zip(layouts, numbers, strict=True):
            entries = dict.fromkeys(row.tolist(), 1.0) | dict.fromkeys(by_layout[layout], -1.0)
            self.rows.add(entries, 0.0, 0.0)

    # --- memory ---

    def _peaks(self, most: int = 4) -> list[dict[int, float]]:
        """Return the bytes of each choice at the points of highest memory use."""
        model, sizes = self.model, self.model.sizes
        alive = np.zeros(model.length + 1)
        kept = [tensor for tensor in model.tensors if tensor.is_kept and tensor.bytes >= 1024]
        for tensor in kept:
            alive[tensor.born] += tensor.bytes
            alive[tensor.dies + 1 if tensor.dies + 1 < len(alive) else -1] -= tensor.bytes
        alive = np.cumsum(alive[:-1])
        moments: list[int] = []
        for moment in np.argsort(-alive, kind="stable").tolist():
            if all(abs(moment - other) > model.length // 16 for other in moments):
                moments.append(moment)
            if len(moments) == most:
                break
        peaks = []
        for moment in moments:
            entries: dict[int, float] = {}
            for tensor in kept:
                if tensor.born <= moment <= tensor.dies:
                    group = self.ties.classes[tensor.group]
                    for index, layout in enumerate(self.layouts(group, tensor.projection)):
                        blocks = np.prod([size for place, size in zip(layout, sizes, strict=True) if place >= 0])
                        number = self.starts[group] + index
                        entries[number] = entries.get(number, 0.0) + tensor.bytes / float(blocks)
            peaks.append(entries)
        return peaks

    # --- solving ---

    def solve(
        self,
        limit: Limit = Limit(),
        *,
        is_aligned: bool = False,
        only: Mapping[int, Places] | None = None,
    ) -> Solution | None:
        """Return the best choices under a limit; None if there are none.

        `is_aligned` charges resharding of arguments tenfold, so that they are used as they are sharded. `only` fixes
        the choice of classes.
        """
        costs = np.array([*self.costs, 0.0])  # the last: peak bytes
        if is_aligned:
            costs[self.arguments] += 9.0 * costs[self.arguments] + sum(map(np.min, self.unary)) / 100
        scale = 1.0 / max(float(np.abs(costs).max()), 1e-30)
        unit = max((max(entries.values(), default=1.0) for entries in self.peaks), default=1.0)
        costs[-1] = limit.price * unit
        count = len(costs)
        rows = _Rows(*(list(part) for part in vars(self.rows).values()))
        for entries in self.peaks:
            scaled = {number: nbytes / unit for number, nbytes in entries.items()}
            rows.add({**scaled, count - 1: -1.0}, -np.inf, 0.0)
        upper = np.ones(count)
        upper[-1] = np.inf if limit.bytes is None else limit.bytes / unit
        lower = np.zeros(count)
        for group, choice in (only or {}).items():
            lower[self.starts[group] + self.choices[group].index(choice)] = 1.0
        integral = np.zeros(count)
        integral[: self.count] = 1
        matrix = csr_array((rows.entries, (rows.rows, rows.columns)), shape=(len(rows.low), count))
        found = milp(
            costs * scale,
            constraints=LinearConstraint(matrix, rows.low, rows.high),
            integrality=integral,
            bounds=Bounds(lower, upper),
            options={"mip_rel_gap": _GAP, "node_limit": _NODES},
        )
        if found.x is None:
            return None
        picked = [
            choices[int(np.argmax(found.x[start : start + len(choices)]))]
            for start, choices in zip(self.starts, self.choices, strict=True)
        ]
        seconds = float(self.costs_of(found.x))
        return Solution(picked, seconds, float(found.x[-1]) * unit)

    def costs_of(self, values: Array) -> float:
        """Return the seconds of a solution."""
        return float(np.dot(self.costs, values[:-1]))
