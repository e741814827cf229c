"""Information on processes of this machine, and termination together with the parent.

On Linux from files (proc(5)) and prctl(2); elsewhere from ps, which every POSIX system has, and by a thread that polls
the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from collectives.system import IS_LINUX

_PR_SET_PDEATHSIG = 1
#: Polling interval of the parent, in seconds, where its end is not signalled.
_LOOK_SECONDS = 0.5
#: States of processes that have ended.
ENDED = "ZX"


def running_children(process: int) -> list[str] | None:
    """Return the running children of `process`; None if it has ended or the system cannot list them."""
    if not IS_LINUX:
        return _listed_children(process)
    try:
        lists = [path.read_text().split() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return None
    return [child for children in lists for child in children if state_of(child) not in ENDED] if lists else None


def _listed_children(process: int) -> list[str] | None:
    with subprocess.Popen(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        lines = [line.split() for line in running.communicate()[0].splitlines()]
    alive = {line[0]: line[1] for line in lines if len(line) == 3 and line[2][0] not in ENDED}
    if str(process) not in alive:
        return None
    return [child for child, parent in alive.items() if parent == str(process) and child != str(running.pid)]


def state_of(process: str) -> str:
    """Return the state of a process (R, S, T: stopped, Z: zombie, ...); X if there is none."""
    if not IS_LINUX:
        return _ps("stat=", process)[:1] or "X"
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def start_of(process: int) -> str:
    """Return the start time of a process, which identifies it together with its id; "" if there is none."""
    if not IS_LINUX:
        return _ps("lstart=", process)
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def name_of(process: int | str) -> str:
    """Return the name of the program that a process runs; "" if there is none."""
    if not IS_LINUX:
        return os.path.basename(_ps("comm=", process))
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def command_of(process: int | str) -> bytes:
    """Return a process's command line, its words separated by some byte; b"" if there is none or it has ended."""
    if not IS_LINUX:
        return _ps("args=", process).encode()
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def environment_of(process: int | str) -> list[bytes]:
    """Return the initial environment of a process as name=value; empty where it cannot be read (Linux only)."""
    if not IS_LINUX:
        return []
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def is_child(parent: int, text: str) -> bool:
    """Return whether `parent` has a running child whose command line contains `text`."""
    return any(text.encode() in command_of(child) for child in running_children(parent) or ())


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Make the system send signal ``number`` to this process when its parent dies."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        return
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os.kill(os.getpid(), number)

    threading.Thread(target=look, daemon=True, name="parent").start()


def ends_with_parent(number: int = signal.SIGTERM) -> Callable[[], None] | None:
    """Return a `preexec_fn` that makes a child end with this process.

    None if the system has no such means: a child then outlives a parent that is killed.
    """
    return (lambda: end_with_parent(number)) if IS_LINUX else None


def _ps(what: str, process: int | str) -> str:
    """Return a field of ps for a process; "" if there is no such process, or no ps."""
    with contextlib.suppress(OSError):
        output = subprocess.run(["ps", "-o", what, "-p", str(process)], capture_output=True, text=True, check=False)
        return output.stdout.strip()
    return ""
