"""What processes listen on, as the kernel tells: sock_diag(7)."""

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP = 20, 0x301
_DONE = 3
_LISTEN = 10
_LOCAL = {"127.0.0.1", "::1"}


def open_to_others(processes: Iterable[int]) -> list[tuple[str, int]]:
    """Address and port of each socket by which other machines can reach one of the processes."""
    theirs = {link for process in processes for link in _links(process)}
    loopback = socket.if_nametoindex("lo")
    rows = [row for family in (socket.AF_INET, socket.AF_INET6) for row in _listeners(family)]
    return [(at, port) for at, port, only, inode in rows if inode in theirs and at not in _LOCAL and only != loopback]


def _links(process: int) -> set[int]:
    links = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(entry))
    return {int(link[8:-1]) for link in links if link.startswith("socket:[")}


def _listeners(family: socket.AddressFamily) -> list[tuple[str, int, int, int]]:
    """Address, port, interface (0: all) and inode of each TCP socket that listens."""
    body = struct.pack("=BBxxI48x", family, socket.IPPROTO_TCP, 1 << _LISTEN)
    header = struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as link:
        link.send(header + body)
        while True:
            data = link.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == _DONE:
                    return found
                found.append(_row(family, data[16:length]))
                data = data[(length + 3) & ~3 :]


def _row(family: socket.AddressFamily, message: bytes) -> tuple[str, int, int, int]:
    (port,) = struct.unpack_from(">H", message, 4)
    address = socket.inet_ntop(family, message[8 : 12 if family == socket.AF_INET else 24])
    (interface,), (inode,) = struct.unpack_from("=I", message, 40), struct.unpack_from("=I", message, 68)
    return address, port, interface, inode
