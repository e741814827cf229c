"""Restriction of a launcher's and MPI's listening sockets to the loopback interface, for jobs on one machine.

PRRTE, Hydra and Open MPI's TCP transport listen on all addresses of a machine, and cannot be configured otherwise (see
`launch.mpirun`). Their sockets are therefore bound from outside: pidfd_getfd(2) duplicates a descriptor of a child's
socket, and SO_BINDTODEVICE, of socket(7), makes Linux drop what arrives on other interfaces. Both are specific to
Linux, and a container may forbid the first; then the sockets remain as they are.
"""

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator

from collectives.processes import name_of, running_children
from collectives.system import IS_LINUX

_PIDFD_GETFD = 438  # its number on every processor
_LOOPBACK = b"lo\0"
_LOCAL = ("127.", "::1")
_PROXIES = "hydra"  # prefix of the names of Hydra's proxies, which start its ranks


class Listeners:
    """The listening sockets of the process `launcher`, a child of this one, and with `proxies` those of its proxies.

    Of the ranks' sockets only those on ports from `rank_ports` on: others belong to the program.
    """

    def __init__(self, launcher: int, *, proxies: bool, rank_ports: int | None = None) -> None:
        self._launcher, self._proxies, self._rank_ports = launcher, proxies, rank_ports
        self._listening: set[str] = set()

    def keep_local(self) -> None:
        """Bind the sockets that are open by now to the loopback interface.

        Hydra's proxies connect to its launcher by the machine's name: nothing is bound until there are ranks.
        """
        if not IS_LINUX:
            return
        for process in self._processes():
            self._keep_local(process, 0)
        if self._rank_ports is not None:
            for process in self._ranks():
                self._keep_local(process, self._rank_ports)

    def _ranks(self) -> list[int]:
        """Return all descendants of the launcher: a rank may be started by a script."""
        started = [str(self._launcher)]
        for process in started:  # grows in the loop
            started += running_children(int(process)) or ()
        return list(map(int, started[1:]))

    def _keep_local(self, process: int, least: int) -> None:
        with contextlib.suppress(OSError):  # it has ended
            handle = os.pidfd_open(process)
            try:
                self._bind(process, handle, least)
            finally:
                os.close(handle)

    def _processes(self) -> list[int]:
        if not self._proxies:
            return [self._launcher]
        launchers, begun = [str(self._launcher)], False
        for process in launchers:
            for child in running_children(int(process)) or ():
                if name_of(child).startswith(_PROXIES):
                    launchers.append(child)
                else:
                    begun = True
        return list(map(int, launchers)) if begun else []

    def _bind(self, process: int, handle: int, least: int) -> None:
        for number, link in sockets(process):
            if link not in self._listening:
                with contextlib.suppress(OSError), socket.socket(fileno=_fetch(handle, number)) as ours:
                    if listens(ours) and _is_open_to_others(ours) and ours.getsockname()[1] >= least:
                        ours.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)
                        self._listening.add(link)


def cut_connections(process: int, host: str) -> None:
    """Shut down the connections of `process`, a child of this one, with the addresses of `host`.

    Over a broken link the end of a process is not noticed. PRRTE 3.0 then keeps its ranks connected, and never answers
    a rank that is started later (PMIx_Init there hangs).
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return
    addresses = {str(entry[4][0]) for entry in found}
    if not IS_LINUX:
        return
    with contextlib.suppress(OSError):  # it has ended
        handle = os.pidfd_open(process)
        try:
            for number, _ in sockets(process):
                with contextlib.suppress(OSError), socket.socket(fileno=_fetch(handle, number)) as ours:
                    if ours.family in (socket.AF_INET, socket.AF_INET6) and _peer(ours) in addresses:
                        ours.shutdown(socket.SHUT_RDWR)
        finally:
            os.close(handle)


def _peer(connected: socket.socket) -> str:
    """Return the peer's address; an IPv4 address mapped to IPv6 as IPv4."""
    return str(connected.getpeername()[0]).removeprefix("::ffff:")


def sockets(process: int) -> Iterator[tuple[int, str]]:
    """Yield the descriptors of a process that are sockets, each with a machine-wide identifier.

    Nothing where the system does not list them.
    """
    folder = f"/proc/{process}/fd"
    for entry in os.listdir(folder) if os.path.isdir(folder) else ():
        with contextlib.suppress(OSError):  # it has been closed
            link = os.readlink(f"{folder}/{entry}")
            if link.startswith("socket:"):
                yield int(entry), link


def listens(ours: socket.socket) -> bool:
    """Return whether a socket is listening."""
    return bool(ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _fetch(handle: int, number: int) -> int:
    """Duplicate the descriptor `number` of another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    ours = libc.syscall(_PIDFD_GETFD, handle, number, 0)
    if ours < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(ours)


def _is_open_to_others(listener: socket.socket) -> bool:
    return listener.family in (socket.AF_INET, socket.AF_INET6) and not listener.getsockname()[0].startswith(_LOCAL)
