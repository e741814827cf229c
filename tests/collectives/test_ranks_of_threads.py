"""Processes that are threads of several ranks give what the specification says, whatever rank has which of them."""

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from collectives import ADD, AllGather, AllReduce, CommunicationError
from collectives.communicator import Communicator
from collectives.ranks_of_threads import RankOfThreads, ThreadOfRank
from collectives.threads import run
from tests.collectives.cases import CollectiveCase, cases, same
from tests.effort import examples

F32 = np.dtype(np.float32)


def run_on(owners: Sequence[int], process: object) -> list[object]:
    """What each process gives, those of a rank being threads of a thread that stands for it."""

    def of_rank(ranks: Communicator) -> list[tuple[int, object]]:
        rank = RankOfThreads(ranks, owners)
        return list(zip(rank.own, rank.run(lambda place: process(rank.communicators[place])), strict=True))  # type: ignore[operator]

    found = [pair for pairs in run(max(owners) + 1, of_rank) for pair in pairs]
    return [result for _, result in sorted(found, key=lambda pair: pair[0])]


@settings(max_examples=examples(200))
@given(case=cases(), data=st.data())
def test_collectives_mean_what_the_specification_says(case: CollectiveCase, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, case.grid.size))
    others = data.draw(
        st.lists(st.integers(0, ranks - 1), min_size=case.grid.size - ranks, max_size=case.grid.size - ranks)
    )
    owners = data.draw(st.permutations([*range(ranks), *others]))
    expected = case.expected()
    for rank, result in enumerate(run_on(owners, case.run)):
        assert same(result, expected[rank]), f"process {rank} of {owners}: {result!r}, {expected[rank]!r} is meant"


def test_a_process_in_no_group_passes_by() -> None:
    def process(communicator: ThreadOfRank) -> float:
        if communicator.rank == 1:
            communicator.pass_by()
            return 0.0
        call = communicator.group((0, 2, 3)).bind(AllReduce((), F32, ADD))
        return float(call(np.array(communicator.rank, F32)))

    assert run_on([0, 0, 1, 1], process) == [5.0, 0.0, 5.0, 5.0]


def test_objects_are_gathered_in_the_order_of_the_processes() -> None:
    def process(communicator: ThreadOfRank) -> list[int]:
        communicator.barrier()
        return communicator.allgather_object(10 * communicator.rank)

    assert run_on([1, 0, 1, 0, 0], process) == [[0, 10, 20, 30, 40]] * 5


def test_threads_of_a_rank_that_come_to_different_calls_are_told() -> None:
    def process(communicator: ThreadOfRank) -> None:
        operation = AllGather((2,), F32, 0) if communicator.rank else AllReduce((2,), F32, ADD)
        communicator.bind(operation, f"step.mlir:{communicator.rank}")(np.zeros(2, F32))

    with pytest.raises(CommunicationError, match=r"all_gather of 2 float32, dim 0 at step.mlir:1; all_reduce"):
        run_on([0, 0], process)
