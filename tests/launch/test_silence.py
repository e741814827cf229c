"""Which hosts and ranks an elastic job goes on without, by what reports say; ranks that are stopped."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from collectives.failure import REPORTS_VARIABLE
from collectives.processes import start_of, state_of
from launch.report_filter import ReportFilter
from launch.silence import SilentHosts, is_left
from launch.stopped import StoppedRanks
from spmd.runtime.silence import Silence, take_reports
from tests.clocks import Clock, until

GRACE = 30.0


@pytest.fixture
def rank() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that stands for a rank."""
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


def silence(here: str, there: str, process: int = 1) -> Silence:
    return Silence(2, here, 1, there, process, start_of(process))


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Silence], None]:
    """What reports to a launcher whose folder is `tmp_path`."""
    monkeypatch.setenv(REPORTS_VARIABLE, str(tmp_path))
    return Silence.report


def hosts(folder: Path, clock: Clock) -> SilentHosts:
    return SilentHosts(os.getpid(), folder, GRACE, {"a": True}.__contains__, clock)


def test_a_host_that_the_launcher_s_own_finds_silent_is_left(
    tmp_path: Path, reported: Callable[[Silence], None], rank: "subprocess.Popen[bytes]"
) -> None:
    """Though its ranks report the same of the launcher's host: that one stays, and all of its ranks."""
    clock = Clock()
    judge, before = hosts(tmp_path, clock), time.time() - 1
    reported(silence("b", "a", rank.pid))
    assert judge.look() == [] and not is_left(tmp_path, "b", before)
    reported(silence("a", "b"))
    assert judge.look() == ["host b does not respond; the job continues without it"]
    assert is_left(tmp_path, "b", before) and not is_left(tmp_path, "a", before)
    assert not is_left(tmp_path, "b", time.time() + 3600), "ranks that join later are not ended"
    clock.now += 1.5 * GRACE
    reported(silence("a", "b"))
    assert judge.look() == [] and rank.poll() is None


def test_a_rank_of_the_launcher_s_host_that_alone_is_silent_is_killed(
    tmp_path: Path, reported: Callable[[Silence], None], rank: "subprocess.Popen[bytes]"
) -> None:
    clock = Clock()
    judge = hosts(tmp_path, clock)
    reported(silence("b", "a", rank.pid))
    reported(Silence(3, "b", 0, "a", os.getpid(), "another start: an id that serves again"))
    assert judge.look() == []
    clock.now += 0.9 * GRACE
    assert judge.look() == []
    clock.now += 0.2 * GRACE
    assert judge.look() == ["rank 1 does not respond; it was killed"]
    assert rank.wait() == -signal.SIGKILL


def test_of_two_other_hosts_the_one_that_is_reported_first_is_left(
    tmp_path: Path, reported: Callable[[Silence], None]
) -> None:
    judge = hosts(tmp_path, Clock())
    reports = silence("b", "c"), Silence(5, "c", 2, "b", 1, "")
    for second, report in enumerate(reports):
        reported(report)
        os.utime(tmp_path / report.name, (second, second))
    assert judge.look() == ["host c does not respond; the job continues without it"]


def test_reports_come_by_the_stream_of_errors_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(REPORTS_VARIABLE, str(tmp_path / "of another host"))
    sent = silence("b", "c")
    sent.report()
    written = capsys.readouterr().err
    filter = ReportFilter(tmp_path)
    assert filter.feed(f"before {written}after".encode()) + filter.flush() == b"before after"
    (tmp_path / "silent-9-9").write_text("{")
    (tmp_path / "silent-8-8").write_text(json.dumps(asdict(sent) | {"more": 1}))
    assert take_reports(tmp_path) == [sent] and take_reports(tmp_path) == []


def test_stopped_ranks_are_killed_unless_all_are() -> None:
    script = "sleep 100 & echo $!; sleep 100 & echo $!; wait"
    parent = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    ranks = [int(parent.stdout.readline()) for _ in range(2)]
    try:
        clock = Clock()
        watch = StoppedRanks(parent.pid, GRACE, spare_all=True, clock=clock)
        for process in ranks:
            os.kill(process, signal.SIGSTOP)
            until(lambda process=process: state_of(str(process)) == "T")  # type: ignore[misc]
        for _ in range(2):
            watch.look()
            clock.now += 1.5 * GRACE
        assert [state_of(str(process)) for process in ranks] == ["T", "T"], "somebody has suspended the job"
        os.kill(ranks[0], signal.SIGCONT)
        until(lambda: state_of(str(ranks[0])) == "S")
        watch.look()
        clock.now += 1.5 * GRACE
        watch.look()
        until(lambda: state_of(str(ranks[1])) in "ZX")
        assert state_of(str(ranks[0])) == "S"
    finally:
        for process in ranks:
            if state_of(str(process)) not in "ZX":
                os.kill(process, signal.SIGKILL)
        parent.communicate()
