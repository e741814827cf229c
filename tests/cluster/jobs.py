"""Jobs on two hosts: started on host `a`, where the launcher runs; what they say, and that nothing of them stays."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster.machines import ROOT, Hosts, NetworkHost
from tests.elastic.jobs import MOST_SECONDS
from tests.launch.failures import processes_left

LEAVING_SECONDS = 10.0
LAUNCH = (sys.executable, "-m", "launch", "launch")
#: Tests that are much like others, or take much longer.
at_length = pytest.mark.skipif(
    os.environ.get("SPMD_CLUSTER_TESTS") != "1", reason="tests at length run where SPMD_CLUSTER_TESTS is 1"
)


@dataclass(frozen=True)
class EndedClusterJob:
    """How a job has ended: its status, what it wrote, and what should not be."""

    status: int
    said: str
    screen: str
    faults: list[str] = field(default_factory=list)


class ClusterJob:
    """`spmd launch` of a command, two ranks on each of two hosts unless the options say otherwise."""

    def __init__(
        self, hosts: Hosts, command: Sequence[str], options: Sequence[str] = ("--hosts", "a:2,b:2"), **variables: str
    ) -> None:
        self._hosts, self.marker = hosts, uuid.uuid4().hex
        self._before = {host.name: _files(host) for host in hosts.living()}
        self._variables = {
            "MARKER": self.marker,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            # The hosts share their processors: bound to cores, a rank of each would spin on the same one, and what
            # either waits for, the other's progress among it, may not run for minutes.
            "PRTE_MCA_hwloc_default_binding_policy": "none",
        }
        self._variables |= {"PRTE_MCA_plm_ssh_agent": str(hosts.agent), "HYDRA_LAUNCHER_EXEC": str(hosts.agent)}
        self.process = hosts.start([*LAUNCH, *options, "--", *command], self._variables | variables)

    def wait_for(self, line: str) -> None:
        """Until the job has said so."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said == f"{line}\n", (said, self.process.communicate())

    def join(self, *options: str) -> tuple[int, str, str]:
        """Asks for more ranks, on host `a`: status, output and errors of who asks."""
        asking = self._hosts.start([*LAUNCH, "--join", *options], self._variables)
        said, screen = asking.communicate(timeout=MOST_SECONDS)
        return asking.returncode, said, screen

    def processes(self, word: str) -> list[int]:
        """Those of the job, on any host, whose command line has `word`."""
        chosen = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"MARKER={self.marker}".encode() in (folder / "environ").read_bytes()
                if ours and word.encode() in (folder / "cmdline").read_bytes():
                    chosen.append(int(folder.name))
            except OSError:
                continue
        return chosen

    def processes_on(self, host: NetworkHost) -> list[int]:
        """Those of the job on `host`: of its namespace of processes."""
        place = os.readlink(f"/proc/{host.first_process}/ns/pid")
        chosen = []
        for process in self.processes(""):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{process}/ns/pid") == place:
                    chosen.append(process)
        return chosen

    def signal(self, number: signal.Signals, word: str) -> None:
        """Sends a signal to the processes whose command line has `word`."""
        for process in self.processes(word):
            os.kill(process, number)

    def finish(self) -> EndedClusterJob:
        """Waits for the end, and for all that the job may leave behind to go."""
        try:
            said, screen = self.process.communicate(timeout=MOST_SECONDS)
            faults = []
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL, "")
            said, screen = self.process.communicate()
            faults = ["did not end"]
        if left := processes_left(self.marker):
            faults.append(f"processes stay behind: {left}")
        faults += [
            f"files stay behind on host {host.name}: {left}"
            for host in self._hosts.living()
            if (left := self._left(host))
        ]
        return EndedClusterJob(self.process.returncode, said, screen, faults)

    def _left(self, host: NetworkHost) -> set[str]:
        """The files on a host that this job has left. The launcher's daemon there may end after the launcher itself,
        and what an earlier job has left is that one's."""
        deadline = time.monotonic() + LEAVING_SECONDS
        while (left := _files(host) - self._before[host.name]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def _files(host: NetworkHost) -> set[str]:
    # MPICH leaves its shared memory when a job is aborted, on one machine, too; what ranks recorded is to be read.
    names = (name for name in host.files() if "/spmd-records-" not in name)
    return {name for name in names if not Path(name).name.startswith("mpich_shm_")}
