"""How collectives change the partition of processes by equal values; groups are handled as one array."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.constants import constant_array
from spmd.analysis.process_groups import process_groups, process_pairs
from spmd.analysis.reducers import monoid_of
from spmd.analysis.varying.partitions import Labels, Partition, Partitions, numbered
from spmd.ir import Module, Op

#: Fills the rows of short groups.
_PADDING = -1


@dataclass(frozen=True)
class GroupArray:
    """The process groups of a collective: `members[group, index]` is a rank, or -1 past the end of a short group.

    A collective_permute has one group (source, target) per pair.
    """

    members: Labels

    @cached_property
    def tuples(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each group."""
        rows: list[list[int]] = self.members.tolist()
        return tuple(tuple(rank for rank in row if rank != _PADDING) for row in rows)

    @cached_property
    def of_rank(self) -> dict[int, tuple[int, ...]]:
        """The group of each process, for those that are in one."""
        return {rank: group for group in self.tuples for rank in group}

    @cached_property
    def pairs_of(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """The (source, target) pairs of a collective_permute that contain each process."""
        found: dict[int, tuple[tuple[int, int], ...]] = {}
        for source, target in self.members.tolist():
            for rank in {source, target}:
                found[rank] = (*found.get(rank, ()), (source, target))
        return found

    def divided(self, partition: Partition, active: Labels | None) -> list[int]:
        """Return the groups in which two `active` members (None: all) have different labels."""
        if partition.is_uniform or not self.members.size:
            return []
        there = self.members != _PADDING
        if active is not None:
            there &= active[self.members].astype(bool)
        labels = partition.labels[self.members]
        least = np.where(there, labels, np.iinfo(np.int64).max).min(axis=1)
        most = np.where(there, labels, -1).max(axis=1)
        found: list[int] = np.flatnonzero(least < most).tolist()
        return found


def groups_of(op: Op, grid: ProcessGrid, module: Module) -> GroupArray:
    """Return the groups of collective `op`. Raises CollectiveError if they do not fit the grid."""
    if op.name == "stablehlo.collective_permute":
        return GroupArray(np.array(process_pairs(op, grid), np.int64).reshape(-1, 2))
    rows = [list(group) for group in process_groups(op, grid, module)]
    width = max(map(len, rows), default=0)
    return GroupArray(np.array([[*row, *[_PADDING] * (width - len(row))] for row in rows], np.int64).reshape(-1, width))


def signature(op: Op) -> Hashable:
    """Return what all members of a group must agree on: op, operand types, attributes and reduction."""
    attributes = {name: value for name, value in op.attributes.items() if name not in _OF_GROUPS}
    reducer: Hashable = None
    if op.regions:
        monoid = monoid_of(op.regions[0])
        reducer = tuple(inner.name for inner in op.regions[0].block.ops) if monoid is None else monoid.kind
    return (op.name, tuple(map(str, op.operand_types)), repr(sorted(attributes.items())), reducer)


_OF_GROUPS = ("replica_groups", "channel_handle", "use_global_device_ids", "source_target_pairs")


def after(op: Op, groups: GroupArray, partition: Partition, roots: Partition, partitions: Partitions) -> Partition:
    """Return the partition of the result of collective `op`; `partition` is the operand's, `roots` a dynamic root's."""
    rule = _RULES.get(op.name, _gathered)
    return rule(op, groups, partition, partitions) if roots.is_uniform else partitions.distinct


def _by_group(groups: GroupArray, partition: Partition) -> Labels:
    """Return a label per group, equal for groups whose members hold equal values in the same order."""
    values = np.where(groups.members == _PADDING, _PADDING, partition.labels[groups.members])
    return numbered(values)


def _spread(groups: GroupArray, labels: Labels, outside: Labels, count: int) -> Labels:
    """Return a label per process from labels of shape (group, index) or (group, 1); `outside` for non-members."""
    there = groups.members != _PADDING
    result = outside + (int(labels.max(initial=0)) + 1)
    result = np.broadcast_to(result, count).copy()
    result[groups.members[there]] = np.broadcast_to(labels, groups.members.shape)[there]
    return result


def _gathered(op: Op, groups: GroupArray, partition: Partition, partitions: Partitions) -> Partition:
    """Return the partition after ops that give every member the values of all: all_reduce, all_gather."""
    labels = _by_group(groups, partition)[:, np.newaxis]
    return partitions.of(_spread(groups, labels, np.arange(partitions.size), partitions.size))


def _scattered(op: Op, groups: GroupArray, partition: Partition, partitions: Partitions) -> Partition:
    """Return the partition after ops that give each member its own part: reduce_scatter, all_to_all."""
    width = groups.members.shape[1]
    labels = _by_group(groups, partition)[:, np.newaxis] * width + np.arange(width)
    return partitions.of(_spread(groups, labels, np.arange(partitions.size), partitions.size))


def _from_root(op: Op, groups: GroupArray, partition: Partition, partitions: Partitions) -> Partition:
    """Return the partition after a broadcast: members get the root's value, other processes zeros."""
    root = root_of(op)
    if root is None:
        return _gathered(op, groups, partition, partitions)
    labels = partition.labels[groups.members[:, root]][:, np.newaxis]
    return partitions.of(_spread(groups, labels, np.zeros(1, np.int64), partitions.size))


def _to_root(op: Op, groups: GroupArray, partition: Partition, partitions: Partitions) -> Partition:
    """Return the partition after a reduce to a root; other members keep their own value, or zeros."""
    return partitions.join([_scattered(op, groups, partition, partitions), partition])


def _permuted(op: Op, groups: GroupArray, partition: Partition, partitions: Partitions) -> Partition:
    """Return the partition after a permutation: each target gets its source's value, other processes zeros."""
    labels = np.full(partitions.size, -1, np.int64)
    labels[groups.members[:, 1]] = partition.labels[groups.members[:, 0]]
    return partitions.of(labels)


def paired(groups: GroupArray, partition: Partition, partitions: Partitions) -> Partition:
    """Return the partition of the unordered pair of a value of `partition` and its permutation by `groups`."""
    brought = np.full(partitions.size, -1, np.int64)
    brought[groups.members[:, 1]] = partition.labels[groups.members[:, 0]]
    return partitions.of_rows(np.sort(np.stack([partition.labels, brought], axis=1), axis=1))


def root_of(op: Op) -> int | None:
    """Return the index of the root in each group; None if it is not a constant."""
    if not op.attributes.get("has_dynamic_root"):
        return 0
    root = constant_array(op.operands[-1].defining_op)
    return None if root is None or root.size != 1 else int(root.reshape(()))


_RULES: dict[str, Callable[[Op, GroupArray, Partition, Partitions], Partition]] = {
    "stablehlo.reduce_scatter": _scattered,
    "stablehlo.all_to_all": _scattered,
    "stablehlo.collective_broadcast": _from_root,
    "stablehlo.collective_reduce": _to_root,
    "stablehlo.collective_permute": _permuted,
}


def members_text(ranks: Sequence[int]) -> str:
    """Return `process 3`, or `processes 0, 1, 2, ... and 4,093 more`."""
    if len(ranks) == 1:
        return f"process {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"processes {shown}" + (f" and {len(ranks) - 8:,} more" if len(ranks) > 8 else "")
