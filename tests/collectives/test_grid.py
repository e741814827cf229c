"""Strategies: the specification's own examples ("Collective ops"), and ids that do not fit."""

import numpy as np
import pytest

import collectives as c


def ids(grid: c.ProcessGrid, groups: tuple[tuple[int, ...], ...]) -> list[list[tuple[int, int]]]:
    return [[(p.replica_id, p.partition_id) for p in map(grid.process_id, group)] for group in groups]


def test_cross_replica() -> None:
    grid = c.ProcessGrid(4, 2)
    assert ids(grid, c.cross_replica(grid, [[0, 1], [2, 3]])) == [
        [(0, 0), (1, 0)], [(0, 1), (1, 1)], [(2, 0), (3, 0)], [(2, 1), (3, 1)],
    ]  # fmt: skip


def test_cross_partition() -> None:
    grid = c.ProcessGrid(4, 2)
    assert ids(grid, c.cross_partition(grid, [[0, 1]])) == [
        [(0, 0), (0, 1)], [(1, 0), (1, 1)], [(2, 0), (2, 1)], [(3, 0), (3, 1)],
    ]  # fmt: skip


def test_cross_replica_and_partition() -> None:
    grid = c.ProcessGrid(4, 2)
    assert ids(grid, c.cross_replica_and_partition(grid, [[0, 1], [2, 3]])) == [
        [(0, 0), (1, 0), (0, 1), (1, 1)], [(2, 0), (3, 0), (2, 1), (3, 1)],
    ]  # fmt: skip


def test_flattened_ids() -> None:
    grid = c.ProcessGrid(4, 2)
    assert ids(grid, c.flattened_ids(grid, [[0, 1, 2, 3], [4, 5, 6, 7]])) == [
        [(0, 0), (0, 1), (1, 0), (1, 1)], [(2, 0), (2, 1), (3, 0), (3, 1)],
    ]  # fmt: skip


def test_no_groups_are_one_group_of_all_that_the_strategy_joins() -> None:
    grid = c.ProcessGrid(2, 2)
    empty = np.empty((0, 0), np.int64)
    assert c.cross_replica(grid, empty) == ((0, 2), (1, 3))
    assert c.cross_partition(grid, empty) == ((0, 1), (2, 3))
    assert c.cross_replica_and_partition(grid, empty) == ((0, 2, 1, 3),)
    assert c.flattened_ids(grid, empty) == ((0, 1, 2, 3),)


def test_minus_one_pads_ragged_groups() -> None:
    assert c.flattened_ids(c.ProcessGrid(3, 1), [[2, 0], [1, -1]]) == ((2, 0), (1,))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([[0, 2]], "replica id 2 is out of range: there are 2"),
        ([[0, 1], [1, -1]], "replica id 1 appears more than once"),
    ],
)
def test_ids_must_be_unique_and_exist(groups: list[list[int]], words: str) -> None:
    with pytest.raises(c.GroupError, match=words):
        c.cross_replica(c.ProcessGrid(2, 1), groups)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "collective_reduce"])
def test_the_strategy_of_ops_with_global_ids(op: str) -> None:
    assert c.strategy(op) is c.cross_replica
    assert c.strategy(op, 1) is c.cross_replica_and_partition
    assert c.strategy(op, 1, True) is c.flattened_ids
    with pytest.raises(c.GroupError, match="use_global_device_ids needs a positive channel_id"):
        c.strategy(op, 0, True)


@pytest.mark.parametrize("op", ["all_to_all", "collective_broadcast", "collective_permute"])
def test_the_strategy_of_ops_across_partitions(op: str) -> None:
    assert c.strategy(op) is c.cross_replica
    assert c.strategy(op, 1) is c.cross_partition


def test_pairs_are_of_replicas_or_of_partitions() -> None:
    grid = c.ProcessGrid(2, 3)
    assert set(c.permute_pairs(grid, [[0, 1]])) == {(0, 3), (1, 4), (2, 5)}
    assert set(c.permute_pairs(grid, [[0, 2], [2, 0]], 1)) == {(0, 2), (3, 5), (2, 0), (5, 3)}
    with pytest.raises(c.GroupError, match="target: replica id 2 is out of range"):
        c.permute_pairs(grid, [[0, 2]])
    with pytest.raises(c.GroupError, match="source: replica id 0 appears more than once"):
        c.permute_pairs(grid, [[0, 1], [0, 0]])
