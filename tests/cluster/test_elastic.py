"""Elastic training on two hosts, of which ranks are lost, or one as a whole."""

import json
import os
import signal
import time
from typing import Any

import pytest

from launch import elastic, mpirun
from tests.cluster.jobs import ClusterJob, EndedClusterJob, at_length
from tests.cluster.machines import Hosts
from tests.elastic.jobs import ACCURACY, MOST_SECONDS, WORKER

_launcher = mpirun.find()
pytestmark = pytest.mark.skipif(
    _launcher is None or elastic.refusal(_launcher) is not None, reason="this MPI cannot go on without lost ranks"
)
ELASTIC = ["--elastic", "--hosts", "a:2,b:2"]


def answer_of(ended: EndedClusterJob) -> dict[str, Any]:
    """What a rank that was there from the start has found, of a job that has ended well: each prints what it saw."""
    assert (ended.status, ended.faults) == (0, []), ended.screen
    answers = [json.loads(line) for line in ended.said.splitlines() if line.startswith("{")]
    answer: dict[str, Any] = max(answers, key=lambda answer: answer["joined"] + len(answer["lost"]))
    assert answer["counted"] and answer["accuracy"] > ACCURACY
    return answer


def test_ranks_of_both_hosts_are_lost_and_the_others_go_on(lasting: Hosts) -> None:
    job = ClusterJob(lasting, ["python", str(WORKER), "--faults", "0:kill@during:7,3:kill@step:30"], ELASTIC)
    lost = answer_of(job.finish())["lost"]
    assert [text.split(" (")[0] for text in lost] == ["rank 0", "rank 3"]
    assert lost[0].endswith(" on a)") and lost[1].endswith(" on b)")


@pytest.mark.parametrize(
    "plugged", [True, pytest.param(False, marks=at_length)], ids=["its processes", "its cable, then its processes"]
)
def test_a_whole_host_is_lost_and_the_other_goes_on(mortal: Hosts, plugged: bool) -> None:
    job = ClusterJob(mortal, ["python", str(WORKER), "--pace", "0.02"], ELASTIC)
    job.wait_for("started")
    if not plugged:
        mortal.unplug(mortal.b)
    mortal.b.kill()
    answer = answer_of(job.finish())
    assert answer["ranks"] == 2 and sorted(text.split(" (")[0] for text in answer["lost"]) == ["rank 2", "rank 3"]


def test_a_host_whose_link_is_cut_is_left_and_joins_again(mortal: Hosts) -> None:
    """All processes live, and the remote shells, which take another way here, go on."""
    command = ["python", str(WORKER), "--pace", "0.1", "--await-ranks", "3"]
    job = ClusterJob(mortal, command, [*ELASTIC, "--max-ranks", "4", "--patience", "4"])
    job.wait_for("started")
    mortal.unplug(mortal.b)
    deadline = time.monotonic() + MOST_SECONDS
    while job.processes_on(mortal.b) and time.monotonic() < deadline:
        time.sleep(0.2)
    mortal.plug(mortal.b)
    status, said, screen = job.join("--hosts", "b:1")
    assert (status, screen) == (0, "") and said.startswith("rank 4 (") and said.endswith(" on b) joined\n")
    ended = job.finish()
    answer = answer_of(ended)
    assert answer["ranks"] == 3 and sorted(text.split(" (")[0] for text in answer["lost"]) == ["rank 2", "rank 3"]
    assert "spmd launch: host b does not respond; the job continues without it\n" in ended.screen


def test_ranks_join_on_the_host_that_is_named(lasting: Hosts) -> None:
    job = ClusterJob(lasting, ["python", str(WORKER), "--await-ranks", "5"], [*ELASTIC, "--max-ranks", "5"])
    job.wait_for("started")
    status, said, screen = job.join("--hosts", "nowhere:1")
    assert (status, said) == (1, "") and screen.startswith("spmd launch: host nowhere cannot be reached: ")
    status, said, screen = job.join("--hosts", "b:1")
    assert (status, screen) == (0, "") and said.startswith("rank 4 (") and said.endswith(" on b) joined\n")
    answer = answer_of(job.finish())
    assert answer["ranks"] == 5 and answer["joined"] == 1


def test_ranks_of_the_launcher_s_host_are_replaced_from_the_other(lasting: Hosts) -> None:
    command = ["python", str(WORKER), "--faults", "0:kill@step:5,1:kill@step:5", "--await-ranks", "4"]
    ended = ClusterJob(lasting, command, [*ELASTIC, "--replace"]).finish()
    answer = answer_of(ended)
    assert answer["ranks"] == 4 and answer["joined"] == 2, ended.screen


@at_length
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_job_on_both_hosts(lasting: Hosts, number: signal.Signals) -> None:
    job = ClusterJob(lasting, ["python", str(WORKER), "--pace", "1"], ELASTIC)
    job.wait_for("started")
    os.kill(min(job.processes("launch\0launch")), number)
    ended = job.finish()
    assert ended.faults == []
    assert ended.screen.rstrip().endswith(f"spmd launch: ended by {number.name}")


@at_length
def test_a_killed_launcher_takes_the_ranks_of_both_hosts_along(mortal: Hosts) -> None:
    job = ClusterJob(mortal, ["python", str(WORKER), "--pace", "1"], ELASTIC)
    job.wait_for("started")
    os.kill(min(job.processes("launch\0launch")), signal.SIGKILL)
    assert not any("processes" in fault for fault in job.finish().faults)  # its own files are left to nobody


def test_a_host_that_cannot_be_reached_is_named(lasting: Hosts) -> None:
    ended = ClusterJob(lasting, ["python", str(WORKER)], ["--elastic", "--hosts", "a:2,nowhere:2"]).finish()
    assert (ended.status, ended.faults) == (1, [])
    assert "spmd launch: host nowhere cannot be reached" in ended.screen
