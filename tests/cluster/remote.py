"""The remote shell of a host in tests: what answers on the host, and what `mpirun` starts in the place of ssh.

``python remote.py serve SOCKET`` is the first process of a host's own namespace: it runs the commands that come in, and
reaps who is orphaned. ``python remote.py run FOLDER HOST COMMAND...`` is a stand-in for ``ssh HOST COMMAND...``: the
command gets this process's own standard streams and folder, and the host's environment, and this process ends with its
status.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

LONGEST = 1 << 17


def address(folder: Path, host: str) -> str:
    return str(folder / f"{host}.socket")


def start(folder: Path, host: str, command: list[str], variables: dict[str, str] | None = None) -> socket.socket:
    """Has `command` run on `host`, with `variables` beside the environment there; `status` waits for its end."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LONGEST)
    try:
        connection.connect(address(folder, host))
    except OSError as error:
        sys.exit(f"host {host} does not answer: {error.strerror}")
    request = {"command": command, "folder": os.getcwd(), "variables": variables or {}}
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    return connection


def status(connection: socket.socket) -> int:
    """How the command ended, as a shell tells it; 255 where the host is gone."""
    with connection, contextlib.suppress(OSError):
        return int(connection.recv(16) or 255)
    return 255


def serve(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(0.1)
        while True:
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(None)
                if not os.fork():
                    listener.close()
                    _answer(connection)
                connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(connection: socket.socket) -> None:
    data, streams, _, _ = socket.recv_fds(connection, LONGEST, 3)
    request: dict[str, Any] = json.loads(data)
    os.chdir(request["folder"])
    environment = os.environ | request["variables"]
    standard = dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))
    process = subprocess.Popen(request["command"], env=environment, start_new_session=True, **standard)
    for stream in streams:
        os.close(stream)
    for stream in range(3):
        os.close(stream)
    ended = process.wait()
    connection.send(str(ended if ended >= 0 else 128 - ended).encode())
    os._exit(0)


def main(arguments: list[str]) -> int:
    if arguments[0] == "serve":
        serve(arguments[1])
    folder, host, *words = arguments[1:]
    return status(start(Path(folder), host, ["/bin/sh", "-c", " ".join(words)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
