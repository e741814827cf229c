"""Processes of some of the ranks, in any order."""

import numpy as np
import pytest

from collectives import failure
from collectives.grid import ProcessGrid
from spmd.runtime import world

pytestmark = pytest.mark.mpi


def test_ranks_in_another_order_count_in_it_and_leave_the_records_as_they_are() -> None:
    everyone = world.ranks()
    before = failure.record
    members = tuple(reversed(range(everyone.size)))
    process = world.process_among(ProcessGrid(1, everyone.size), members)
    assert process.rank == members.index(everyone.rank)
    gather = process.communicator.all_gather((1,), np.int64, 0)
    assert gather(np.array([everyone.rank])).tolist() == list(members)
    assert failure.record == before
