"""Elastic jobs that lose ranks before all have met are started again, without the hosts that are lost."""

from pathlib import Path
from typing import Any

import pytest

from launch import beginning, elastic, job, mpirun, remote
from launch.beginning import Beginning
from launch.cli import main
from launch.mpirun import Launcher
from tests.clocks import Clock

#: Whether the ranks are on several hosts, what ranks 0 and 1 have come to, of which the second is gone, and after how
#: many seconds that is certain.
STATES = {
    "rank 0 waits in MPI_Init": (False, (".starting-0", ".running-1"), 2.0),
    "MPI has begun on a third": (False, (".starting-0", ".running-1", ".begun-2"), 10.0),
    "a host is cut off once MPI has begun": (True, (".begun-0", ".running-1"), 10.0),
    "a rank of another host ends by itself": (True, (".begun-0", ".ended-1"), None),
    "MPI itself tells ranks of this machine": (False, (".begun-0", ".begun-1"), None),
    "the ranks have met": (True, (".begun-0", ".running-1", ".met"), None),
}


@pytest.mark.parametrize("state", STATES)
def test_a_rank_is_missing_once_others_have_waited_for_it(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_spread, files, seconds = STATES[state]
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(beginning, "running_children", lambda launcher: ["0", "2"])
    monkeypatch.setattr(beginning, "environment_of", lambda process: [f"OMPI_COMM_WORLD_RANK={process}".encode()])
    clock = Clock()
    watched = Beginning(1, 3, tmp_path, clock, is_spread=is_spread)
    assert watched.missing() is None
    clock.now += 60 if seconds is None else seconds
    assert watched.missing() is None
    clock.now += 0.1
    assert watched.missing() == (None if seconds is None else 1)


def started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str) -> job.JobStart | str:
    """What is started in place of a job on this machine and two others, of which the second cannot be reached then."""
    shell, dead = tmp_path / "shell", tmp_path / "dead"
    shell.write_text(f'#!/bin/sh\n[ "$1" != second -o ! -e {dead} ] || {{ echo no route to $1 >&2; exit 255; }}\n')
    shell.chmod(0o755)
    monkeypatch.setenv(remote.SHELL_VARIABLE, str(shell))
    monkeypatch.setattr(mpirun, "find", lambda: Launcher("mpirun", "openmpi"))
    monkeypatch.setattr(elastic, "refusal", lambda launcher: None)
    found: list[job.JobStart | str] = []

    def run(start: job.JobStart, *, again: Any) -> int:
        dead.touch()
        found.append(again())
        return 0

    monkeypatch.setattr(job, "run", run)
    hosts = ["--hosts", "localhost:2,first:1,second:2"]
    assert main(["launch", "--elastic", *hosts, *options, "--", "true"]) == 0
    return found[0]


def test_a_job_is_started_again_without_the_host_that_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start = started_again(monkeypatch, tmp_path)
    assert not isinstance(start, str) and start.ranks == 3 and start.growth is not None and start.growth.ranks == 3
    assert "localhost:2,first:1" in start.command and not any("second" in word for word in start.command)
    said = "spmd launch: host second cannot be reached: no route to second; the job is restarted without it\n"
    assert capfd.readouterr().err == said


def test_a_job_of_too_few_ranks_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = started_again(monkeypatch, tmp_path, "--min-ranks", "4")
    assert reason == "the other hosts take 3 ranks, and at least 4 are needed"


def test_a_reason_not_to_start_again_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    started: list[job.JobStart] = []
    monkeypatch.setattr(job, "_run_once", lambda start, *_: started.append(start))
    first, second = job.JobStart(["first"], {}), job.JobStart(["second"], {})
    answers: list[job.JobStart | str] = [second, "no ranks are left"]
    assert job.run(first, again=lambda: answers.pop(0)) == 1
    assert started == [first, second] and capfd.readouterr().err == "spmd launch: no ranks are left\n"
