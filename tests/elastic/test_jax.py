"""A function of spmd.jax.jit is a step of a job that outlives its ranks."""

from pathlib import Path

import pytest

from launch import elastic, mpirun
from tests.elastic.jobs import ElasticJob

pytest.importorskip("jax")
_launcher = mpirun.find()
pytestmark = pytest.mark.skipif(
    _launcher is None or elastic.refusal(_launcher) is not None, reason="this MPI cannot go on without lost ranks"
)


def test_steps_of_jax_go_on_with_fewer_ranks_or_say_why_not() -> None:
    ended = ElasticJob(3, [], script=Path(__file__).with_name("jax_worker.py")).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    told, result = ended.said.splitlines()
    assert result == "2 ranks, off by 0.041"
    assert "data=3 make 3 processes, and there are 2 ranks; make it in the `build` of spmd.elastic.Training" in told
    assert "lost rank 1" in ended.screen
    assert "2 ranks go on with step 11" in ended.screen
