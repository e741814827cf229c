"""Ranks that are lost at every moment of a job: those that live go on, and count every example once."""

from pathlib import Path

import pytest

from collectives.mpi_losses import tolerates_faults
from launch import elastic, mpirun
from tests.elastic.jobs import Job

_launcher = mpirun.find()
pytestmark = pytest.mark.skipif(
    _launcher is None or elastic.refusal(_launcher) is not None, reason="this MPI cannot go on without lost ranks"
)
ACCURACY = 0.95  # of the same steps without losses, less a percent


@pytest.mark.parametrize(
    ("ranks", "faults", "lost"),
    [
        (4, "0:kill@during:7,2:kill@during:40,3:exit@during:41", 3),
        (3, "1:kill@step:5,0:kill@build:1", 2),
        (4, "3:kill@commit:10,1:kill@hand:2", 2),
        (3, "2:kill@save:22,0:leave@step:30", 2),
    ],
    ids=["in collectives", "while programs are built", "while others meet", "in a checkpoint, and by leaving"],
)
def test_ranks_that_live_go_on(ranks: int, faults: str, lost: int, tmp_path: Path) -> None:
    ended = Job(ranks, ["--faults", faults, "--checkpoints", str(tmp_path)]).finish()
    assert ended.faults == [], ended.screen
    assert ended.status == 0, ended.screen
    assert ended.found["counted"] and ended.found["accuracy"] > ACCURACY, ended.screen
    assert ended.found["ranks"] == ranks - lost and len(ended.found["lost"]) == lost


def test_a_rank_that_hangs_is_declared_dead() -> None:
    ended = Job(3, ["--faults", "1:stop@step:5", "--epochs", "1"], ["--patience", "1"]).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.found["counted"] and "rank 1 (process" in ended.found["lost"][0]


def test_too_few_ranks_end_the_job() -> None:
    ended = Job(3, ["--faults", "1:kill@step:5"], ["--min-ranks", "3"]).finish()
    assert ended.faults == []
    assert ended.status == 1
    assert "2 ranks are left, and the job goes on with 3 or more" in ended.screen


def test_a_job_whose_every_rank_is_lost_has_failed() -> None:
    ended = Job(2, ["--faults", "0:kill@step:5,1:kill@step:5"]).finish()
    assert ended.faults == []
    assert (ended.status, ended.screen.splitlines()[-1]) == (1, "spmd launch: all ranks were lost")


def test_an_error_of_the_program_ends_the_job() -> None:
    ended = Job(3, ["--faults", "1:raise@step:5"]).finish()
    assert ended.faults == []
    assert ended.status == 1
    assert ended.screen.rstrip().endswith("ValueError: out of cheese")


def test_outside_of_an_elastic_job_nothing_is_tolerated() -> None:
    assert not tolerates_faults()
