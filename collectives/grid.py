"""The process grid and the four strategies that split it into process groups.

Source: StableHLO specification, "Parallel execution" and "Collective ops". The rank of a process is ``replica_id *
num_partitions + partition_id``; a group is a tuple of ranks in the order of the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from collectives.errors import GroupError, grid_error

Group = tuple[int, ...]
IdGroups = npt.ArrayLike | Sequence[Sequence[int]]

#: Maximum number of processes of a grid; a program for more is assumed to be a mistake.
MOST_PROCESSES = 1 << 20
_MOST_SHOWN = 64
#: Maximum rows and columns of a grid in a notebook.
_MOST_CELLS = 16


@dataclass(frozen=True, order=True)
class ProcessId:
    """A process's position in the grid."""

    replica_id: int
    partition_id: int

    def __str__(self) -> str:
        return f"({self.replica_id}, {self.partition_id})"


@dataclass(frozen=True)
class ProcessGrid:
    """A grid of ``num_replicas`` by ``num_partitions`` processes."""

    num_replicas: int = 1
    num_partitions: int = 1

    def __post_init__(self) -> None:
        for name in ("num_replicas", "num_partitions"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int | np.integer):
                raise grid_error(f"{name} must be a whole number, got {count!r}")
            if count < 1:
                raise grid_error(f"{name} must be at least 1, got {count}")
        if self.size > MOST_PROCESSES:
            raise grid_error(
                f"a {self} process grid has {self.size:,} processes; at most {MOST_PROCESSES:,} are supported"
            )

    def __str__(self) -> str:
        return f"{self.num_replicas}x{self.num_partitions}"

    def _repr_html_(self) -> str:
        """Return an HTML table of ranks, replicas by partitions, for notebooks."""
        rows, columns = (min(count, _MOST_CELLS) for count in (self.num_replicas, self.num_partitions))
        cells = []
        for row in range(rows):
            first = row * self.num_partitions
            ranks = "".join(f"<td>{rank}</td>" for rank in range(first, first + columns))
            cells.append(f"<tr><th>replica {row}</th>{ranks}</tr>")
        head = "".join(f"<th>{at}</th>" for at in range(columns))
        more = "" if (rows, columns) == (self.num_replicas, self.num_partitions) else ", the first of them"
        title = f"{self} process grid, {self.size:,} ranks{more}"
        return f"<table><caption>{title}</caption><tr><th>partition</th>{head}</tr>{''.join(cells)}</table>"

    @property
    def size(self) -> int:
        """Return the number of processes."""
        return int(self.num_replicas) * int(self.num_partitions)

    def rank(self, process_id: ProcessId) -> int:
        """Return the rank of the process at ``process_id``."""
        return process_id.replica_id * self.num_partitions + process_id.partition_id

    def process_id(self, rank: int) -> ProcessId:
        """Return the position of process ``rank``; GroupError if the grid has no such rank."""
        if not 0 <= rank < self.size:
            raise grid_error(f"rank {rank} is outside the {self} process grid of {self.size} processes")
        return ProcessId(*divmod(rank, self.num_partitions))


class Groups(Sequence[Group]):
    """The process groups of a collective, computed on access: the cost does not depend on the size of the grid.

    Each row of ids denotes ``copies`` groups: ``ranks(row, copy)`` are the members of one, in group order, and
    ``locate(rank)`` is the (id, copy) that a rank belongs to.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[int]],
        copies: int,
        ranks: Callable[[Sequence[int], int], Sequence[int]],
        locate: Callable[[int], tuple[int, int]],
    ) -> None:
        self._rows, self._copies, self._ranks, self._locate = rows, copies, ranks, locate

    def __len__(self) -> int:
        return len(self._rows) * self._copies

    @overload
    def __getitem__(self, index: int) -> Group: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Group, ...]: ...

    def __getitem__(self, index: int | slice) -> Group | tuple[Group, ...]:
        if isinstance(index, slice):
            return tuple([self[at] for at in range(len(self))[index]])
        row, copy = divmod(range(len(self))[index], self._copies)
        return tuple(self._ranks(self._rows[row], copy))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def largest(self) -> int:
        """Return the size of the largest group."""
        return max(len(self._ranks(row, 0)) for row in self._rows)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the distinct sizes of the groups."""
        return tuple(sorted({len(self._ranks(row, 0)) for row in self._rows}))

    def find(self, rank: int) -> Group | None:
        """Return the group that contains ``rank``, or None."""
        id, copy = self._locate(rank)
        row = self._row_of(id)
        return None if row is None else self[row * self._copies + copy]

    def _row_of(self, id: int) -> int | None:
        if isinstance(self._rows[0], range):
            return 0 if id in self._rows[0] else None
        return self._row_by_id.get(id)

    @cached_property
    def _row_by_id(self) -> dict[int, int]:
        return {id: index for index, row in enumerate(self._rows) for id in row}


def _shown(groups: Sequence[Sequence[int]]) -> str:
    """Return the first groups as lists, with dots for the rest."""
    shown = [
        f"[{', '.join(map(str, group[:_MOST_SHOWN]))}{', ...' * (len(group) > _MOST_SHOWN)}]" for group in groups[:8]
    ]
    return f"[{', '.join(shown)}{', ...' if len(groups) > 8 else ''}]"


def cross_replica(grid: ProcessGrid, replica_groups: IdGroups) -> Groups:
    """Return groups of replicas, one per partition; without ids, all replicas form one group."""
    rows, width = _rows(replica_groups, grid.num_replicas, "replica"), grid.num_partitions
    return Groups(rows, width, lambda row, p: _affine(row, width, p), lambda rank: divmod(rank, width))


def cross_partition(grid: ProcessGrid, partition_groups: IdGroups) -> Groups:
    """Return groups of partitions, one per replica; without ids, all partitions form one group."""
    rows, width = _rows(partition_groups, grid.num_partitions, "partition"), grid.num_partitions
    return Groups(
        rows, grid.num_replicas, lambda row, r: _affine(row, 1, r * width), lambda rank: (rank % width, rank // width)
    )


def cross_replica_and_partition(grid: ProcessGrid, replica_groups: IdGroups) -> Groups:
    """Return groups of replicas over all partitions, the replica varying fastest; without ids, all processes."""
    rows, width = _rows(replica_groups, grid.num_replicas, "replica"), grid.num_partitions
    return Groups(
        rows,
        1,
        lambda row, _: [replica * width + p for p in range(width) for replica in row],
        lambda rank: (rank // width, 0),
    )


def flattened_ids(grid: ProcessGrid, flattened_id_groups: IdGroups) -> Groups:
    """Return groups of ranks as given; without ids, one group of all processes."""
    return Groups(_rows(flattened_id_groups, grid.size, "process"), 1, lambda row, _: row, lambda rank: (rank, 0))


def _affine(row: Sequence[int], scale: int, shift: int) -> Sequence[int]:
    """Return ``id * scale + shift`` of each id."""
    if isinstance(row, range):
        return range(row.start * scale + shift, row.stop * scale + shift, scale)
    return [id * scale + shift for id in row]


Strategy = Callable[[ProcessGrid, IdGroups], Groups]

#: Strategies of a family of operations by (channel_id > 0, use_global_device_ids).
Grouping = Mapping[tuple[bool, bool], Strategy]

#: Of all_gather and reductions. collective_reduce declares use_global_device_ids and forms groups as all_reduce does in
#: the reference interpreter; the prose of its section omits it.
REDUCING: Grouping = {
    (False, False): cross_replica,
    (True, False): cross_replica_and_partition,
    (True, True): flattened_ids,
}
MOVING: Grouping = {(False, False): cross_replica, (True, False): cross_partition}


def strategy_of(grouping: Grouping, op: str, channel_id: int = 0, use_global_device_ids: bool = False) -> Strategy:
    """Return the strategy of ``grouping`` by which ``op`` forms its process groups.

    Raises GroupError if ``use_global_device_ids`` is set without a positive ``channel_id`` (C4-C6 of the ops), or if
    the op has no such strategy.
    """
    chosen = grouping.get((channel_id > 0, use_global_device_ids))
    if chosen is not None:
        return chosen
    if channel_id > 0:
        raise GroupError(f"{op} takes no use_global_device_ids")
    raise GroupError(f"{op}: use_global_device_ids needs a positive channel_id, got {channel_id}")


def _rows(ids: Any, count: int, kind: str) -> Sequence[Sequence[int]]:
    """Return rows of ids without their -1 padding; without rows, one row of all ids.

    Raises GroupError unless the ids are distinct and in 0 <= id < count.
    """
    rows = [[int(x) for x in row] for row in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
    groups = tuple(row for row in (tuple(x for x in row if x != -1) for row in rows) if row)
    if not groups:
        return (range(count),)
    flat = [x for row in groups for x in row]
    outside = sorted({x for x in flat if not 0 <= x < count})
    if outside:
        raise GroupError(f"{kind} id {outside[0]} is out of range: there are {count} {kind} ids (0 to {count - 1})")
    if len(set(flat)) < len(flat):
        twice = min(id for id, times in Counter(flat).items() if times > 1)
        raise GroupError(f"{kind} id {twice} appears more than once in the groups {_shown(groups)}")
    return groups


def permute_pairs(grid: ProcessGrid, source_target_pairs: IdGroups, channel_id: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the (source, target) ranks of collective_permute, send and recv.

    Sources are distinct and targets are distinct, but an id may be both (collective_permute C2-C4), so each column is
    checked separately. Raises GroupError for repeated or missing ids.
    """
    pairs = np.asarray(source_target_pairs, dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        return ()
    across = strategy_of(MOVING, "collective_permute", channel_id)
    count = grid.num_partitions if across is cross_partition else grid.num_replicas
    kind = "partition" if across is cross_partition else "replica"
    for column, end in enumerate(("source", "target")):
        try:
            _column(pairs[:, column].tolist(), count, kind)
        except GroupError as error:
            raise GroupError(f"source_target_pairs, {end}: {error}") from None
    copies = np.arange(grid.size // count)[:, None]  # copies of each pair, one per id of the other kind
    ranks = pairs[:, None, :] + copies * count if kind == "partition" else pairs[:, None, :] * len(copies) + copies
    return tuple([(source, target) for source, target in ranks.reshape(-1, 2).tolist()])


def _column(ids: list[int], count: int, kind: str) -> None:
    if -1 in ids:
        raise GroupError(f"{kind} id -1 is out of range: there are {count} {kind} ids (0 to {count - 1})")
    _rows([ids], count, kind)
