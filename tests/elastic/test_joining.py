"""Ranks that join a job that runs: in the place of lost ones, or when somebody asks; failures while they do."""

import os
import signal
import subprocess
import sys
import time

import pytest

from launch import elastic, mpirun
from tests.elastic.jobs import ACCURACY, MOST_SECONDS, ROOT, ElasticJob

_launcher = mpirun.find()
pytestmark = pytest.mark.skipif(
    _launcher is None or elastic.refusal(_launcher) is not None, reason="this MPI cannot go on without lost ranks"
)
JOIN = [sys.executable, "-m", "launch", "launch", "--join"]


@pytest.mark.parametrize(
    ("faults", "lost", "joined"),
    [
        ("0:kill@step:5", 1, 1),
        ("2:kill@step:5,3:kill@build:3", 1, 1),
        ("2:kill@step:5,3:kill@hand:1", 2, 1),
        ("2:kill@step:5,1:kill@hand:3", 2, 1),
        ("2:kill@step:5,0:kill@hand:3", 2, 1),
    ],
    ids=["once", "a new rank while it builds", "a new rank as it joins", "an old rank as one joins", "and rank 0"],
)
def test_a_lost_rank_is_replaced(faults: str, lost: int, joined: int) -> None:
    """Who is lost in the same meeting in which others join is not told of as one that joined."""
    ended = ElasticJob(3, ["--faults", faults, "--await-ranks", "3"], ["--replace"]).finish()
    assert ended.faults == [], ended.screen
    assert ended.status == 0, ended.screen
    assert ended.outcome["counted"] and ended.outcome["accuracy"] > ACCURACY, ended.screen
    assert ended.outcome["joined"] >= joined and len(ended.outcome["lost"]) <= lost, ended.screen
    assert ended.outcome["ranks"] == 3, ended.screen


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stops", "is killed"])
def test_rank_0_is_lost_while_a_new_rank_starts(number: signal.Signals) -> None:
    """The new rank, whom nobody tells what to do any more, is no failure of the job."""
    job = ElasticJob(3, ["--faults", "2:kill@step:5", "--pace", "0.1"], ["--replace", "--patience", "2"])
    while 3 not in (processes := job.processes()):
        assert job.process.poll() is None, job.finish().screen
        time.sleep(0.01)
    os.kill(processes[0], number)
    ended = job.finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["counted"] and ended.outcome["accuracy"] > ACCURACY, ended.screen


def test_ranks_join_when_somebody_asks() -> None:
    job = ElasticJob(2, ["--await-ranks", "4"], ["--max-ranks", "4"])
    assert job.process.stdout is not None and job.process.stdout.readline() == "started\n"
    elsewhere = subprocess.run([*JOIN, str(job.process.pid), "--hosts", "no-such-host"], **_captured(job))
    assert elsewhere.returncode == 2 and "and not on no-such-host" in elsewhere.stderr
    join = subprocess.run([*JOIN, str(job.process.pid), "-n", "3"], **_captured(job))
    ended = job.finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["counted"] and ended.outcome["ranks"] == 4 and ended.outcome["joined"] == 2, ended.screen
    assert sorted(line.partition(" (")[0] for line in join.stdout.splitlines()) == ["rank 2", "rank 3"], join.stderr
    assert (join.returncode, join.stderr) == (1, "spmd launch: the job has 4 ranks, and may have 4\n")


def test_a_new_rank_that_fails_before_it_joins_is_given_up() -> None:
    faults = ",".join(["1:kill@step:3", *(f"{number}:raise@build:2" for number in range(2, 5))])
    ended = ElasticJob(2, ["--faults", faults, "--await-ranks", "2", "--epochs", "1"], ["--replace"]).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["counted"] and ended.outcome["ranks"] == 1, ended.screen
    assert "rank 2 was to join, and ended before it joined\n" in ended.screen
    assert "ValueError: out of cheese" in ended.screen


def test_an_error_of_a_rank_that_has_joined_ends_the_job() -> None:
    ended = ElasticJob(2, ["--faults", "1:kill@step:3,2:raise@commit:60", "--await-ranks", "2"], ["--replace"]).finish()
    assert (ended.faults, ended.status) == ([], 1), ended.screen
    assert "rank 2, which joined 1, on " in ended.screen
    assert ended.screen.rstrip().endswith("ValueError: out of cheese")


def test_a_job_that_cannot_grow_and_one_that_is_not_there_are_told() -> None:
    job = ElasticJob(2, ["--epochs", "1"])
    assert job.process.stdout is not None and job.process.stdout.readline() == "started\n"
    join = subprocess.run([*JOIN, str(job.process.pid)], **_captured(job))
    assert join.returncode == 2 and "was started without --max-ranks or --replace" in join.stderr
    assert job.finish().status == 0
    join = subprocess.run([*JOIN, str(job.process.pid)], **_captured(job))
    assert join.returncode == 2 and f"no elastic job of process {job.process.pid} runs here" in join.stderr


def _captured(job: ElasticJob):  # type: ignore[no-untyped-def]
    return {"cwd": ROOT, "env": job.environment, "capture_output": True, "text": True, "timeout": MOST_SECONDS}
