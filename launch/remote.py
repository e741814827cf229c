"""Ranks of an elastic job on several hosts, each started through a separate remote shell.

Open MPI's launcher ends the whole job when the daemon of a host is lost. An elastic job therefore has no daemons: the
launcher starts :func:`main` for every rank, as a process of its own machine. For another host that starts :func:`keep`
there, which starts the rank; the rank itself connects to the launcher's server over the network. To the launcher, a
lost host is a set of lost ranks, and it continues without them.

Source: PRRTE 3.0, errmgr_dvm.c, proc_errors (daemons), pmix_server.c (``pmix_remote_connections``).
"""

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import NoReturn

from collectives import endings, failure
from collectives.processes import ends_with_parent
from launch import hosts, rank, silence
from launch.hosts import Host
from launch.stopped import StoppedRanks
from spmd.runtime.silence import PATIENCE_VARIABLE

#: The variable that selects the remote shell, the same as for Open MPI's own launcher.
SHELL_VARIABLE = "PRTE_MCA_plm_ssh_agent"
#: A host that does not respond for six seconds is lost.
SHELL = (
    "ssh", "-x", "-o", "BatchMode=yes",
    "-o", "ConnectTimeout=6", "-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=3",
)  # fmt: skip
#: The launcher serves ranks of other hosts over connections. To it, all ranks are on one host: they must not look for
#: each other in shared memory.
VARIABLES = {"PRTE_MCA_pmix_remote_connections": "1", "PMIX_MCA_gds": "hash", "OMPI_MCA_btl": "tcp,self"}
_LOST = 255  # exit status of remote shells that have lost the host
_LOOK_SECONDS = 0.2
#: The parent of a rank receives a line per second, and ends the rank after so many seconds without one.
_SIGN, _SIGN_SECONDS, _SILENT_SECONDS = "0\n", 1.0, 10.0


def command(root: Path, named: Sequence[Host]) -> list[str]:
    """Return the command that starts a rank's command on its host of ``named``; ``root`` is the folder
    of this package.
    """
    return [*_python(root, "remote.main(sys.argv[1:])"), ",".join(map(str, named)), shlex.join(_remote_shell())]


def joining_command(root: Path) -> list[str]:
    """Return the command that starts a joining rank, to be followed by host, rank number and command."""
    return [*_python(root, "remote.join(sys.argv[1:])"), shlex.join(_remote_shell())]


def unreachable(named: Sequence[Host]) -> dict[str, str]:
    """Return the hosts among ``named`` that no remote shell reaches, each with a sentence that says why."""
    others = [host.name for host in named if not is_here(host.name)]
    shells = [
        subprocess.Popen([*_remote_shell(), name, "true"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for name in others
    ]
    outputs = [shell.communicate()[1].strip() for shell in shells]
    faults = zip(others, shells, outputs, strict=True)
    return {name: f"host {name} cannot be reached: {text}" for name, shell, text in faults if shell.returncode}


def _python(root: Path, call: str) -> list[str]:
    code = f"import sys; sys.path.append({str(root)!r}); from launch import remote; {call}"
    return [sys.executable, "-P", "-c", code]


def main(arguments: list[str]) -> None:
    """Run a command as this rank on its host, and exit as it does. Arguments: hosts, remote shell, the command."""
    named, shell, *program = arguments
    number = failure.launched_rank()
    assert number is not None
    _become(number, _host_of(number, hosts.from_text(named)), shell, program)


def join(arguments: list[str]) -> None:
    """Run a command as a joining rank. Arguments: remote shell, host, the rank's number, the command."""
    shell, host, number, *program = arguments
    os.environ[failure.NUMBER_VARIABLE] = number
    _become(int(number), host, shell, program)


def _become(number: int, host: str, shell: str, program: list[str]) -> NoReturn:
    """Run `program` as rank `number` on `host`, and exit as it does."""
    os.environ[failure.PLACE_VARIABLE] = host
    if is_here(host):
        try:
            os.execvp(program[0], program)
        except OSError as error:
            print(f"spmd launch: {program[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(rank.EXIT_NOT_FOUND)
    _end_as(_run([*shlex.split(shell), host], program, number))


def _host_of(number: int, named: Sequence[Host]) -> str:
    """Return the host of a rank: ranks fill the slots of the hosts in order."""
    places = [host.name for host in named for _ in range(host.slots)]
    return places[number]


def is_here(host: str) -> bool:
    """Return whether ``host`` is a name or an address of this machine: one that a socket can be bound to."""
    if host == os.uname().nodename:
        return True
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as bound:
            bound.bind(address)
    except OSError:
        return False
    return True


def _run(there: Sequence[str], program: Sequence[str], number: int) -> int:
    """Run rank ``number`` by the remote shell ``there``, and return its exit status."""
    reports = Path(os.environ[failure.REPORTS_VARIABLE])
    marker = endings.Marker(reports, number) if reports.is_dir() else None
    keeper = shlex.join(_python(Path(__file__).parents[1], "remote.keep()"))
    shell = subprocess.Popen(
        [*there, keeper],
        stdin=subprocess.PIPE,
        preexec_fn=ends_with_parent(signal.SIGKILL),
    )
    assert shell.stdin is not None
    lifeline = shell.stdin.fileno()
    variables = {name: value for name, value in os.environ.items() if name not in failure.VARIABLES_OF_A_HOST}
    variables[failure.PLACE_VARIABLE] = os.environ[failure.PLACE_VARIABLE]
    request = {"folder": os.getcwd(), "variables": variables, "command": list(program)}

    def forward(signum: int, frame: FrameType | None) -> None:
        _send(lifeline, f"{signum}\n")

    for name in rank.FORWARDED:
        signal.signal(getattr(signal, name), forward)
    _send(lifeline, json.dumps(request) + "\n")
    status = _wait(shell, lifeline, reports)
    if status == 0 and marker is not None:
        marker.end()
    return status


def _wait(shell: "subprocess.Popen[bytes]", lifeline: int, reports: Path) -> int:
    """Return the status of the remote shell, or that of a lost host if the launcher drops the host.

    Meanwhile the rank's parent receives heartbeats: signal 0, which has no effect.
    """
    began, last = time.time(), 0.0
    os.set_blocking(lifeline, False)  # writes over a broken link would block
    while True:
        try:
            return shell.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if silence.is_left(reports, os.environ[failure.PLACE_VARIABLE], began):
                shell.kill()
                shell.wait()
                return _LOST
            if time.monotonic() - last > _SIGN_SECONDS:
                last = time.monotonic()
                _send(lifeline, _SIGN)


def _send(lifeline: int, line: str) -> None:
    data = line.encode()
    try:
        while data:
            data = data[os.write(lifeline, data) :]
    except (BrokenPipeError, BlockingIOError):
        pass  # the shell has exited with a status, or its host is unreachable


def _remote_shell() -> list[str]:
    named = os.environ.get(SHELL_VARIABLE, "").partition(":")[0]
    return shlex.split(named) or list(SHELL)


def _end_as(status: int) -> NoReturn:
    """Exit as the rank did; by SIGKILL if that is unknown because its host is lost."""
    number = signal.SIGKILL if status < 0 or status == _LOST else max(status - 128, 0)
    if number:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(status)


def keep() -> None:
    """Run a rank on its host, as its parent.

    Standard input has the request, then signals for the rank, one per line. At its end, or without a line for too long,
    the rank is ended.
    """
    lifeline = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    request = json.loads(lifeline.readline())
    os.environ |= request["variables"]
    os.chdir(request["folder"])
    patience = float(os.environ.get(PATIENCE_VARIABLE, "0"))
    threading.Thread(target=_listen, args=(lifeline, patience), daemon=True).start()
    rank.main(request["command"])


def _listen(lifeline: FileIO, patience: float) -> None:
    """Forward signals to the rank, and end it when the connection is lost.

    That is at the end of input, after `_SILENT_SECONDS` without a line, or when the rank has been stopped for
    `patience` seconds (0: never).
    """
    stopped = StoppedRanks(os.getpid(), patience, spare_all=False)
    received, text = time.monotonic(), b""
    while time.monotonic() - received <= _SILENT_SECONDS:
        if patience:
            stopped.look()
        if not select.select([lifeline], [], [], _SIGN_SECONDS)[0]:
            continue
        data = lifeline.read(4096)
        if not data:
            break
        received = time.monotonic()
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            os.kill(os.getpid(), int(line))
    os._exit(_LOST)  # the system ends the rank with its parent
