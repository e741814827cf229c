"""What collectives send by each algorithm, and how long that takes on a network of levels."""

from math import ceil, log2

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import operations as op
from collectives.algorithms import ALGORITHMS, HALVING, RING, TREE, in_all, rounds, wire_bytes
from collectives.errors import CommunicationError
from collectives.network import Level, Network
from collectives.operations import Operation
from collectives.reduction import ADD
from tests.collectives.behaviours import HalfOfNext
from tests.effort import examples

F32 = np.dtype(np.float32)


def sent(operation: Operation, size: int, algorithm: str) -> float:
    return sum(each.times * each.nbytes for each in rounds(operation, size, algorithm))


def turns(operation: Operation, size: int, algorithm: str) -> int:
    return sum(each.times for each in rounds(operation, size, algorithm))


@given(st.integers(2, 100), st.integers(1, 50))
def test_rings_send_what_is_known_of_them(size: int, part: int) -> None:
    n = 4 * size * part
    reduced, scattered = (
        op.AllReduce((size * part,), F32, ADD),
        op.ReduceScatter((size * part,), F32, ADD, 0),
    )
    assert sent(reduced, size, RING) == pytest.approx(2 * n * (size - 1) / size)
    assert sent(scattered, size, RING) == pytest.approx(n * (size - 1) / size)
    assert sent(op.AllGather((part,), F32, 0), size, RING) == 4 * part * (size - 1)
    assert sent(op.AllToAll((size * part,), F32, 0, 0, size), size, RING) == pytest.approx(n * (size - 1) / size)
    assert turns(reduced, size, RING) == 2 * (size - 1) and turns(scattered, size, RING) == size - 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_has_no_algorithm_of_its_own_goes_to_everybody(algorithm: str) -> None:
    gathered = op.AllGather((6,), F32, 0)
    if algorithm != TREE:  # by which gathered parts go to the root first
        assert rounds(HalfOfNext((6,), F32), 5, algorithm) == rounds(gathered, 5, algorithm)
    assert sent(HalfOfNext((6,), F32), 5, algorithm) == 4 * 24
    assert sent(op.Barrier(), 5, algorithm) == 0 < turns(op.Barrier(), 5, algorithm)


@given(st.integers(1, 8), st.integers(1, 50))
def test_recursive_halving_sends_no_more_in_fewer_rounds(place: int, part: int) -> None:
    size = 1 << place
    for operation in (
        op.AllReduce((size * part,), F32, ADD),
        op.ReduceScatter((size * part,), F32, ADD, 0),
        op.AllGather((part,), F32, 0),
    ):
        assert sent(operation, size, HALVING) == pytest.approx(sent(operation, size, RING))
        assert turns(operation, size, HALVING) == turns(operation, size, RING) * place / (size - 1)


@pytest.mark.parametrize("size", [2, 4, 8, 32])
def test_the_quickest_algorithms_send_what_is_counted_of_all_processes(size: int) -> None:
    shape = (8 * size,)
    for algorithm, operation in (
        (RING, op.AllReduce(shape, F32, ADD)),
        (HALVING, op.AllReduce(shape, F32, ADD)),
        (RING, op.ReduceScatter(shape, F32, ADD, 0)),
        (HALVING, op.ReduceScatter(shape, F32, ADD, 0)),
        (RING, op.AllGather(shape, F32, 0)),
        (HALVING, op.AllGather(shape, F32, 0)),
        (RING, op.AllToAll(shape, F32, 0, 0, size)),
        (TREE, op.CollectiveBroadcast(shape, F32)),
        (TREE, op.CollectiveReduce(shape, F32, ADD)),
        (RING, HalfOfNext(shape, F32)),
    ):
        nbytes = wire_bytes(operation)
        assert in_all(rounds(operation, size, algorithm), size) == pytest.approx(operation.total(nbytes, size)), (
            operation.name
        )
        sent, received = operation.traffic(nbytes, size)
        assert max(sent, received) * size >= operation.total(nbytes, size)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_tree_reaches_each_process_once(size: int) -> None:
    broadcast = op.CollectiveBroadcast((8 * size,), F32)
    reached = [0]
    for each in rounds(broadcast, size, TREE):
        senders, receivers = each.pairs(size)
        assert set(senders) <= set(reached)
        reached += receivers.tolist()
    assert sorted(reached) == list(range(size))


def test_a_broadcast_over_nodes_crosses_once_to_each() -> None:
    nodes = Network((Level("node", 8, 1e-6, 1e10, HALVING), Level("rack", None, 1e-5, 1e10, "hierarchical")))
    traffic = nodes.collective(op.CollectiveBroadcast((2048,), F32), np.arange(40)[None])
    assert traffic.bytes[1] == 4 * 8192


@given(st.integers(2, 100))
def test_trees_have_a_round_a_level(size: int) -> None:
    depth = ceil(log2(size))
    assert turns(op.CollectiveBroadcast((5,), F32), size, TREE) == depth
    assert sent(op.CollectiveReduce((5,), F32, ADD), size, TREE) == 20 * depth
    assert sent(op.AllReduce((5,), F32, ADD), size, TREE) == 40 * depth
    assert turns(op.Barrier(), size, TREE) == depth and sent(op.Barrier(), size, TREE) == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_travels_in_a_group_of_one_or_of_empty_operands(algorithm: str) -> None:
    assert rounds(op.AllReduce((3,), F32, ADD), 1, algorithm) == ()
    assert rounds(op.AllGather((0, 3), F32, 0), 4, algorithm) == ()


def test_what_travels_is_widened_or_packed() -> None:
    assert wire_bytes(op.AllReduce((10,), np.dtype(ml_dtypes.bfloat16), ADD)) == 40
    assert wire_bytes(op.AllReduce((10,), np.dtype(ml_dtypes.bfloat16), ADD, reproducible=True)) == 20
    assert wire_bytes(op.AllGather((10,), np.dtype(ml_dtypes.bfloat16), 0)) == 20
    assert wire_bytes(op.AllGather((10,), np.dtype(ml_dtypes.int4), 0)) == 5


def test_an_algorithm_that_is_none_is_named() -> None:
    with pytest.raises(CommunicationError, match="ring, tree, recursive_halving, got 'star'"):
        rounds(op.AllReduce((3,), F32, ADD), 4, "star")


# --- networks ---

NODES = Network((Level("node", 4, 1e-6, 1e10), Level("rack", None, 1e-5, 1e9, uplink=2e9)))


def test_a_message_goes_over_the_lowest_level_that_holds_both_ends() -> None:
    ranks = np.array([0, 0, 0, 3, 4])
    assert NODES.level_of(ranks, np.array([0, 3, 4, 4, 7])).tolist() == [-1, 0, 1, 1, 0]


def test_messages_that_leave_a_unit_share_its_uplink() -> None:
    inside, one, four = (NODES.exchange(np.arange(n), np.arange(n) + by, 1000) for n, by in ((1, 1), (1, 4), (4, 4)))
    assert inside.seconds.tolist() == pytest.approx([1e-6 + 1e-7])
    assert one.seconds.tolist() == pytest.approx([1e-5 + 1e-6])  # as fast as the level
    assert four.seconds.tolist() == pytest.approx([1e-5 + 2e-6] * 4)  # each a quarter of the uplink
    assert inside.bytes.tolist() == [1000, 0] and four.bytes.tolist() == [0, 4000]


def test_a_ring_crosses_each_boundary_once_at_a_time() -> None:
    operation = op.AllReduce((8000,), F32, ADD)
    traffic = NODES.flat(operation, np.arange(8)[None], RING)
    assert traffic.seconds[0] == pytest.approx(14 * (1e-5 + 4000 / 1e9))
    assert traffic.bytes.tolist() == pytest.approx([14 * 6 * 4000, 14 * 2 * 4000])


def test_groups_within_nodes_are_quicker_than_groups_across() -> None:
    operation = op.AllReduce((8000,), F32, ADD)
    within = NODES.collective(operation, np.arange(8).reshape(2, 4))
    across = NODES.collective(operation, np.arange(8).reshape(4, 2).T)
    assert (within.seconds < across.seconds[:1]).all() and within.bytes[1] == 0


def test_level_by_level_sends_less_over_the_upper_levels() -> None:
    levels = (NODES.levels[0], Level("rack", None, 1e-5, 1e9, "hierarchical", 2e9))
    group = np.arange(16)[None]
    for operation in (
        op.AllReduce((1 << 16,), F32, ADD),
        op.ReduceScatter((1 << 16,), F32, ADD, 0),
        op.AllGather((1 << 12,), F32, 0),
        op.CollectiveBroadcast((1 << 16,), F32),
    ):
        flat, layered = NODES.flat(operation, group, HALVING), Network(levels).collective(operation, group)
        assert layered.bytes[1] <= flat.bytes[1]
        assert layered.seconds[0] < NODES.flat(operation, group, RING).seconds[0]


def test_an_exchange_of_all_with_all_is_bound_by_the_uplink() -> None:
    operation = op.AllToAll((8 << 17,), F32, 0, 0, 8)
    part = 4 << 17
    traffic = NODES.flat(operation, np.arange(8)[None], RING)
    assert traffic.bytes.tolist() == [8 * 3 * part, 8 * 4 * part]
    assert traffic.seconds[0] >= 4 * 4 * part / 2e9


KINDS: list[Operation] = [
    op.AllReduce((64,), F32, ADD),
    op.ReduceScatter((64,), F32, ADD, 0),
    op.AllGather((64,), F32, 0),
    op.CollectiveBroadcast((64,), F32),
    op.CollectiveReduce((64,), F32, ADD),
    op.AllToAll((64,), F32, 0, 0, 8),
    op.Barrier(),
]


@settings(max_examples=examples(40))
@given(
    st.sampled_from(KINDS),
    st.sampled_from([*ALGORITHMS, "hierarchical"]),
    st.permutations(range(16)),
    st.sampled_from([1.0, 4.0]),
)
def test_any_collective_on_any_groups(operation: Operation, algorithm: str, order: list[int], factor: float) -> None:
    levels = (Level("node", 4, 1e-6, 1e10, algorithm), Level("rack", 8, 1e-5, 1e9, algorithm, 2e9))
    network = Network((*levels, Level("all", None, 1e-4, 1e8, algorithm, 3e8)))
    groups = np.array(order).reshape(2, 8)
    traffic = network.collective(operation, groups)
    assert traffic.seconds.shape == (2,) and (traffic.seconds > 0).all() and (traffic.bytes >= 0).all()
    slower = network.slower(factor).collective(operation, groups)
    assert slower.seconds == pytest.approx(traffic.seconds * factor)
    assert slower.bytes == pytest.approx(traffic.bytes)


def test_a_permutation_is_one_round() -> None:
    assert rounds(op.CollectivePermute((5,), F32, ((0, 1),)), 2, TREE) == rounds(
        op.CollectivePermute((5,), F32, ((0, 1),)), 2, RING
    )
