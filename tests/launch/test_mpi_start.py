"""Ranks that wait for MPI to begin are told of, and whom they wait for."""

import os
import subprocess
import sys
import time
from pathlib import Path

from launch.mpi_start import MpiStart

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


def test_a_rank_that_begins_alone_ends_the_job() -> None:
    command = [sys.executable, "-m", "launch", "launch", "-n", "3", "--collective-timeout", "2", "--collective-abort"]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.rstrip().endswith("s for MPI to begin: ranks 1-2 have not come")
    assert "rank 0 has waited" in done.stderr


def test_who_waits_is_told_once_a_timeout_and_no_longer_when_all_have_come(tmp_path: Path) -> None:
    start = MpiStart(3, tmp_path, {"COLLECTIVE_TIMEOUT": "0.05"})
    assert start.look() == []
    for rank in (0, 2):
        (tmp_path / f".starting-{rank}").touch()
    assert start.look() == []
    time.sleep(0.06)
    (told,) = start.look()
    assert told.startswith("ranks 0, 2 have waited 0 s") and told.endswith("rank 1 has not come")
    assert start.look() == [] and not list(tmp_path.glob("rank-*"))
    (tmp_path / ".starting-1").touch()
    time.sleep(0.06)
    assert start.look() == []
    (tmp_path / ".starting-0").rename(tmp_path / ".begun-0")
    assert start.look() == []


def test_a_timeout_of_zero_is_never(tmp_path: Path) -> None:
    (tmp_path / ".starting-0").touch()
    for environment in ({"COLLECTIVE_TIMEOUT": "0"}, {"COLLECTIVE_TIMEOUT": "nonsense"}):
        start = MpiStart(2, tmp_path, environment)
        assert start.look() == [] and start.look() == []
