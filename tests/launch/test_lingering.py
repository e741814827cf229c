"""Launchers that hang when all that they have started has ended are ended, and the job with its status."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from collectives.failure import ELASTIC_VARIABLE
from collectives.processes import running_children
from launch import job, lingering, mpirun
from tests.clocks import Clock

#: Starts a process that ends as it is given, makes a folder as Open MPI's does, and hears no signal.
LAUNCHER = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.makedirs(os.path.join(os.environ["PRTE_MCA_prte_local_tmpdir_base"], f"ompi.{os.getpid()}", "1"))
subprocess.run([sys.executable, "-c", sys.argv[1]])
print("its ranks have ended", file=sys.stderr, flush=True)
time.sleep(600)
"""
#: A rank ends when it has been seen.
RANK = """
import os, time
{notes}
while not os.path.exists(os.environ["SEEN"]):
    time.sleep(0.005)
"""
AT_ONCE = job.Patience(look=0.02, lingering=0.0)
REPORT = "open(os.environ['SPMD_FAILURE_REPORTS'] + '/rank-1.txt', 'w').write('rank 1 failed:\\nout of cheese\\n')"
LOST = "open(os.environ['SPMD_FAILURE_REPORTS'] + '/.begun-1', 'w')"
ENDED = "open(os.environ['SPMD_FAILURE_REPORTS'] + '/.ended-0', 'w')"


@pytest.mark.parametrize(
    ("notes", "elastic", "status", "words"),
    [
        ([ENDED], False, 0, ""),
        ([ENDED, REPORT], False, 1, "out of cheese"),
        ([ENDED, LOST], False, 1, "rank 1 ended without finalizing MPI; the launcher hung and did not report how"),
        ([ENDED, LOST], True, 0, ""),
        ([LOST], True, 1, "all ranks were lost"),
    ],
    ids=["ended", "failed", "lost", "elastic, one lost", "elastic, all lost"],
)
def test_a_launcher_that_hangs_is_ended(
    notes: list[str],
    elastic: bool,
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    seen, temporary = tmp_path / "seen", tmp_path / "temporary"
    temporary.mkdir()

    def children(process: int) -> list[str] | None:
        found = running_children(process)
        if found:
            seen.touch()
        return found

    monkeypatch.setattr(lingering, "running_children", children)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    rank = RANK.format(notes="\n".join(notes))
    variables = {"SEEN": str(seen)} | ({ELASTIC_VARIABLE: "1"} if elastic else {})
    assert job.run(job.JobStart([sys.executable, "-c", LAUNCHER, rank], variables), patience=AT_ONCE) == status
    assert words in capfd.readouterr().err
    assert not list(temporary.iterdir())


def test_a_launcher_may_take_its_time_after_its_last_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[str] = []
    monkeypatch.setattr(lingering, "running_children", lambda launcher: children)
    watch = lingering.Lingering(1, 5.0, clock := Clock())
    clock.now += 100
    assert not watch.lingers(), "no rank has been started"
    children.append("2")
    assert not watch.lingers()
    children.clear()
    assert not watch.lingers()
    clock.now += 5
    assert not watch.lingers()
    clock.now += 1
    assert watch.lingers()


def test_children_that_run() -> None:
    waits = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(waits, stdin=subprocess.PIPE) as running,
        subprocess.Popen([sys.executable, "-c", ""]) as gone,
    ):
        os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has heard of it
        children = running_children(os.getpid())
        assert children is not None
        assert str(running.pid) in children and str(gone.pid) not in children
        assert running_children(running.pid) == []
        running.communicate(b"\n")
    assert running_children(running.pid) is None


def test_the_folder_of_the_launcher_lies_in_the_job_s_own_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others it is named by the process id alone: one that a killed launcher has left stops a later one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    said = tmp_path / "told"
    makes = ["sh", "-c", f'mkdir "${mpirun.SESSION_VARIABLE}/ompi.$$" && echo "${mpirun.SESSION_VARIABLE}" > {said}']
    assert job.run(job.JobStart(makes, {})) == 0
    base = Path(said.read_text().strip())
    assert base.parent == tmp_path and not base.exists()


@pytest.mark.parametrize("variable", [mpirun.SESSION_VARIABLE, mpirun.SESSIONS_VARIABLE])
def test_the_user_says_where_the_folder_of_the_launcher_lies(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "mine"))
    said = tmp_path / "told"
    assert job.run(job.JobStart(["sh", "-c", f'echo "${mpirun.SESSION_VARIABLE} ${variable}" > {said}'], {})) == 0
    other = "" if variable == mpirun.SESSIONS_VARIABLE else str(tmp_path / "mine")
    assert said.read_text() == f"{other} {tmp_path / 'mine'}\n"
