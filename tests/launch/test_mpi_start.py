"""Ranks that wait for MPI to begin are told of, and whom they wait for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectives.settings import ABORT_VARIABLE, TIMEOUT_VARIABLE
from launch import job
from launch.mpi_start import MpiStart
from tests.clocks import WATCHDOG_SECONDS, Clock

ROOT = Path(__file__).parents[2]
#: MPI begins with what communicates first: on rank 0 alone.
PROGRAM = """
import os, time
import spmd
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "0":
    from spmd.runtime import world
    world.ranks()
time.sleep(600)
"""


#: A launcher of which a rank says that it waits for MPI to begin, as the ranks do.
LAUNCHER = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
open(os.environ["SPMD_FAILURE_REPORTS"] + "/.starting-0", "w").close()
time.sleep(600)
"""


def test_a_rank_that_begins_alone_ends_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    settings = {TIMEOUT_VARIABLE: "0.05", ABORT_VARIABLE: "1"}
    patience = job.Patience(look=0.02, ending=0.0)
    assert job.run(job.JobStart([sys.executable, "-c", LAUNCHER], settings, ranks=3), patience=patience) == 1
    err = capfd.readouterr().err
    assert "spmd launch: rank 0 has waited" in err
    assert err.rstrip().endswith("s for MPI to begin: ranks 1-2 have not come")


@pytest.mark.slow
def test_a_rank_of_mpi_that_begins_alone_ends_the_job() -> None:
    command = [sys.executable, "-m", "launch", "launch", "-n", "3", "--collective-timeout", "2", "--collective-abort"]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.rstrip().endswith("s for MPI to begin: ranks 1-2 have not come")
    assert "rank 0 has waited" in done.stderr


def test_who_waits_is_told_once_a_timeout_and_no_longer_when_all_have_come(tmp_path: Path) -> None:
    start = MpiStart(3, tmp_path, {"COLLECTIVE_TIMEOUT": "60"}, clock := Clock())
    assert start.look() == []
    for rank in (0, 2):
        (tmp_path / f".starting-{rank}").touch()
    assert start.look() == []
    clock.now += 59
    assert start.look() == []
    clock.now += 1
    (told,) = start.look()
    assert told.startswith("ranks 0, 2 have waited 60 s") and told.endswith("rank 1 has not come")
    assert start.look() == [] and not list(tmp_path.glob("rank-*"))
    (tmp_path / ".starting-1").touch()
    clock.now += 60
    assert start.look() == []
    (tmp_path / ".starting-0").rename(tmp_path / ".begun-0")
    assert start.look() == []


def test_a_timeout_of_zero_is_never(tmp_path: Path) -> None:
    (tmp_path / ".starting-0").touch()
    for environment in ({"COLLECTIVE_TIMEOUT": "0"}, {"COLLECTIVE_TIMEOUT": "nonsense"}):
        start = MpiStart(2, tmp_path, environment, clock := Clock())
        assert start.look() == []
        clock.now += 1e6
        assert start.look() == []
