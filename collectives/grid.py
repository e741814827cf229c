"""The process grid and the four strategies that split it into process groups.

Source: StableHLO specification, "Parallel execution" and "Collective ops". A process is named by its rank,
``replica_id * num_partitions + partition_id``; a group is a tuple of ranks whose order is the group's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.errors import GroupError

Groups = tuple[tuple[int, ...], ...]
IdGroups = npt.ArrayLike | Sequence[Sequence[int]]


@dataclass(frozen=True, order=True)
class ProcessId:
    """A process's position in the grid."""

    replica_id: int
    partition_id: int

    def __str__(self) -> str:
        return f"({self.replica_id}, {self.partition_id})"


@dataclass(frozen=True)
class ProcessGrid:
    """``num_replicas`` by ``num_partitions`` processes."""

    num_replicas: int = 1
    num_partitions: int = 1

    def __post_init__(self) -> None:
        for name in ("num_replicas", "num_partitions"):
            if getattr(self, name) < 1:
                raise GroupError(f"{name} must be at least 1, got {getattr(self, name)}")

    def __str__(self) -> str:
        return f"{self.num_replicas}x{self.num_partitions}"

    @property
    def size(self) -> int:
        """The number of processes."""
        return self.num_replicas * self.num_partitions

    def rank(self, process_id: ProcessId) -> int:
        """The rank of the process at ``process_id``."""
        return process_id.replica_id * self.num_partitions + process_id.partition_id

    def process_id(self, rank: int) -> ProcessId:
        """The position of the process of rank ``rank``."""
        if not 0 <= rank < self.size:
            raise GroupError(f"rank {rank} is outside the {self} process grid of {self.size} processes")
        return ProcessId(*divmod(rank, self.num_partitions))


def cross_replica(grid: ProcessGrid, replica_groups: IdGroups) -> Groups:
    """Groups of replicas, one for each partition; no ids: one group of all replicas."""
    rows = _rows(replica_groups, grid.num_replicas, "replica")
    partitions = range(grid.num_partitions)
    return tuple(tuple(replica * grid.num_partitions + p for replica in row) for row in rows for p in partitions)


def cross_partition(grid: ProcessGrid, partition_groups: IdGroups) -> Groups:
    """Groups of partitions, one for each replica; no ids: one group of all partitions."""
    rows = _rows(partition_groups, grid.num_partitions, "partition")
    replicas = range(grid.num_replicas)
    return tuple(tuple(r * grid.num_partitions + partition for partition in row) for row in rows for r in replicas)


def cross_replica_and_partition(grid: ProcessGrid, replica_groups: IdGroups) -> Groups:
    """Groups of replicas joined over all partitions, the replica varying fastest; no ids: all processes."""
    rows = _rows(replica_groups, grid.num_replicas, "replica")
    partitions = range(grid.num_partitions)
    return tuple(tuple(replica * grid.num_partitions + p for p in partitions for replica in row) for row in rows)


def flattened_ids(grid: ProcessGrid, flattened_id_groups: IdGroups) -> Groups:
    """Groups of ranks as they are given; no ids: one group of all processes."""
    return _rows(flattened_id_groups, grid.size, "process")


Strategy = Callable[[ProcessGrid, IdGroups], Groups]

# Which strategy serves (channel_id > 0, use_global_device_ids), a family of ops at a time.
_REDUCING: dict[tuple[bool, bool], Strategy] = {
    (False, False): cross_replica,
    (True, False): cross_replica_and_partition,
    (True, True): flattened_ids,
}
_MOVING: dict[tuple[bool, bool], Strategy] = {(False, False): cross_replica, (True, False): cross_partition}

# collective_reduce is declared with use_global_device_ids and groups as all_reduce does in the reference
# interpreter, which the prose of its section leaves out.
_STRATEGIES: dict[str, dict[tuple[bool, bool], Strategy]] = {
    "all_gather": _REDUCING,
    "all_reduce": _REDUCING,
    "reduce_scatter": _REDUCING,
    "collective_reduce": _REDUCING,
    "all_to_all": _MOVING,
    "collective_broadcast": _MOVING,
    "collective_permute": _MOVING,
}


def strategy(op: str, channel_id: int = 0, use_global_device_ids: bool = False) -> Strategy:
    """The strategy by which ``op`` (its name without the dialect) groups processes.

    Raises GroupError when ``use_global_device_ids`` is set without a positive ``channel_id`` (C4-C6 of the ops).
    """
    chosen = _STRATEGIES[op].get((channel_id > 0, use_global_device_ids))
    if chosen is not None:
        return chosen
    if channel_id > 0:
        raise GroupError(f"{op} takes no use_global_device_ids")
    raise GroupError(f"{op}: use_global_device_ids needs a positive channel_id, got {channel_id}")


def find_group(groups: Groups, rank: int) -> tuple[int, ...] | None:
    """The group that holds ``rank``, or None."""
    return next((group for group in groups if rank in group), None)


def _rows(ids: Any, count: int, kind: str) -> Groups:
    """Rows of ids without their -1 padding, checked: unique, and 0 <= id < count. No rows: one row of all ids."""
    rows = [[int(x) for x in row] for row in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
    groups = tuple(row for row in (tuple(x for x in row if x != -1) for row in rows) if row)
    if not groups:
        return (tuple(range(count)),)
    flat = [x for row in groups for x in row]
    outside = sorted({x for x in flat if not 0 <= x < count})
    if outside:
        raise GroupError(f"{kind} id {outside[0]} is out of range: there are {count} {kind} ids (0 to {count - 1})")
    twice = sorted({x for x in flat if flat.count(x) > 1}) if len(set(flat)) < len(flat) else []
    if twice:
        raise GroupError(f"{kind} id {twice[0]} appears more than once in the groups {[list(g) for g in groups]}")
    return groups


def permute_pairs(
    grid: ProcessGrid, source_target_pairs: IdGroups, channel_id: int = 0
) -> tuple[tuple[int, int], ...]:
    """The (source, target) ranks of collective_permute, send and recv.

    Sources are unique and targets are unique, yet an id may be both (collective_permute C2-C4), so each column is
    checked by itself.
    """
    pairs = np.asarray(source_target_pairs, dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        return ()
    across = strategy("collective_permute", channel_id)
    count = grid.num_partitions if across is cross_partition else grid.num_replicas
    kind = "partition" if across is cross_partition else "replica"
    for column, end in enumerate(("source", "target")):
        try:
            _column(pairs[:, column].tolist(), count, kind)
        except GroupError as error:
            raise GroupError(f"source_target_pairs, {end}: {error}") from None
    return tuple(
        (across(grid, [[source]])[i][0], across(grid, [[target]])[i][0])
        for source, target in pairs.tolist()
        for i in range(grid.size // count)
    )


def _column(ids: list[int], count: int, kind: str) -> None:
    if -1 in ids:
        raise GroupError(f"{kind} id -1 is out of range: there are {count} {kind} ids (0 to {count - 1})")
    _rows([ids], count, kind)
