"""Slurm on two nodes: ranks started by srun and by `spmd launch`, the page's batch script, and how jobs end."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import elastic, mpirun
from spmd import checkpoint
from tests.cluster import slurm
from tests.cluster.jobs import at_length
from tests.cluster.machines import ROOT, Hosts
from tests.cluster.slurm import Slurm
from tests.elastic.jobs import ACCURACY, WORKER

PLACES = """
import os, spmd
from mpi4py import MPI
world = MPI.COMM_WORLD
places = world.gather(os.uname().nodename)
if world.rank == 0: print(*places, world.allreduce(1) if world.size == 1 else world.size, flush=True)
"""
FAILING = """
import os, sys, spmd
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 3: {fault}
MPI.COMM_WORLD.Barrier()
"""
IDLE = """
import sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
open(sys.argv[1], "w").close()
time.sleep(100)
"""
TWO_BY_TWO = ("--nodes=2", "--ntasks-per-node=2")
WAITING_SECONDS = 240.0


@pytest.fixture(scope="module")
def cluster(lasting: Hosts) -> Iterator[Slurm]:
    if (reason := slurm.refusal()) is not None:
        pytest.skip(reason)
    launcher = mpirun.find()
    assert launcher is not None
    yield Slurm(lasting, {"openmpi": "pmix", "hydra": "pmi2", "srun": "none"}[launcher.kind])


def test_srun_starts_ranks_on_both_nodes(cluster: Slurm) -> None:
    ended = cluster.run("srun", *TWO_BY_TWO, "python", "-c", PLACES)
    assert (ended.returncode, ended.stdout.strip()) == (0, "a a b b 4"), ended.stderr


def test_launch_takes_the_hosts_and_the_ranks_of_its_allocation(cluster: Slurm) -> None:
    ended = cluster.run("salloc", *TWO_BY_TWO, "spmd", "launch", "python", "-c", PLACES)
    assert (ended.returncode, ended.stdout.strip()) == (0, "a a b b 4"), ended.stderr


@pytest.mark.parametrize(
    ("fault", "statuses", "words"),
    [
        ("raise ValueError('no cheese')", {1}, ["rank 3 of 4 on b failed:", "ValueError: no cheese"]),
        ("sys.exit(3)", {3}, ["rank 3 of 4 on b exited with status 3"]),
        # Ranks that are connected to it may miss it, and abort, before Slurm knows; Slurm ends the others with SIGTERM.
        ("os.kill(os.getpid(), 9)", {137, 143, 14}, ["srun: error: b: task", "Killed"]),
    ],
    ids=["raise", "exit", "kill"],
)
def test_a_failing_rank_ends_the_step_with_its_status(
    cluster: Slurm, fault: str, statuses: set[int], words: list[str]
) -> None:
    program = FAILING.format(fault=fault)
    ended = cluster.run("srun", *TWO_BY_TWO, "--kill-on-bad-exit=1", "python", "-c", program)
    # A step's status is the largest of its ranks'; over PMI-2, MPI_Abort has Slurm kill them all.
    assert ended.returncode in (statuses | {137, 143} if cluster.mpi == "pmi2" else statuses), ended.stderr
    assert all(word in ended.stderr for word in words), ended.stderr


def test_a_failing_rank_ends_a_launched_job_with_its_words_last(cluster: Slurm) -> None:
    program = FAILING.format(fault="raise ValueError('no cheese')")
    ended = cluster.run("salloc", "--quiet", *TWO_BY_TWO, "spmd", "launch", "python", "-c", program)
    assert ended.returncode == 1
    assert "rank 3 of 4 on b failed:" in ended.stderr
    assert ended.stderr.rstrip().endswith("ValueError: no cheese"), ended.stderr


@pytest.mark.parametrize("hosts", [(), ("--hosts", "a:2,b:2")], ids=["by its daemons", "by remote shells"])
def test_an_elastic_job_of_an_allocation_goes_on_without_ranks(
    cluster: Slurm, lasting: Hosts, hosts: tuple[str, ...]
) -> None:
    launcher = mpirun.find()
    assert launcher is not None
    if (reason := elastic.refusal(launcher)) is not None:
        pytest.skip(reason)
    command = ["spmd", "launch", "--elastic", *hosts, "python", str(WORKER)]
    faults = ["--faults", "0:kill@during:7,3:kill@step:30"]
    shell = {"PRTE_MCA_plm_ssh_agent": str(lasting.agent)}
    ended = cluster.run("salloc", "--quiet", *TWO_BY_TWO, *command, *faults, **(shell if hosts else {}))
    # The launcher of Open MPI may tell, by its event library, of a daemon's socket that closed while it was written to.
    said = [line for line in ended.stderr.splitlines() if not line.startswith("[warn] Epoll")]
    assert (ended.returncode, said) == (0, []), ended.stderr
    answer = json.loads(ended.stdout.splitlines()[-1])
    assert answer["counted"] and answer["accuracy"] > ACCURACY and answer["ranks"] == 2
    assert [text.split(" (")[0] for text in answer["lost"]] == ["rank 0", "rank 3"]


@at_length
def test_the_batch_script_of_the_page_on_clusters_resumes_when_it_is_requeued(cluster: Slurm, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    page = (ROOT / "docs" / "howto" / "cluster.md").read_text()
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", page, re.DOTALL)
    assert script.count("train.py --checkpoints") == 1
    (tmp_path / "job.sh").write_text(script.replace("train.py", "train.py --epochs 3"))
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    module = cluster.folder / "bin" / "module"
    module.parent.mkdir()
    module.write_text("#!/bin/sh\n")  # the site's own
    module.chmod(0o755)
    submitted = cluster.run("sbatch", "--parsable", "job.sh", cwd=tmp_path)
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    log = tmp_path / f"digits-{job}.log"
    _wait(lambda: checkpoint.newest(tmp_path / "checkpoints") is not None, cluster, job, log)
    assert cluster.run("scontrol", "requeue", job).returncode == 0
    _wait(lambda: "JobState=PENDING" in _state(cluster, job), cluster, job, log)
    cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm would wait for two minutes
    _wait(lambda: "JobState=COMPLETED" in _state(cluster, job), cluster, job, log)
    text = log.read_text()
    assert re.search(r"resumed after epoch [12] from ", text) and "test accuracy" in text.splitlines()[-1], text
    assert "Restarts=1" in _state(cluster, job)


def test_a_cancelled_job_ends_on_both_nodes(cluster: Slurm, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = (
        f"from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); open({str(started)!r}, 'w'); import time; time.sleep(100)"
    )
    step = cluster.start("srun", *TWO_BY_TWO, "--job-name=idle", "python", "-c", program)
    _wait(started.exists, cluster, "", started)
    assert cluster.run("scancel", "--name=idle").returncode == 0
    _, screen = step.communicate(timeout=60)
    assert step.returncode != 0 and "CANCELLED" in screen
    _wait(
        lambda: cluster.run("sinfo", "--noheader", "--format=%t %D").stdout.split() == ["idle", "2"],
        cluster,
        "",
        started,
    )


def _state(cluster: Slurm, job: str) -> str:
    return cluster.run("scontrol", "show", "job", job).stdout


def _wait(condition: Callable[[], bool], cluster: Slurm, job: str = "", log: Path | None = None) -> None:
    deadline = time.monotonic() + WAITING_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            told = log.read_text() if log is not None and log.exists() else "nothing written"
            pytest.fail(f"waited in vain: {_state(cluster, job) if job else ''}\n{told}")
        time.sleep(0.2)
