"""Ranks that are lost at every moment of a job: those that live go on, and count every example once."""

import json
import signal
from pathlib import Path

import pytest

from collectives.mpi.losses import tolerates_faults
from launch import elastic, mpirun
from launch.beginning import MOST_STARTS
from spmd import checkpoint
from tests.elastic.jobs import ACCURACY, SHARDED_WORKER, ElasticJob, EndedElasticJob
from tests.elastic.save_points import PASSES, options, points

_launcher = mpirun.find()
pytestmark = pytest.mark.skipif(
    _launcher is None or elastic.refusal(_launcher) is not None, reason="this MPI cannot go on without lost ranks"
)
#: Of the worker's three epochs.
LAST = 3 * 23 - 1


@pytest.mark.parametrize(
    ("ranks", "faults", "lost"),
    [
        (4, "0:kill@during:7,2:kill@during:40,3:exit@during:41", 3),
        (3, "1:kill@step:5,0:kill@build:1", 2),
        (4, "3:kill@commit:10,1:kill@hand:2,2:kill@handed:3", 3),
        (3, "2:kill@save:22,0:leave@step:30", 2),
        (4, f"0:term@step:{LAST},1:kill@commit:{LAST}", 2),
    ],
    ids=[
        "in collectives",
        "while programs are built",
        "while others meet",
        "in a checkpoint, and by leaving",
        "in the last step, which is taken again",
    ],
)
def test_ranks_that_live_go_on(ranks: int, faults: str, lost: int, tmp_path: Path) -> None:
    ended = ElasticJob(ranks, ["--faults", faults, "--checkpoints", str(tmp_path)]).finish()
    assert ended.faults == [], ended.screen
    assert ended.status == 0, ended.screen
    assert ended.outcome["counted"] and ended.outcome["accuracy"] > ACCURACY, ended.screen
    assert ended.outcome["told"], "each change is told on every rank"
    assert ended.outcome["ranks"] == ranks - lost and len(ended.outcome["lost"]) == lost


def saving(folder: Path, how: str, faults: str, ranks: int = 3, epochs: int = 1) -> EndedElasticJob:
    """A job that writes a checkpoint in the last step of each epoch, which has ended as it should.

    Each fault has lost one rank; the others count every example once, and their last checkpoint is whole.
    """
    line = ["--faults", faults, "--checkpoints", str(folder), "--epochs", str(epochs), *options(how)]
    ended = ElasticJob(ranks, line).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    lost = len(faults.split(",")) if faults else 0
    assert ended.outcome["counted"] and ended.outcome["ranks"] == ranks - lost, ended.screen
    assert checkpoint.steps(folder)[0] == 23 * epochs, ended.screen
    checkpoint.verify(folder, 23 * epochs)
    return ended


@pytest.mark.parametrize(
    ("how", "faults"),
    [
        ("thread", "1:kill@before-rename:1,0:kill@before-fsync:2"),
        ("wait", "1:kill@before-exchange:3,0:kill@before-exchange:18"),
    ],
    ids=["while threads write", "while all write at once"],
)
def test_who_is_lost_while_a_checkpoint_is_written_takes_none_of_it(how: str, faults: str, tmp_path: Path) -> None:
    """The first is lost in the middle of the job, the one that writes the manifest in its last step."""
    saving(tmp_path, how, faults, ranks=4, epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "rank", "point"),
    [(how, rank, point) for how in ("wait", "thread") for rank in (0, 1) for point in points(how, rank)],
)
def test_each_point_of_the_last_checkpoint_may_be_the_last_of_a_rank(
    how: str, rank: int, point: str, tmp_path: Path
) -> None:
    saving(tmp_path, how, f"{rank}:kill@{point}")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wait", "thread"])
def test_no_point_of_writing_is_left_out(how: str, tmp_path: Path) -> None:
    told = [json.loads(line) for line in saving(tmp_path, how, "").said.splitlines() if line.startswith("{")]
    for each in told:
        passes = PASSES[how, "other" if each["rank"] else "first"]
        assert each["points"] == {f"{when}-{what}": n for what, n in passes.items() for when in ("before", "after")}


@pytest.mark.parametrize(
    ("faults", "lost"), [("1:stop@step:5", ["rank 1"]), ("1:kill@step:5,2:stop@hand:2", ["rank 1", "rank 2"])]
)
def test_a_rank_that_hangs_is_declared_dead(faults: str, lost: list[str]) -> None:
    """Also when it does so while the others meet, since another is lost."""
    ended = ElasticJob(4, ["--faults", faults, "--epochs", "1"], ["--patience", "1"]).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["counted"] and [who.partition(" (")[0] for who in ended.outcome["lost"]] == lost


def test_too_few_ranks_end_the_job() -> None:
    ended = ElasticJob(3, ["--faults", "1:kill@step:5"], ["--min-ranks", "3"]).finish()
    assert ended.faults == []
    assert ended.status == 1
    assert "2 ranks are left, and the job goes on with 3 or more" in ended.screen


def test_a_job_whose_every_rank_is_lost_has_failed() -> None:
    ended = ElasticJob(2, ["--faults", "0:kill@step:5,1:kill@step:5"]).finish()
    assert ended.faults == []
    assert (ended.status, ended.screen.splitlines()[-1]) == (1, "spmd launch: all ranks were lost")


def test_an_error_of_the_program_ends_the_job() -> None:
    ended = ElasticJob(3, ["--faults", "1:raise@step:5"]).finish()
    assert ended.faults == []
    assert ended.status == 1
    assert ended.screen.rstrip().endswith("ValueError: out of cheese")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_job_whose_ranks_meet(number: signal.Signals) -> None:
    job = ElasticJob(3, ["--faults", "1:kill@step:5,2:wait@hand:2"])
    assert job.process.stdout is not None
    assert [job.process.stdout.readline() for _ in range(2)] == ["started\n", "waiting\n"]
    job.process.send_signal(number)
    ended = job.finish()
    assert (ended.faults, ended.status) == ([], 128 + number), ended.screen
    assert ended.screen.rstrip().endswith(f"spmd launch: ended by {number.name}")


def test_a_job_that_loses_ranks_before_mpi_has_begun_is_started_again(tmp_path: Path) -> None:
    """The others would wait for them, in MPI_Init, for ever; for one that is stopped, too."""
    faults = ["--faults", "1@start,2@stop", "--once", str(tmp_path / "once")]
    ended = ElasticJob(3, faults, ["--patience", "3"], script=SHARDED_WORKER).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["right"] and ended.outcome["ranks"] == 3
    assert "spmd launch: ranks were lost before MPI had begun on all; the job is started again\n" in ended.screen


def test_a_job_that_never_begins_with_mpi_ends() -> None:
    ended = ElasticJob(2, ["--faults", "1@start"], script=SHARDED_WORKER).finish()
    assert (ended.faults, ended.status) == ([], 1), ended.screen
    told = "spmd launch: rank 1 ended before MPI had begun on all ranks; all others were ended"
    assert ended.screen.splitlines()[-1] == told and ended.screen.count("started again") == MOST_STARTS - 1


def test_outside_of_an_elastic_job_nothing_is_tolerated() -> None:
    assert not tolerates_faults()
