"""What collectives do to who holds the same value: one rule an op, over the process groups as one array."""

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

#: A process that is in no group.
_NOBODY = -1


@dataclass(frozen=True)
class Groups:
    """The process groups of a collective: `members[group, index]` is a rank, or -1 beyond a short group's end.

    A collective_permute has a group a pair: source and target.
    """

    members: Labels

    @cached_property
    def tuples(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each group."""
        rows: list[list[int]] = self.members.tolist()
        return tuple(tuple(rank for rank in row if rank != _NOBODY) for row in rows)

    @cached_property
    def of_rank(self) -> dict[int, tuple[int, ...]]:
        """The group of each process that is in one."""
        return {rank: group for group in self.tuples for rank in group}

    @cached_property
    def pairs_of(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """The (source, target) pairs of a collective_permute in which each process stands."""
        found: dict[int, tuple[tuple[int, int], ...]] = {}
        for source, target in self.members.tolist():
            for rank in {source, target}:
                found[rank] = (*found.get(rank, ()), (source, target))
        return found

    def apart(self, part: Partition, active: Labels | None) -> list[int]:
        """Return the groups of which two members that are `active` (all, for None) have different labels."""
        if part.is_uniform or not self.members.size:
            return []
        there = self.members != _NOBODY
        if active is not None:
            there &= active[self.members].astype(bool)
        labels = part.labels[self.members]
        least = np.where(there, labels, np.iinfo(np.int64).max).min(axis=1)
        most = np.where(there, labels, -1).max(axis=1)
        found: list[int] = np.flatnonzero(least < most).tolist()
        return found


def groups_of(op: Op, grid: ProcessGrid, module: Module) -> Groups:
    """Return the groups of the collective `op`. CollectiveError where the grid does not have them."""
    if op.name == "stablehlo.collective_permute":
        return Groups(np.array(process_pairs(op, grid), np.int64).reshape(-1, 2))
    rows = [list(group) for group in process_groups(op, grid, module)]
    width = max(map(len, rows), default=0)
    return Groups(np.array([[*row, *[_NOBODY] * (width - len(row))] for row in rows], np.int64).reshape(-1, width))


def signature(op: Op) -> Hashable:
    """What all members of a group must agree on when they meet: the op, shapes, types, dimensions, the reduction."""
    attributes = {name: value for name, value in op.attributes.items() if name not in _OF_GROUPS}
    reducer: Hashable = None
    if op.regions:
        monoid = monoid_of(op.regions[0])
        reducer = tuple(inner.name for inner in op.regions[0].block.ops) if monoid is None else monoid.kind
    return (op.name, tuple(map(str, op.operand_types)), repr(sorted(attributes.items())), reducer)


_OF_GROUPS = ("replica_groups", "channel_handle", "use_global_device_ids", "source_target_pairs")


def after(op: Op, groups: Groups, part: Partition, roots: Partition, partitions: Partitions) -> Partition:
    """Who holds the same result of the collective `op` on an operand of `part`; `roots` is a dynamic root's."""
    rule = _RULES.get(op.name, _everything)
    return rule(op, groups, part, partitions) if roots.is_uniform else partitions.distinct


def _by_group(groups: Groups, part: Partition) -> Labels:
    """Return a label a group: equal for groups whose members hold the same values, in the group's order."""
    values = np.where(groups.members == _NOBODY, _NOBODY, part.labels[groups.members])
    return numbered(values)


def _spread(groups: Groups, labels: Labels, outside: Labels, count: int) -> Labels:
    """Labels a process from `labels` of (group, index), or of (group, 1) for all members; `outside` for the others."""
    there = groups.members != _NOBODY
    result = outside + (int(labels.max(initial=0)) + 1)
    result = np.broadcast_to(result, count).copy()
    result[groups.members[there]] = np.broadcast_to(labels, groups.members.shape)[there]
    return result


def _everything(op: Op, groups: Groups, part: Partition, partitions: Partitions) -> Partition:
    """Return every member gets what all of its group have: all_reduce, all_gather."""
    labels = _by_group(groups, part)[:, np.newaxis]
    return partitions.of(_spread(groups, labels, np.arange(partitions.size), partitions.size))


def _share(op: Op, groups: Groups, part: Partition, partitions: Partitions) -> Partition:
    """Return each member gets a share of what all have: reduce_scatter, all_to_all."""
    width = groups.members.shape[1]
    labels = _by_group(groups, part)[:, np.newaxis] * width + np.arange(width)
    return partitions.of(_spread(groups, labels, np.arange(partitions.size), partitions.size))


def _from_root(op: Op, groups: Groups, part: Partition, partitions: Partitions) -> Partition:
    """Return every member gets what the first has; a process in no group gets zeros."""
    root = root_of(op)
    if root is None:
        return _everything(op, groups, part, partitions)
    labels = part.labels[groups.members[:, root]][:, np.newaxis]
    return partitions.of(_spread(groups, labels, np.zeros(1, np.int64), partitions.size))


def _to_root(op: Op, groups: Groups, part: Partition, partitions: Partitions) -> Partition:
    """Return the root gets what all have, the others their own, or zeros."""
    return partitions.join([_share(op, groups, part, partitions), part])


def _permuted(op: Op, groups: Groups, part: Partition, partitions: Partitions) -> Partition:
    """Return each target gets what its source has; who is no target gets zeros."""
    labels = np.full(partitions.size, -1, np.int64)
    labels[groups.members[:, 1]] = part.labels[groups.members[:, 0]]
    return partitions.of(labels)


def paired(groups: Groups, part: Partition, partitions: Partitions) -> Partition:
    """Who holds the same pair, in any order, of a value of `part` and what a permutation by `groups` brings of it."""
    brought = np.full(partitions.size, -1, np.int64)
    brought[groups.members[:, 1]] = part.labels[groups.members[:, 0]]
    return partitions.of_rows(np.sort(np.stack([part.labels, brought], axis=1), axis=1))


def root_of(op: Op) -> int | None:
    """Return the index of the root in each group; None where the program computes it."""
    if not op.attributes.get("has_dynamic_root"):
        return 0
    root = constant_array(op.operands[-1].defining_op)
    return None if root is None or root.size != 1 else int(root.reshape(()))


_RULES: dict[str, Callable[[Op, Groups, Partition, Partitions], Partition]] = {
    "stablehlo.reduce_scatter": _share,
    "stablehlo.all_to_all": _share,
    "stablehlo.collective_broadcast": _from_root,
    "stablehlo.collective_reduce": _to_root,
    "stablehlo.collective_permute": _permuted,
}


def members_text(ranks: Sequence[int]) -> str:
    """`process 3`, or `processes 0, 1, 2, ... and 4,093 more`."""
    if len(ranks) == 1:
        return f"process {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"processes {shown}" + (f" and {len(ranks) - 8:,} more" if len(ranks) > 8 else "")
