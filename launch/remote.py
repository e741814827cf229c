"""Ranks of an elastic job on several hosts, each started through a remote shell of its own.

Open MPI's launcher ends the whole job when the daemon of one host is lost. An elastic job has no daemons, therefore:
the launcher starts :func:`main` for every rank, as a process of its own machine. For another host that starts
:func:`keep` there, which starts the rank; the rank itself finds the launcher's server over the network. To the
launcher, a host that is lost is ranks that are lost, and it goes on without them.

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

#: What says which remote shell to use, as to Open MPI's own launcher.
SHELL_VARIABLE = "PRTE_MCA_plm_ssh_agent"
#: A host that does not answer for six seconds is lost.
SHELL = (
    "ssh", "-x", "-o", "BatchMode=yes",
    "-o", "ConnectTimeout=6", "-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=3",
)  # fmt: skip
#: The launcher serves ranks of other hosts, and what it tells them goes over the connection. To it, all ranks are of
#: one host: they must be kept from looking for each other in shared memory.
VARIABLES = {"PRTE_MCA_pmix_remote_connections": "1", "PMIX_MCA_gds": "hash", "OMPI_MCA_btl": "tcp,self"}
_LOST = 255  # what remote shells end with when they have lost the host
_LOOK_SECONDS = 0.2
#: The keeper of a rank receives a line a second, and ends the rank when none has come for so long.
_SIGN, _SIGN_SECONDS, _SILENT_SECONDS = "0\n", 1.0, 10.0


def command(root: Path, named: Sequence[Host]) -> list[str]:
    """What starts a rank's command on its host of those ``named``; ``root`` is where this package is found."""
    return [*_python(root, "remote.main(sys.argv[1:])"), ",".join(map(str, named)), shlex.join(_remote_shell())]


def joining_command(root: Path) -> list[str]:
    """What starts a rank that joins later, before the name of a host, the rank's number and its command."""
    return [*_python(root, "remote.join(sys.argv[1:])"), shlex.join(_remote_shell())]


def unreachable(named: Sequence[Host]) -> str | None:
    """Which of the hosts ``named`` no remote shell comes to, and why; None when all can be reached."""
    others = [host.name for host in named if not is_here(host.name)]
    shells = [
        subprocess.Popen([*_remote_shell(), name, "true"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for name in others
    ]
    said = [shell.communicate()[1].strip() for shell in shells]
    faults = zip(others, shells, said, strict=True)
    return next((f"host {name} cannot be reached: {text}" for name, shell, text in faults if shell.returncode), None)


def _python(root: Path, call: str) -> list[str]:
    code = f"import sys; sys.path.append({str(root)!r}); from launch import remote; {call}"
    return [sys.executable, "-P", "-c", code]


def main(arguments: list[str]) -> None:
    """Runs a command as this rank on its host, and ends as it ends. Arguments: hosts, remote shell, the command."""
    named, shell, *program = arguments
    number = failure.launched_rank()
    assert number is not None
    _become(number, _host_of(number, hosts.from_text(named)), shell, program)


def join(arguments: list[str]) -> None:
    """Runs a command as a rank that joins. Arguments: remote shell, host, the rank's number, the command."""
    shell, host, number, *program = arguments
    os.environ[failure.NUMBER_VARIABLE] = number
    _become(int(number), host, shell, program)


def _become(number: int, host: str, shell: str, program: list[str]) -> NoReturn:
    """Runs `program` as rank `number` on `host`, and ends as it ends."""
    os.environ[failure.PLACE_VARIABLE] = host
    if is_here(host):
        try:
            os.execvp(program[0], program)
        except OSError as error:
            print(f"spmd launch: {program[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(rank.EXIT_NOT_FOUND)
    _end_as(_run([*shlex.split(shell), host], program, number))


def _host_of(number: int, named: Sequence[Host]) -> str:
    """The host of a rank: each takes as many as it is to take, in order."""
    places = [host.name for host in named for _ in range(host.slots)]
    return places[number]


def is_here(host: str) -> bool:
    """Whether ``host`` is a name or an address of this machine: one that a socket can be bound to."""
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
    """Runs rank ``number`` by the remote shell ``there``, and returns the status that this ends with."""
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
        _tell(lifeline, f"{signum}\n")

    for name in rank.FORWARDED:
        signal.signal(getattr(signal, name), forward)
    _tell(lifeline, json.dumps(request) + "\n")
    status = _wait(shell, lifeline, reports)
    if status == 0 and marker is not None:
        marker.end()
    return status


def _wait(shell: "subprocess.Popen[bytes]", lifeline: int, reports: Path) -> int:
    """The status of the remote shell; that of a lost host, where the launcher leaves the host. Meanwhile the keeper of
    the rank gets signs that its host can be reached: signal 0, which does nothing."""
    began, last = time.time(), 0.0
    os.set_blocking(lifeline, False)  # over a link that is cut nothing goes
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
                _tell(lifeline, _SIGN)


def _tell(lifeline: int, line: str) -> None:
    data = line.encode()
    try:
        while data:
            data = data[os.write(lifeline, data) :]
    except (BrokenPipeError, BlockingIOError):
        pass  # the shell has ended, and its status says how; or nothing goes to its host any more


def _remote_shell() -> list[str]:
    named = os.environ.get(SHELL_VARIABLE, "").partition(":")[0]
    return shlex.split(named) or list(SHELL)


def _end_as(status: int) -> NoReturn:
    """Ends this process as the rank ended; by SIGKILL if that is unknown because its host is lost."""
    number = signal.SIGKILL if status < 0 or status == _LOST else max(status - 128, 0)
    if number:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(status)


def keep() -> None:
    """Keeps a rank on its host. What to run, then signals for it, a line each, come on standard input: with its end,
    or when no line comes any more, the rank ends."""
    lifeline = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    request = json.loads(lifeline.readline())
    os.environ |= request["variables"]
    os.chdir(request["folder"])
    patience = float(os.environ.get(PATIENCE_VARIABLE, "0"))
    threading.Thread(target=_listen, args=(lifeline, patience), daemon=True).start()
    rank.main(request["command"])


def _listen(lifeline: FileIO, patience: float) -> None:
    """Forwards signals to the rank. Ends it at the end of input, when no line has come for `_SILENT_SECONDS`, or when
    it has been stopped for `patience` seconds (0: never)."""
    stopped = StoppedRanks(os.getpid(), patience, spare_all=False)
    heard, text = time.monotonic(), b""
    while time.monotonic() - heard <= _SILENT_SECONDS:
        if patience:
            stopped.look()
        if not select.select([lifeline], [], [], _SIGN_SECONDS)[0]:
            continue
        data = lifeline.read(4096)
        if not data:
            break
        heard = time.monotonic()
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            os.kill(os.getpid(), int(line))
    os._exit(_LOST)  # the system ends the rank with its keeper
