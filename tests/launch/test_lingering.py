"""Launchers that hang when all that they have started has ended are ended, and the job with its status."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from collectives.failure import ELASTIC_VARIABLE
from collectives.processes import running_children
from launch import job, lingering

#: Starts a process that ends as told, makes a folder as Open MPI's does, and hears no signal.
LAUNCHER = """
import os, signal, subprocess, sys, tempfile, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.makedirs(os.path.join(tempfile.gettempdir(), f"ompi.{os.getpid()}", "1"))
subprocess.run([sys.executable, "-c", sys.argv[1]])
print("its ranks have ended", file=sys.stderr, flush=True)
time.sleep(600)
"""
REPORT = "open(os.environ['SPMD_FAILURE_REPORTS'] + '/rank-1.txt', 'w').write('rank 1 failed:\\nout of cheese\\n')"
LOST = "open(os.environ['SPMD_FAILURE_REPORTS'] + '/.begun-1', 'w')"
ENDED = "open(os.environ['SPMD_FAILURE_REPORTS'] + '/.ended-0', 'w')"


@pytest.mark.parametrize(
    ("notes", "elastic", "status", "words"),
    [
        ([ENDED], False, 0, ""),
        ([ENDED, REPORT], False, 1, "out of cheese"),
        ([ENDED, LOST], False, 1, "rank 1 ended without ending MPI; the launcher hung, and did not tell how"),
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
    monkeypatch.setattr(lingering, "SURE_SECONDS", 0.2)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    rank = "\n".join(["import os, time", *notes, "time.sleep(1.2)"])
    variables = {ELASTIC_VARIABLE: "1"} if elastic else {}
    assert job.run([sys.executable, "-c", LAUNCHER, rank], variables) == status
    assert words in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


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
