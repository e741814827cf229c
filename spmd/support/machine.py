"""The machine's processors as ranks may use them, launchers' variables, and the user's privileges."""

import os
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

from collectives.system import IS_LINUX, usable_processors
from spmd.support import control_groups

CPU_TOPOLOGY = Path("/sys/devices/system/cpu")

#: Variables that MPI launchers (Open MPI, MPICH and derivatives, Slurm's PMI) set for every rank.
RANK_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS")
#: Variables with the number of ranks on this machine (Open MPI; MPICH and derivatives).
LOCAL_SIZE_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def is_rank() -> bool:
    """Whether a launcher started this process as a rank."""
    return any(variable in os.environ for variable in RANK_VARIABLES)


def ranks_here() -> int:
    """The ranks of this job on this machine; 0 where this process is not a rank, or its launcher does not set it."""
    size = next((os.environ[name] for name in LOCAL_SIZE_VARIABLES if name in os.environ), "")
    return int(size) if size.isdigit() else 0


def default_threads(processes: int = 1) -> int:
    """The default number of native threads of each of `processes` processes of a grid.

    $OMP_NUM_THREADS overrides it. A rank of a job has one; a process alone has the cores it may run on, and
    several that share a Python process share them.
    """
    named = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    threads = int(named) if named.isdigit() and int(named) else 1 if is_rank() else usable_cores()
    return threads if is_rank() else max(1, threads // processes)


def usable_cores() -> int:
    """Physical cores this process may use: its affinity, less what a control group's quota takes away."""
    cores = _physical_cores(usable_processors())
    quota = _control_group_quota()
    return cores if quota is None else max(1, min(cores, quota))


def is_root() -> bool:
    """Whether this process runs as the superuser (containers usually do), for whom Open MPI requires a flag."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _physical_cores(processors: set[int]) -> int:
    """Distinct (package, core) pairs behind the logical processors; where the topology is unknown, their number."""
    if not IS_LINUX:
        return _counted_by_sysctl() or len(processors)
    cores = {_core(CPU_TOPOLOGY / f"cpu{processor}" / "topology") for processor in processors}
    return len(processors) if None in cores else len(cores)


@cache
def _counted_by_sysctl() -> int:
    """The number of cores by sysctl(8) of macOS and BSD; 0 where it is not available."""
    with suppress(OSError, ValueError):
        done = subprocess.run(["sysctl", "-n", "hw.physicalcpu"], capture_output=True, text=True, check=False)
        return int(done.stdout)
    return 0


@cache
def _core(topology: Path) -> tuple[str, str] | None:
    """The package and the core in it of a logical processor, which never change; None where unknown."""
    try:
        return (topology / "physical_package_id").read_text(), (topology / "core_id").read_text()
    except OSError:
        return None


def _control_group_quota() -> int | None:
    quotas = []
    for folder in control_groups.folders("cpu"):
        try:
            quota, period = (folder / "cpu.max").read_text().split()[:2]
        except (OSError, ValueError):
            continue
        if quota != "max":
            quotas.append(max(1, int(quota) // int(period)))
    return min(quotas, default=None)
