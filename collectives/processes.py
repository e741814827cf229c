"""What the system tells of the processes of this machine, and how one ends with its parent.

Linux has it in files (proc(5), prctl(2)); elsewhere ps tells, which every POSIX system has, and a thread looks from
time to time whether the parent is still there.
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
#: Seconds from one look at the parent to the next, where nothing tells of its end.
_LOOK_SECONDS = 0.5
#: States of processes that have ended.
ENDED = "ZX"


def running_children(process: int) -> list[str] | None:
    """The processes that `process` has started and that have not ended; None where it has itself, or nobody tells."""
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
    """The state of a process (R, S, T: stopped, Z: ended, ...); X where there is none."""
    if not IS_LINUX:
        return _said("stat=", process)[:1] or "X"
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def start_of(process: int) -> str:
    """When a process started: ids serve again, such a pair does not. Empty where there is no such process."""
    if not IS_LINUX:
        return _said("lstart=", process)
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def name_of(process: int | str) -> str:
    """The name of the program that a process runs; empty where there is no such process."""
    if not IS_LINUX:
        return os.path.basename(_said("comm=", process))
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def command_of(process: int | str) -> bytes:
    """A process's command line, its words apart by some byte; empty where there is no such process, or it has ended."""
    if not IS_LINUX:
        return _said("args=", process).encode()
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def environment_of(process: int | str) -> list[bytes]:
    """The variables that a process began with, as name=value; none where nobody tells: Linux alone does."""
    if not IS_LINUX:
        return []
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def is_child(parent: int, text: str) -> bool:
    """Whether `parent` has started a process that runs and whose command line contains `text`."""
    return any(text.encode() in command_of(child) for child in running_children(parent) or ())


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have this process sent signal ``number`` when its parent dies."""
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
    """What a child does before it becomes another program, so that it ends with this process: `preexec_fn`.

    None where the system has no way: such a child outlives a parent that is killed.
    """
    return (lambda: end_with_parent(number)) if IS_LINUX else None


def _said(what: str, process: int | str) -> str:
    """What ps says of a process; nothing where there is no such process, or no ps."""
    with contextlib.suppress(OSError):
        told = subprocess.run(["ps", "-o", what, "-p", str(process)], capture_output=True, text=True, check=False)
        return told.stdout.strip()
    return ""
