"""Jobs on two hosts that share no memory and no temporary files: results, and how they end."""

import os
import signal
from pathlib import Path

import pytest

from launch import mpirun
from tests.backends.collective_programs import PROGRAMS
from tests.cluster.jobs import ClusterJob, at_length
from tests.cluster.machines import Hosts
from tests.launch.failures import COLLECTIVES, WORDS, FailureCase

_launcher = mpirun.find()
_hydra = _launcher is not None and _launcher.kind == "hydra"
IDLE = """
import time, spmd
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0: print("started", flush=True)
time.sleep(1000)
"""
EVERY_COLLECTIVE = """
import os
import numpy as np
from mpi4py import MPI
import spmd
from tests.backends.collective_programs import PROGRAMS
world = MPI.COMM_WORLD
for name, program in PROGRAMS.items():
    results = spmd.compile(spmd.parse(program.text), program.grid)(*program.inputs(world.rank))
    for actual, expected in zip(results, program.expected(world.rank), strict=True):
        np.testing.assert_array_equal(actual, expected, strict=True, err_msg=name)
hosts = world.gather(os.uname().nodename)
if world.rank == 0:
    print(len(PROGRAMS), "programs on", ", ".join(hosts), flush=True)
"""


def test_the_digits_are_trained(lasting: Hosts, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    script = ["python", "examples/digits/train.py", "--epochs", "1", "--checkpoints", str(tmp_path)]
    ended = ClusterJob(lasting, script).finish()
    assert (ended.status, ended.faults) == (0, []), ended.screen
    assert float(ended.said.splitlines()[-1].removeprefix("test accuracy ").rstrip("%")) > 50


def test_every_collective_gives_what_the_specification_says(lasting: Hosts, tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# both\na slots=2\nb slots=2\n")
    ended = ClusterJob(lasting, ["python", "-c", EVERY_COLLECTIVE], ["--hostfile", str(hostfile)]).finish()
    assert (ended.status, ended.faults) == (0, []), ended.screen
    assert ended.said == f"{len(PROGRAMS)} programs on a, a, b, b\n"


FAULTS = [
    pytest.param(fault, collective, marks=[] if fault in ("kill", "raise", "hang") else [at_length])
    for fault, collective in zip(WORDS, COLLECTIVES, strict=True)
]


@pytest.mark.parametrize(("fault", "collective"), FAULTS)
def test_a_failure_on_the_other_host_ends_the_job_well(lasting: Hosts, fault: str, collective: str) -> None:
    if fault in ("kill", "leave") and _hydra:
        pytest.skip("Hydra may wait for ever for a host whose last rank has gone")
    case = FailureCase(fault, collective, ranks=4, victim=3)
    ended = ClusterJob(lasting, case.command()).finish()
    assert ended.status != 0 and ended.faults == [], ended.screen
    # Those that are connected to a rank that goes may miss it before the launcher hears of it, and end the job.
    missed = fault in ("kill", "leave") and "lost its connection to another rank" in ended.screen
    assert missed or case.is_told(ended.screen), ended.screen
    assert "Socket closed" not in ended.screen


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=at_length)])
def test_signals_end_the_job_on_both_hosts(lasting: Hosts, number: signal.Signals) -> None:
    job = ClusterJob(lasting, ["python", "-c", IDLE])
    job.wait_for("started")
    os.kill(min(job.processes("launch\0launch")), number)
    ended = job.finish()
    assert ended.status == 128 + number and ended.faults == []
    assert ended.screen.rstrip().endswith(f"spmd launch: ended by {number.name}")


def test_a_killed_launcher_takes_the_ranks_of_both_hosts_along(mortal: Hosts) -> None:
    job = ClusterJob(mortal, ["python", "-c", IDLE])
    job.wait_for("started")
    os.kill(min(job.processes("launch\0launch")), signal.SIGKILL)
    assert not any("processes" in fault for fault in job.finish().faults)  # its own files are left to nobody


def test_a_host_that_is_lost_ends_the_job(mortal: Hosts) -> None:
    job = ClusterJob(mortal, ["python", "-c", IDLE])
    job.wait_for("started")
    mortal.b.kill()
    ended = job.finish()
    assert ended.status != 0 and ended.faults == []
    if not _hydra:
        assert "spmd launch: host b does not respond" in ended.screen.splitlines()[-1]


REDUCING = """
import time
import numpy as np
from collectives.mpi import MpiCommunicator
world = MpiCommunicator.world()
total = world.all_reduce((64,), np.float32)
total(np.ones(64, np.float32))
if world.rank == 0: print("started", flush=True)
while True:
    total(np.ones(64, np.float32))
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "timeout", ["0", pytest.param("3", marks=at_length)], ids=["no timeout", "a timeout that aborts"]
)
def test_a_link_that_is_cut_ends_the_job(mortal: Hosts, timeout: str) -> None:
    """All processes live. The launcher finds the host silent, or ends after a rank that has failed."""
    if _hydra:
        pytest.skip("Hydra waits for a host for as long as TCP does")
    variables = {"COLLECTIVE_TIMEOUT": timeout, "COLLECTIVE_ABORT": "1"}
    job = ClusterJob(mortal, ["python", "-c", REDUCING], **variables)
    job.wait_for("started")
    mortal.unplug(mortal.b)
    ended = job.finish()
    assert (ended.status, ended.faults) == (1, []), ended.screen
    told = "spmd launch: host b does not respond"
    assert told in ended.screen.splitlines()[-1] or "processes 2-3: does not answer" in ended.screen, ended.screen
