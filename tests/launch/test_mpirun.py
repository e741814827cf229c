"""The launcher's command line: what this machine and this MPI need, and nothing else."""

import sys
from pathlib import Path

import pytest

from launch import elastic, mpirun, rank
from launch.mpirun import Job, Launcher
from spmd.runtime import thread_share
from spmd.support import machine

ROOT = Path(__file__).parents[2]
OPENMPI = Launcher("/usr/bin/mpirun", "openmpi")


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, an ordinary user, no batch system."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "is_root", lambda: False)
    for name in mpirun.ALLOCATION_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def options(ranks: int, launcher: Launcher = OPENMPI, threads: int | None = 1, bind: bool | None = None) -> str:
    return " ".join(mpirun.command_line(launcher, Job(["prog"], ranks, threads, bind)))


def test_oversubscribing_is_asked_for_only_beyond_the_cores() -> None:
    assert "--oversubscribe" not in options(4)
    assert "--oversubscribe --bind-to none" in options(5)


def test_root_is_allowed_only_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--allow-run-as-root" not in options(2)
    monkeypatch.setattr(machine, "is_root", lambda: True)
    assert "--allow-run-as-root" in options(2)


@pytest.mark.parametrize(("ranks", "threads", "bound"), [(1, 1, False), (2, 1, False), (3, 1, True), (2, 2, True)])
def test_ranks_are_bound_when_the_job_fills_the_machine(ranks: int, threads: int, bound: bool) -> None:
    text = options(ranks, threads=threads)
    assert (f"--map-by slot:PE={threads} --bind-to core" in text) == bound
    assert ("--bind-to none" in text) != bound


def test_the_user_decides_on_binding() -> None:
    assert "--bind-to core" in options(2, bind=True)
    assert "--bind-to none" in options(4, bind=False)


def test_a_batch_system_decides_on_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    text = options(64)
    assert "--oversubscribe" not in text and "--bind-to" not in text


def test_a_job_of_one_machine_is_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in mpirun.HOST_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert mpirun.on_one_machine(OPENMPI, Job(["prog"], 2))
    assert mpirun.on_one_machine(OPENMPI, Job(["--host", "a"], 2)), "that is the program's own option"
    assert not mpirun.on_one_machine(Launcher("srun", "srun"), Job(["prog"], 2)), "that is the batch system's choice"
    for extra in (["--hostfile", "hosts"], ["-H", "a,b"], ["--host=a"], ["-machinefile", "m"]):
        assert not mpirun.on_one_machine(OPENMPI, Job(["prog"], 2, extra=extra))
    monkeypatch.setenv("HYDRA_HOST_FILE", "hosts")
    assert not mpirun.on_one_machine(OPENMPI, Job(["prog"], 2))
    monkeypatch.delenv("HYDRA_HOST_FILE")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert not mpirun.on_one_machine(OPENMPI, Job(["prog"], 2))


def test_hydra_and_srun_get_their_own_words() -> None:
    keeper = " ".join(rank.command(ROOT))
    assert options(4, Launcher("mpiexec", "hydra")) == f"mpiexec -n 4 -bind-to core {keeper} prog"
    assert options(8, Launcher("mpiexec", "hydra")) == f"mpiexec -n 8 {keeper} prog"
    assert options(4, Launcher("srun", "srun")) == "srun --ntasks=4 --kill-on-bad-exit=1 --cpus-per-task=1 prog"


def test_a_python_file_runs_under_this_interpreter() -> None:
    line = mpirun.command_line(OPENMPI, Job(["train.py", "--epochs", "2"], 2))
    assert line[-4:] == [sys.executable, "train.py", "--epochs", "2"]


def test_threads_are_set_and_sent_unless_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    added = mpirun.environment(Job(["prog"], 2, threads=3))
    assert added["OMP_NUM_THREADS"] == added["OPENBLAS_NUM_THREADS"] == "3"
    assert "-x OMP_NUM_THREADS" in options(2)
    assert "OMP_NUM_THREADS" not in mpirun.environment(Job(["prog"], 2, threads=None))
    for name in thread_share.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not thread_share.said_by_user()
    monkeypatch.setenv("MKL_NUM_THREADS", "8")
    assert thread_share.said_by_user()


def executable(path: Path, says: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_the_environments_own_launcher_comes_before_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = executable(tmp_path / "system" / "mpirun", "HYDRA build details:")
    monkeypatch.setenv("PATH", str(system.parent))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert mpirun.find() == Launcher(str(system), "hydra")
    own = executable(tmp_path / "bin" / "mpirun", "mpirun (Open MPI) 5.0.11")
    assert mpirun.find() == Launcher(str(own), "openmpi")


def test_srun_serves_where_there_is_no_mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = executable(tmp_path / "system" / "srun", "slurm 24.05")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(srun.parent))
    assert mpirun.find() == Launcher(str(srun), "srun")


def test_an_elastic_job_asks_open_mpi_for_its_tolerance_of_faults() -> None:
    line = " ".join(mpirun.command_line(OPENMPI, Job(["prog"], 2, elastic=True)))
    assert "--with-ft ulfm --rtos error-nonzero-status=0" in line and "--with-ft" not in options(2)


def test_an_mpi_that_cannot_go_on_is_refused_with_what_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Open MPI 5" in (elastic.refusal(Launcher("mpiexec", "hydra")) or "")
    assert "srun ends a job step" in (elastic.refusal(Launcher("srun", "srun")) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    own = Launcher(str(tmp_path / "mpirun"), "openmpi")
    assert "without fault tolerance" in (elastic.refusal(own) or "")
    executable(tmp_path / "ompi_info", "options:ft_mpi_support:no")
    assert "without fault tolerance" in (elastic.refusal(own) or "")
    executable(tmp_path / "ompi_info", "options:ft_mpi_support:yes")
    assert elastic.refusal(own) is None


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "6", "SLURM_TASKS_PER_NODE": "8"}, 6),
        ({"SLURM_TASKS_PER_NODE": "2(x3),1"}, 7),
        ({"SLURM_TASKS_PER_NODE": "4"}, 4),
    ],
)
def test_an_allocation_says_how_many_ranks(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], ranks: int | None
) -> None:
    for name in ("SLURM_NTASKS", "SLURM_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert mpirun.allocated_ranks() == ranks
