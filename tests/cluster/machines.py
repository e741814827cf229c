"""Two hosts on one machine: namespaces of their own for network, names, processes, mounts and shared memory.

A virtual switch joins them; no other network is there. They share the file system, as hosts of a cluster
do, except the folders for temporary files and for shared memory. A host is lost, all at once, when its first process is
killed. Needs Linux, root and `ip`.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from collectives.processes import end_with_parent
from tests.cache import PREFIX
from tests.cluster import remote

ROOT = Path(__file__).parents[2]
NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount")
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
STARTING_SECONDS = 30.0

#: What a host does first, as a script: $1 is its name, $2 its address, $3 the folder of all hosts.
_START = """
set -e
hostname "$1"
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs "$3/tmp"
mount --bind "$3/hosts" /etc/hosts
ip link set lo up
echo started > "$3/$1.started"
until ip link show "link-$1" > /dev/null 2>&1; do sleep 0.02; done
ip address add "$2/24" dev "link-$1"
ip link set "link-$1" up
export TMPDIR="$3/tmp"
exec "$4" "$5" serve "$3/$1.socket"
"""

#: What joins the hosts, so that neither's interface goes with the other: a bridge, which has a port for each.
_SWITCH = """
set -e
ip link add switch type bridge
ip link set switch up
read joined
for port in port-a port-b; do ip link set "$port" master switch up; done
read ended
"""


def refusal() -> str | None:
    """Why there can be no hosts here; None when there can."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return "hosts of their own namespaces need Linux, root and ip"
    tries = "ip link add v type veth peer name w && ip link add s type bridge && mount -t tmpfs tmpfs /mnt"
    tried = subprocess.run(["unshare", *NAMESPACES, "--fork", "sh", "-c", tries], capture_output=True, text=True)
    return f"namespaces are not permitted here: {tried.stderr.strip()}" if tried.returncode else None


def _end_with_us() -> None:
    """Nothing outlives the tests, however they end."""
    end_with_parent(signal.SIGKILL)


class NetworkHost:
    """One of the hosts, by its name."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        arguments = [name, ADDRESSES[name], str(folder), sys.executable, str(Path(remote.__file__))]
        self._shell = subprocess.Popen(
            ["unshare", *NAMESPACES, "--mount-proc", "--fork", "--kill-child", "sh", "-c", _START, "sh", *arguments],
            preexec_fn=_end_with_us,
        )

    @property
    def first_process(self) -> int:
        children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text().split()
        return int(children[0])

    @property
    def lives(self) -> bool:
        return self._shell.poll() is None

    def kill(self) -> None:
        """Ends all that runs on the host, at once."""
        os.kill(self.first_process, signal.SIGKILL)
        self._shell.wait()

    def stop(self) -> None:
        self._shell.kill()  # its child goes with it
        self._shell.wait()

    def files(self) -> set[str]:
        """What stands in the host's folders for temporary files and shared memory, but for what tests keep there."""
        kept = ("-name", f"{PREFIX}*", "-prune", "-o", "-type", "f", "-print")
        listed = subprocess.run(
            self.shell("find", "/dev/shm", str(self._folder / "tmp"), *kept), capture_output=True, text=True
        )
        return set(listed.stdout.split())

    def shell(self, *command: str) -> list[str]:
        """What runs `command` on the host."""
        return [sys.executable, "-S", remote.__file__, "run", str(self._folder), self.name, shlex.join(command)]


class Hosts:
    """Hosts `a` and `b`, joined. Ends them, and leaves nothing, when the block of `with` ends."""

    def __enter__(self) -> "Hosts":
        self._place = tempfile.TemporaryDirectory(prefix="spmd-hosts-")
        self.folder = Path(self._place.name)
        (self.folder / "tmp").mkdir()
        names = [f"{address} {name}\n" for name, address in ADDRESSES.items()]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
        self.agent = self.folder / "rsh"
        script = shlex.join([sys.executable, "-S", remote.__file__, "run", str(self.folder)])
        self.agent.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nexec {script} "$@"\n')
        self.agent.chmod(0o755)
        switch = ["unshare", "--net", "sh", "-c", _SWITCH]
        self._switch = subprocess.Popen(switch, stdin=subprocess.PIPE, preexec_fn=_end_with_us)
        self.a, self.b = (NetworkHost(name, self.folder) for name in ADDRESSES)
        self._wait("started")
        for host in (self.a, self.b):
            inside = ["ip", "link", "add", f"link-{host.name}", "netns", str(host.first_process)]
            outside = ["type", "veth", "peer", "name", f"port-{host.name}", "netns", str(self._switch.pid)]
            subprocess.run([*inside, *outside], check=True)
        assert self._switch.stdin is not None
        self._switch.stdin.write(b"joined\n")
        self._switch.stdin.flush()
        self._wait("socket")
        return self

    def __exit__(self, *error: object) -> None:
        for host in (self.a, self.b):
            host.stop()
        self._switch.kill()
        self._switch.communicate()
        self._place.cleanup()

    def living(self) -> list[NetworkHost]:
        return [host for host in (self.a, self.b) if host.lives]

    def unplug(self, host: NetworkHost) -> None:
        """Nothing reaches the host any longer, nor comes from there."""
        self._set_link(host, "down")

    def plug(self, host: NetworkHost) -> None:
        """It is reached again."""
        self._set_link(host, "up")

    def _set_link(self, host: NetworkHost, state: str) -> None:
        enter = ["nsenter", "--net", "--target", str(self._switch.pid)]
        subprocess.run([*enter, "ip", "link", "set", f"port-{host.name}", state], check=True)

    def _wait(self, sign: str) -> None:
        deadline = time.monotonic() + STARTING_SECONDS
        while not all((self.folder / f"{name}.{sign}").exists() for name in ADDRESSES):
            if time.monotonic() > deadline:
                raise TimeoutError("the hosts did not start")
            time.sleep(0.01)

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
        """Runs `command` on host `a`; the process ends with its status."""
        words = [f"{name}={value}" for name, value in variables.items()]
        return subprocess.Popen(
            self.a.shell("env", *words, *command),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
