"""A Slurm of two nodes, on the hosts of the tests: Debian's slurmctld, slurmd and munge, without systemd.

Everything it writes is in folders that go with the hosts.
"""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.machines import Hosts, NetworkHost

STARTING_SECONDS = 60.0
_PATH = os.pathsep.join(("/usr/sbin", "/usr/bin", os.environ.get("PATH", "")))
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scontrol", "sinfo")

#: {own} is each host's own folder, all others are shared.
_CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=a
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={own}/munge.socket
CredType=cred/munge
StateSaveLocation={own}/state
SlurmdSpoolDir={own}/spool
SlurmctldPidFile={own}/slurmctld.pid
SlurmdPidFile={own}/slurmd.pid
SlurmctldLogFile={own}/slurmctld.log
SlurmdLogFile={own}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MpiDefault={mpi}
NodeName=a,b CPUs=8 State=UNKNOWN
PartitionName=all Nodes=a,b Default=YES State=UP
"""


def refusal() -> str | None:
    """Why there can be no Slurm here; None when there can."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"Slurm is not installed: there is no {', '.join(absent)}" if absent else None


class Slurm:
    """Slurm's daemons on both hosts; they end with the hosts."""

    def __init__(self, hosts: Hosts, mpi: str) -> None:
        self._hosts, self.mpi, self.folder = hosts, mpi, hosts.folder / "slurm"
        self.folder.mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(64))
        (self.folder / "slurm.conf").write_text(_CONFIGURATION.format(own=hosts.folder / "tmp", mpi=mpi))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        own = hosts.folder / "tmp"
        (self.folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={own}\n")
        files = [f"--{name}-file={own}/munge.{name}" for name in ("pid", "log", "seed")]
        for host in (hosts.a, hosts.b):
            self._daemon(host, "munged", "--force", f"--key-file={key}", f"--socket={own}/munge.socket", *files)
        self._daemon(hosts.a, "slurmctld")
        for host in (hosts.a, hosts.b):
            self._daemon(host, "slurmd")
        self._wait()

    def _daemon(self, host: NetworkHost, *command: str) -> None:
        folders = ["mkdir", "-p", str(self._hosts.folder / "tmp" / "state"), str(self._hosts.folder / "tmp" / "spool")]
        subprocess.run(host.shell(*folders), check=True)
        subprocess.run(host.shell("env", *self._variables({}), *command), check=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + STARTING_SECONDS
        while not self.is_idle():
            if time.monotonic() > deadline:
                raise TimeoutError("Slurm's nodes did not start")
            time.sleep(0.2)

    def is_idle(self) -> bool:
        """Whether both nodes are there and run nothing."""
        return self.run("sinfo", "--noheader", "--format=%t %D").stdout.split() == ["idle", "2"]

    def _variables(self, variables: Mapping[str, str]) -> list[str]:
        path = os.pathsep.join((str(self.folder / "bin"), str(Path(sys.executable).parent), _PATH))
        named = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path, **variables}
        return [f"{name}={value}" for name, value in named.items()]

    def start(self, *command: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen[str]:
        """A command on host a."""
        words = ["env", *(["-C", str(cwd)] if cwd else []), *self._variables(variables), *command]
        return subprocess.Popen(
            self._hosts.a.shell(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command on host a, and how it ended."""
        process = self.start(*command, cwd=cwd, **variables)
        said, screen = process.communicate(timeout=180)
        return subprocess.CompletedProcess(command, process.returncode, said, screen)
