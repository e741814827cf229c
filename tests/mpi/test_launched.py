"""The ranks that tests run on are what the launcher promised."""

import os

import pytest

from tests.mpi.ranks import number_of_ranks


@pytest.mark.mpi
def test_rank_and_size_come_from_mpi() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    assert world.size == number_of_ranks()
    assert sorted(world.allgather(world.rank)) == list(range(world.size))


@pytest.mark.mpi
def test_every_rank_has_a_thread_count() -> None:
    assert any(int(os.environ.get(name, 0)) >= 1 for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"))
